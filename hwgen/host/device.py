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
    """Source of the design that a session computes on: a `Design` object, or a folder that ``Design.build`` wrote.

    Parameters
    ----------
    model : GoldenModel
        Model that the design computes. The host runs its operators before and after the hardware.
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
        """Whether the design's folder is an engine's, which needs a program of the model."""
        return self.folder is not None and (self.folder / _ENGINE).exists()

    @cached_property
    def design(self) -> Design:
        """`Design` that the session computes on: given, made again from the folder's plan, or compiled for its engine.

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
    """Raise InputError for device options that no receiving function has as a parameter, or that the device sets.

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
    """Base class of a session's devices (simulator or board), which compute a model's outputs for frames.

    Parameters
    ----------
    hardware : SessionDesign
        Design that the device computes.
    **options
        Options of the device.
    """

    name: ClassVar[str]
    """Name of the device, as the parameter ``device`` of a session."""

    def __init__(self, hardware: SessionDesign):
        self.hardware = hardware

    @abstractmethod
    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Return the model's outputs (array, or arrays by name) that the device computes from arrays by input name.

        Returns
        -------
        ndarray, or dict of str to ndarray
            Outputs ``(n, ...)`` in the model's own type; a dict by name if there are several.
        """


class Simulation(SessionDevice):
    """Device that simulates the hardware and compares every value with the golden model.

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
        """Result of the last simulation, with its measured and predicted cycles."""
        # A folder that can't be simulated, or an option that does not exist, is refused when the session begins.
        check_options(self.name, options, hardware.design.simulate)

    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Return the model's outputs (array, or arrays by name) from a simulation of the hardware on the frames.

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
    """Base class of devices that are boards, driven by the file ``NAME_driver.py`` in the design's folder.

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
    """Access to the hardware, the argument ``through`` of the driver's ``connect``: ``pynq`` or ``linux``."""

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
        """Return the model's outputs (array, or arrays by name), computed by the board from frames by input name.

        Raises
        ------
        DeviceError
            If the hardware fails. Frames in it are dropped.
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
    """Device that is a board with PYNQ; the driver loads the bitstream ``NAME.bit`` from the design's folder."""

    name = through = "pynq"


class LinuxBoard(DriverBoard):
    """Device that is a board with any Linux, already configured with the design; uses UIO and u-dma-buf."""

    name = through = "linux"


def driver_of(hardware: SessionDesign, kind: str = "driver") -> ModuleType:
    """Return the imported driver module ``NAME_driver.py`` or ``NAME_serial.py`` in a design's folder."""
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
    """Device that is a board driven over a serial port; the design's bitstream must already be on it.

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
        """Return the model's outputs (array, or arrays by name), computed by the board over the serial port.

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
