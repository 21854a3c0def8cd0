"""Devices of a session that compute on a board, by the Python driver in the design's folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from hwgen.api.arrays import Values, listed
from hwgen.errors import DeviceError, InputError
from hwgen.host.device import Hardware, SessionDevice, check_options

__all__ = ["LinuxBoard", "PynqBoard", "driver_of"]


class Board(SessionDevice):
    """Base class of boards, whose driver is the file ``NAME_driver.py`` in the design's folder.

    Parameters
    ----------
    hardware : Hardware
        Design in a folder.
    program : str, optional
        File of an engine's program; by default the one in the folder that has the model's name.
    **options
        Options of the driver's ``connect``, such as ``timeout``.

    Raises
    ------
    InputError
        If there is no driver in the folder, or no such option.
    DeviceError
        If the driver finds no such hardware.
    """

    through: ClassVar[str]
    """Access to the hardware, as the driver's ``connect`` takes it."""

    def __init__(self, hardware: Hardware, *, program: str | None = None, **options: Any):
        super().__init__(hardware)
        self._module = driver_of(hardware)
        driver = self._module.Engine if hardware.is_engine else self._module.Accelerator
        check_options(self.name, options, driver, reserved=("allocate", "folder"))
        try:
            self.driver = self._module.connect(hardware.folder, through=self.through, **options)
            """Driver of the design, for its counters."""
            if hardware.is_engine:
                self.driver.load(program or f"{hardware.model.network.name}.program")
        except self._module.DriverError as error:
            raise DeviceError(str(error)) from None

    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Compute frames on the board, and return the model's outputs.

        Raises
        ------
        DeviceError
            If the hardware fails. Frames in it are dropped, and the next run begins anew.
        """
        from hwgen.network import host

        model = self.hardware.model
        prepared = [*listed(model.prepare(dict(x)))]
        frames = host.input_frames(model.network, prepared)
        try:
            made = self.driver.run(*frames, integers=True)
        except self._module.DriverError as error:
            raise DeviceError(str(error)) from None
        integers = made if isinstance(made, tuple) else (made,)
        return model.complete(host.output_maps(model.network, integers), dict(x))


class PynqBoard(Board):
    """Board with PYNQ, which loads the bitstream ``NAME.bit`` of the folder."""

    name = through = "pynq"


class LinuxBoard(Board):
    """Board with any Linux, on which the design is loaded: registers by UIO, memory by u-dma-buf."""

    name = through = "linux"


def driver_of(hardware: Hardware, kind: str = "driver") -> ModuleType:
    """Import the driver in a design's folder, ``NAME_driver.py`` or that of another kind."""
    folder = hardware.folder
    if folder is None:
        raise InputError("a board needs the folder of a built design: give Session the folder, and the model")
    try:
        module = json.loads((folder / "registers.json").read_text(encoding="utf-8"))["module"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder} has no registers.json that hwgen wrote: copy or build the design again") from None
    path = folder / f"{str(module).removesuffix('_axi')}_{kind}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{path} is missing: copy or build the design again")
    driver = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    return driver
