"""Devices that a session computes on: a simulation, or a board with the Python driver in the design's folder."""

from __future__ import annotations

import importlib.util
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from hwgen.api.arrays import Values, listed
from hwgen.api.design import Design
from hwgen.api.golden import GoldenModel
from hwgen.api.model import Model
from hwgen.errors import CheckError, DeviceError, InputError

#: File in a result folder whose presence tells that the folder is of an engine.
_ENGINE = "engine.json"


@dataclass(frozen=True, eq=False)
class SessionDesign:
    """Design that a session computes on: made in this program, or in a folder that ``Design.build`` wrote.

    Parameters
    ----------
    model : GoldenModel
        Model that the design computes. The host runs its operators in front of and behind the hardware.
    folder : Path, optional
        Folder of the design.
    made : Design, optional
        Design that was made in this program.
    """

    model: GoldenModel
    folder: Path | None = None
    made: Design | None = None

    @property
    def is_engine(self) -> bool:
        """Whether the folder is that of an engine, which needs a program of the model."""
        return self.folder is not None and (self.folder / _ENGINE).exists()

    @cached_property
    def design(self) -> Design:
        """Design, for a folder made again from its plan, or compiled for its engine.

        Raises
        ------
        InputError
            If there is no design in the folder, or it is of another model.
        """
        if self.made is not None:
            return self.made
        assert self.folder is not None
        assert isinstance(self.model, Model)
        if self.is_engine:
            return self.model.compile(self.folder)
        from hwgen.plan import document

        path = self.folder / "plan.json"
        try:
            board = document.board_name(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            board = None
        if board is None:
            raise InputError(f"{self.folder} has no plan.json that hwgen wrote: build the design again")
        return self.model.plan(board, plan=path)


def check_options(
    device: str, options: Mapping[str, Any], *functions: Callable[..., Any], reserved: Collection[str] = ()
) -> None:
    """Refuse options of a device that none of the functions has that take them, or that the device gives itself.

    Parameters
    ----------
    reserved : collection of str
        Parameters of the functions that the device gives itself.

    Raises
    ------
    InputError
        If a function lacks an option, with the names of all.
    """
    known = {
        name: None
        for function in functions
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in reserved
        and (parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty)
    }
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(f"device {device} has no option {', '.join(unknown)}; it has {', '.join(known)}")


class SessionDevice(ABC):
    """Base class of devices, which compute the outputs of a model for frames.

    Parameters
    ----------
    hardware : SessionDesign
        Design that the device computes.
    **options
        Options of the device.
    """

    name: ClassVar[str]
    """Name of the device, as a session takes it."""

    def __init__(self, hardware: SessionDesign):
        self.hardware = hardware

    @abstractmethod
    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Compute the model's outputs for frames of each input, by its name.

        Returns
        -------
        ndarray, or dict of str to ndarray
            Outputs ``(n, ...)`` in the model's own type; a dict by name if there are several.
        """


class Simulation(SessionDevice):
    """Simulation of the hardware, in which every value is compared with the golden model.

    Parameters
    ----------
    hardware : SessionDesign
        Design that is simulated.
    **options
        Options of ``Design.simulate``, such as ``jobs``.

    Raises
    ------
    InputError
        If there is no such option.
    """

    name = "simulation"

    def __init__(self, hardware: SessionDesign, **options: Any):
        super().__init__(hardware)
        self.options = options
        self.result = None
        """Result of the last run, with its cycles."""
        # A folder that can't be simulated, or an option that does not exist, is refused when the session begins.
        check_options(self.name, options, hardware.design.simulate)

    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Simulate frames, and return the model's outputs.

        Raises
        ------
        CheckError
            If a value differs from the golden model, or the hardware stops.
        """
        result = self.result = self.hardware.design.simulate(dict(x), **self.options)
        if result.mismatches:
            raise CheckError(result.summary())
        return result.outputs


class DriverBoard(SessionDevice):
    """Base class of boards, whose driver is the file ``NAME_driver.py`` in the design's folder.

    Parameters
    ----------
    hardware : SessionDesign
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

    def __init__(self, hardware: SessionDesign, *, program: str | None = None, **options: Any):
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


class PynqBoard(DriverBoard):
    """Board with PYNQ, which loads the bitstream ``NAME.bit`` of the folder."""

    name = through = "pynq"


class LinuxBoard(DriverBoard):
    """Board with any Linux, on which the design is loaded: registers by UIO, memory by u-dma-buf."""

    name = through = "linux"


def driver_of(hardware: SessionDesign, kind: str = "driver") -> ModuleType:
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


class SerialBoard(SessionDevice):
    """Board behind a serial port, on which the bitstream of the design's folder is loaded.

    Parameters
    ----------
    hardware : SessionDesign
        Design in a folder.
    port : str
        Serial port, such as ``/dev/ttyUSB0``.
    **options
        Options of the driver's ``connect``, such as ``timeout``.

    Raises
    ------
    InputError
        If there is no driver in the folder.
    DeviceError
        If the port can't be opened, or the board does not answer.
    """

    name = "serial"

    def __init__(self, hardware: SessionDesign, *, port: str | None = None, **options: Any):
        super().__init__(hardware)
        if port is None:
            raise InputError("device serial needs a port, such as port='/dev/ttyUSB0'")
        self._module = driver_of(hardware, "serial")
        check_options(self.name, options, self._module.connect)
        try:
            self.driver = self._module.connect(port, **options)
            """Driver of the design."""
        except (self._module.SerialError, OSError) as error:
            raise DeviceError(f"{port}: {error}") from None

    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Compute frames on the board, and return the model's outputs.

        Raises
        ------
        DeviceError
            If bytes are lost or changed, or the board does not answer.
        """
        from hwgen.network import host

        model = self.hardware.model
        (prepared,) = host.input_frames(model.network, [*listed(model.prepare(dict(x)))])
        try:
            made = self.driver.run(prepared, integers=True)
        except (self._module.SerialError, OSError) as error:
            raise DeviceError(str(error)) from None
        return model.complete(host.output_maps(model.network, (made,)), dict(x))
