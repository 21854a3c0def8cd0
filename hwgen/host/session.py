"""Session: inference of a model on a simulation or a board (its device), with the interface of ONNX Runtime."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from hwgen.api.verbs import load
from hwgen.errors import CheckError, DeviceError, InputError
from hwgen.network.ends import TensorInfo

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
    """Name of the access to the hardware, such as ``pynq``: the argument ``through`` of the driver's ``connect``."""

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


class XdmaBoard(DriverBoard):
    """Device that is a PCI Express card in this PC, already configured with the design; uses the kernel module xdma."""

    name = through = "xdma"


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


DEVICES: dict[str, type[SessionDevice]] = {
    device.name: device for device in (Simulation, PynqBoard, LinuxBoard, XdmaBoard, SerialBoard)
}
"""Dictionary by name of the device classes of sessions. A new one is a new file with a `SessionDevice`, and an entry
here."""


class Session:
    """Inference of a model on its hardware, with the interface of ``onnxruntime.InferenceSession``.

    ONNX Runtime runs the operators before and after the hardware, whatever the device is.

    Parameters
    ----------
    design : Design, str or Path
        Design, or folder that ``Design.build`` wrote.
    device : str
        Device that computes: ``simulation``, or a board through ``pynq``, through ``linux`` without PYNQ, through
        ``xdma`` on PCI Express, or behind a ``serial`` port.
    model : Model, str or Path, optional
        Model of a design that is given as a folder: an ``.onnx`` file or the name of a built-in network.
    **options
        Options of the device: the options of ``Design.simulate``, or of the driver's ``connect``. For an engine on a
        board, ``program`` is the program's file.
    quantised : bool
        Whether integers are accepted for a float input as quantised already, and frames in every form that
        ``Model.golden`` accepts. Otherwise frames must have the types and shapes of `get_inputs`.

    Raises
    ------
    InputError
        If the device is unknown, a folder comes without its model, or there is no such design in it.
    DeviceError
        If the board does not have the hardware.
    """

    _is_quantised = False

    def __init__(
        self,
        design: Design | str | os.PathLike[str],
        device: str = "simulation",
        *,
        model: Model | str | os.PathLike[str] | None = None,
        quantised: bool = False,
        **options: Any,
    ):
        if device not in DEVICES:
            raise InputError(f"device must be {', '.join(DEVICES)}, not {device!r}")
        self.device = DEVICES[device](_hardware(design, model), **options)
        """Device that the session computes on, with its driver or the result of its last simulation."""
        self._model = self.device.hardware.model
        self._is_quantised = quantised

    @cached_property
    def _model_tensors(self) -> tuple[list[TensorInfo], list[TensorInfo]]:
        """Pair of lists of `TensorInfo`, of the model's inputs and outputs, each like ONNX Runtime's ``NodeArg``.

        A built-in network has no model: its frames are called ``n``.
        """
        from hwgen.network import quantise

        network = self._model.network
        if network.host is not None and network.host.input_infos:
            made = {info.name: info for info in network.host.output_infos}
            return list(network.host.input_infos), [made[name] for name in self._model.output_names]
        inputs = [TensorInfo(end.name, ["n", *end.shape], "tensor(float)") for end in quantise.given_ends(network)]
        outputs = zip(self._model.output_names, listed(self._model.golden(self._model.random_frames(1))), strict=True)
        return inputs, [
            TensorInfo(name, ["n", *values.shape[1:]], f"tensor({values.dtype})") for name, values in outputs
        ]

    def get_inputs(self) -> list[TensorInfo]:
        """Return a list of a `TensorInfo` (name, shape, type) per input of the model, in order."""
        return self._model_tensors[0]

    def get_outputs(self) -> list[TensorInfo]:
        """Return a list of a `TensorInfo` (name, shape, type) per output of the model, in order."""
        return self._model_tensors[1]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, np.ndarray], run_options: object = None
    ) -> list[np.ndarray]:
        """Return a list of arrays, as ONNX Runtime does: the model's outputs for a batch of any size.

        Parameters
        ----------
        output_names : sequence of str or None
            Names of the wanted outputs; all of them for None or none.
        input_feed : mapping of str to ndarray
            Frames ``(n, ...)`` of each input, by its name.
        run_options
            Not used; for programs that give ONNX Runtime's options.

        Returns
        -------
        list of ndarray
            Outputs in the order of the names, each in the shape that ONNX Runtime gives for the batch. An output whose
            number of rows depends on the frame's values, as after NonMaxSuppression, is the frame's array if there is
            one frame. For several frames it is an array of ``n`` arrays.

        Raises
        ------
        InputError
            If there is no such output or input, or frames do not fit.
        CheckError
            If the simulated hardware computes another value than the golden model.
        DeviceError
            If the board fails. The session can be used again.
        """
        names = self._names(output_names)
        return self._as_by_runtime(names, self._outputs(names, input_feed))

    def _as_by_runtime(self, names: Sequence[str], outputs: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return, as a list, one batch's outputs as arrays in the shapes that ONNX Runtime returns for the batch."""
        from hwgen.network import host

        network = self._model.network
        return [host.as_by_runtime(network, name, values) for name, values in zip(names, outputs, strict=True)]

    def _outputs(self, names: Sequence[str], input_feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return a list of the model's outputs for a batch: arrays ``(n, ...)``, or of ``n`` arrays if sizes vary."""
        from hwgen.network import quantise

        if not isinstance(input_feed, Mapping):
            inputs = ", ".join(end.name for end in self.get_inputs())
            raise InputError(
                f"input_feed must be a dict of arrays by input ({inputs}), not {type(input_feed).__name__}"
            )
        feed = self._without_unused(input_feed)
        if not self._is_quantised:
            quantise.check_as_declared(self._model.network, feed, "Session(.., quantised=True)")
        outputs = dict(zip(self._model.output_names, listed(self.device.compute(feed)), strict=True))
        return [outputs[name] for name in names]

    def _without_unused(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a feed's frames as a dict by input name, less the inputs that no output depends on."""
        from hwgen.network import quantise

        unused = {end.name for end in self.get_inputs()} - {
            end.name for end in quantise.given_ends(self._model.network)
        }
        return {name: values for name, values in feed.items() if name not in unused}

    def _names(self, output_names: Sequence[str] | None) -> list[str]:
        """Return the names of the requested outputs as a list (all by default); refuse unknown ones."""
        known = self._model.output_names
        if output_names is None:
            return list(known)
        if isinstance(output_names, str) or not isinstance(output_names, Iterable):
            raise InputError(f"output_names must be a list of names, not {output_names!r}")
        names = list(output_names) or list(known)
        if missing := [name for name in names if name not in known]:
            raise InputError(f"there is no output {', '.join(map(str, missing))}: the model has {', '.join(known)}")
        return names

    def stream(
        self, output_names: Sequence[str] | None, feeds: Iterable[Mapping[str, np.ndarray]], *, frames: int = 256
    ) -> Iterator[list[np.ndarray]]:
        """Yield a list of output arrays per feed (arrays by input name), for any number of feeds in bounded memory.

        Feeds of the same types are collected until they have ``frames`` frames, which are computed together.

        Parameters
        ----------
        output_names : sequence of str or None
            As for `run`.
        feeds : iterable of mapping
            Feeds as for `run`, each with one frame or several.
        frames : int
            Number of frames that are computed together, at least.

        Yields
        ------
        list of ndarray
            Outputs of the next feed, as `run` returns them.

        Raises
        ------
        InputError
            If ``frames`` is not a positive integer, or ``feeds`` not an iterable, and as for `run`.
        CheckError, DeviceError
            As for `run`.
        """
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
            raise InputError(f"frames must be a positive integer, not {frames!r}")
        if not isinstance(feeds, Iterable):
            raise InputError(f"feeds must be an iterable of dicts, not {type(feeds).__name__}")
        output_names = self._names(output_names)
        host = self._model.network.host
        batch = (host and host.batch) or 1
        waiting: list[Mapping[str, np.ndarray]] = []
        types, count = None, 0
        for feed in feeds:
            # A frame's position in a fixed batch can matter, so that a feed begins with a new batch.
            if (feed_types := _types(feed)) != types or count % batch:
                yield from self._compute_batch(output_names, waiting)
                waiting, types, count = [], feed_types, 0
            waiting.append(feed)
            count += 0 if types is None else _frame_count(feed)
            if types is None or count >= frames:
                yield from self._compute_batch(output_names, waiting)
                waiting, count = [], 0
        yield from self._compute_batch(output_names, waiting)

    def _compute_batch(
        self, output_names: Sequence[str], feeds: Sequence[Mapping[str, np.ndarray]]
    ) -> Iterator[list[np.ndarray]]:
        """Yield a list of output arrays for each feed (arrays by input name), computed together as one batch."""
        if len(feeds) < 2:
            yield from (self.run(output_names, feed) for feed in feeds)
            return
        outputs = self._outputs(
            output_names, {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
        )
        begin = 0
        for feed in feeds:
            end = begin + _frame_count(feed)
            yield self._as_by_runtime(output_names, [values[begin:end] for values in outputs])
            begin = end


def _hardware(design: Design | str | os.PathLike[str], model: Model | str | os.PathLike[str] | None) -> SessionDesign:
    """Return the `SessionDesign` (the hardware) that a session's parameters describe."""
    if isinstance(design, Design):
        if model is not None:
            raise InputError("a design has its model already: give model only with a folder")
        return SessionDesign(design.model, made=design)
    if not isinstance(design, str | os.PathLike):
        raise InputError(f"design must be a Design or a folder, not {type(design).__name__}")
    folder = Path(design)
    if not folder.is_dir():
        raise InputError(f"{folder} is not the folder of a design: give one that Design.build wrote, or a Design")
    if model is None:
        raise InputError(f"the folder {folder} needs its model: Session({str(folder)!r}, model='NAME.onnx')")
    return SessionDesign(model if isinstance(model, Model) else load(os.fspath(model)), folder=folder)


def _types(feed: Mapping[str, np.ndarray]) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]] | None:
    """Return a dict of a feed's inputs, as pairs (type, shape of a frame); ``None`` if the feed is not valid."""
    if not isinstance(feed, Mapping) or not feed:
        return None
    if not all(isinstance(values, np.ndarray) and values.ndim for values in feed.values()):
        return None
    if len({len(values) for values in feed.values()}) > 1 or any(map(np.ma.isMaskedArray, feed.values())):
        return None
    return {name: (values.dtype, values.shape[1:]) for name, values in feed.items()}


def _frame_count(feed: Mapping[str, np.ndarray]) -> int:
    """Return the number of frames in a valid feed, a mapping of arrays by input name."""
    return len(next(iter(feed.values())))
