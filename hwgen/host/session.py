"""Session: inference of a model on simulated hardware or on a board, with the interface of ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hwgen.api.arrays import listed
from hwgen.api.design import Design
from hwgen.api.model import Model
from hwgen.api.verbs import load
from hwgen.errors import InputError
from hwgen.host.board import LinuxBoard, PynqBoard
from hwgen.host.device import Hardware, SessionDevice
from hwgen.host.serial import SerialBoard
from hwgen.host.simulation import Simulation

__all__ = ["DEVICES", "Session", "TensorInfo"]

DEVICES: dict[str, type[SessionDevice]] = {
    device.name: device for device in (Simulation, PynqBoard, LinuxBoard, SerialBoard)
}
"""Devices by name. A new one is a new file with a `SessionDevice`, and an entry here."""

_TYPES = {"float32": "float", "float64": "double", "float16": "float16", "bool": "bool"}
"""Names of ONNX types that differ from NumPy's, by NumPy's."""


@dataclass(frozen=True)
class TensorInfo:
    """Description of an input or output of a model, like ONNX Runtime's ``NodeArg``.

    Parameters
    ----------
    name : str
        Name in the model.
    shape : list of int or str
        Shape, in which ``"n"`` is the number of frames, and ``"rows"`` a number that depends on the frame's values.
    type : str
        ONNX type, such as ``tensor(float)``.
    """

    name: str
    shape: list[int | str]
    type: str


class Session:
    """Inference of a model on its hardware, with the interface of ``onnxruntime.InferenceSession``.

    ONNX Runtime runs the operators in front of and behind the hardware, whatever the device is.

    Parameters
    ----------
    design : Design, str or Path
        Design, or folder that ``Design.build`` wrote.
    device : str
        Device that computes: ``simulation``, or a board through ``pynq``, through ``linux`` without PYNQ, or behind a
        ``serial`` port.
    model : Model, str or Path, optional
        Model of a design that is given as a folder: an ``.onnx`` file or the name of a built-in network.
    **options
        Options of the device: those of ``Design.simulate``, or of the driver's ``connect``. For an engine on a board,
        ``program`` is the program's file.

    Raises
    ------
    InputError
        If the device is unknown, a folder comes without its model, or there is no such design in it.
    DeviceError
        If the board does not have the hardware.
    """

    def __init__(
        self,
        design: Design | str | os.PathLike[str],
        device: str = "simulation",
        *,
        model: Model | str | os.PathLike[str] | None = None,
        **options: Any,
    ):
        if device not in DEVICES:
            raise InputError(f"device must be {', '.join(DEVICES)}, not {device!r}")
        self.device = DEVICES[device](_hardware(design, model), **options)
        """Device, with its driver or the result of its last simulation."""
        self._model = self.device.hardware.model

    @cached_property
    def _ends(self) -> tuple[list[TensorInfo], list[TensorInfo]]:
        """Inputs and outputs of the model. Types and shapes of outputs are those of the golden model's."""
        from hwgen.network import quantise

        inputs = [
            TensorInfo(end.name, ["n", *end.shape], _type(np.dtype(end.dtype)))
            for end in quantise.given_ends(self._model.network)
        ]
        outputs = zip(self._model.output_names, listed(self._model.golden(self._model.random_frames(1))), strict=True)
        return inputs, [self._output_info(name, values) for name, values in outputs]

    def _output_info(self, name: str, values: np.ndarray) -> TensorInfo:
        """Return the description of an output, from its values for one frame."""
        if name in self._model.ragged_outputs:
            return TensorInfo(name, ["rows", *values[0].shape[1:]], _type(values[0].dtype))
        return TensorInfo(name, ["n", *values.shape[1:]], _type(values.dtype))

    def get_inputs(self) -> list[TensorInfo]:
        """Return the inputs of the model, in its order. An input that the hardware reads takes integers as well."""
        return self._ends[0]

    def get_outputs(self) -> list[TensorInfo]:
        """Return the outputs of the model, in its order."""
        return self._ends[1]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Compute outputs of the model for a batch of any size.

        Parameters
        ----------
        output_names : sequence of str or None
            Names of the wanted outputs; all of them for None.
        input_feed : mapping of str to ndarray
            Frames ``(n, ...)`` of each input, by its name.

        Returns
        -------
        list of ndarray
            Outputs ``(n, ...)``, in the order of the names. An output whose number of rows depends on the frame's
            values, as behind NonMaxSuppression, is the frame's array if there is one frame. For several frames it is an
            array of ``n`` arrays.

        Raises
        ------
        InputError
            If there is no such output or input, or frames do not fit.
        CheckError
            If the simulated hardware computes another value than the golden model.
        DeviceError
            If the board fails. The session can be used again.
        """
        return [self._of_feed(values) for values in self._outputs(output_names, input_feed)]

    @staticmethod
    def _of_feed(values: np.ndarray) -> np.ndarray:
        """Return an output as ONNX Runtime does: one frame's array itself, where frames have arrays of their own."""
        return values[0] if values.dtype == object and len(values) == 1 else values

    def _outputs(self, output_names: Sequence[str] | None, input_feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Compute outputs ``(n, ...)`` of the model; an output may be an array of ``n`` arrays."""
        known, names = self._model.output_names, self._names(output_names)
        if not isinstance(input_feed, Mapping):
            inputs = ", ".join(end.name for end in self.get_inputs())
            raise InputError(
                f"input_feed must be a dict of arrays by input ({inputs}), not {type(input_feed).__name__}"
            )
        outputs = dict(zip(known, listed(self.device.compute(input_feed)), strict=True))
        return [outputs[name] for name in names]

    def _names(self, output_names: Sequence[str] | None) -> list[str]:
        """Return the names of the wanted outputs as a list."""
        known = self._model.output_names
        if output_names is None:
            return list(known)
        if isinstance(output_names, str) or not isinstance(output_names, Iterable):
            raise InputError(f"output_names must be a list of names, not {output_names!r}")
        names = list(output_names)
        if missing := [name for name in names if name not in known]:
            raise InputError(f"there is no output {', '.join(map(str, missing))}: the model has {', '.join(known)}")
        return names

    def stream(
        self, output_names: Sequence[str] | None, feeds: Iterable[Mapping[str, np.ndarray]], *, frames: int = 256
    ) -> Iterator[list[np.ndarray]]:
        """Compute outputs for a stream of feeds of any length, in order, with bounded memory.

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
            If ``frames`` is no positive integer, or ``feeds`` no iterable, and as for `run`.
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
                yield from self._together(output_names, waiting)
                waiting, types, count = [], feed_types, 0
            waiting.append(feed)
            count += 0 if types is None else _frame_count(feed)
            if types is None or count >= frames:
                yield from self._together(output_names, waiting)
                waiting, count = [], 0
        yield from self._together(output_names, waiting)

    def _together(
        self, output_names: Sequence[str] | None, feeds: Sequence[Mapping[str, np.ndarray]]
    ) -> Iterator[list[np.ndarray]]:
        """Compute several feeds of the same types as one batch, and yield the outputs of each."""
        if len(feeds) < 2:
            yield from (self.run(output_names, feed) for feed in feeds)
            return
        outputs = self._outputs(
            output_names, {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
        )
        begin = 0
        for feed in feeds:
            end = begin + _frame_count(feed)
            yield [self._of_feed(values[begin:end]) for values in outputs]
            begin = end


def _hardware(design: Design | str | os.PathLike[str], model: Model | str | os.PathLike[str] | None) -> Hardware:
    """Return the hardware of a session from its parameters."""
    if isinstance(design, Design):
        if model is not None:
            raise InputError("a design has its model already: give model only with a folder")
        return Hardware(design.model, made=design)
    if not isinstance(design, str | os.PathLike):
        raise InputError(f"design must be a Design or a folder, not {type(design).__name__}")
    folder = Path(design)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder of a design: give one that Design.build wrote, or a Design")
    if model is None:
        raise InputError(f"the folder {folder} needs its model: Session({str(folder)!r}, model='NAME.onnx')")
    return Hardware(model if isinstance(model, Model) else load(os.fspath(model)), folder=folder)


def _types(feed: Mapping[str, np.ndarray]) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]] | None:
    """Return the type and the shape of a frame of each input, by its name; ``None`` if the feed is not valid."""
    if not isinstance(feed, Mapping) or not feed:
        return None
    if not all(isinstance(values, np.ndarray) and values.ndim for values in feed.values()):
        return None
    if len({len(values) for values in feed.values()}) > 1 or any(map(np.ma.isMaskedArray, feed.values())):
        return None
    return {name: (values.dtype, values.shape[1:]) for name, values in feed.items()}


def _frame_count(feed: Mapping[str, np.ndarray]) -> int:
    """Return the number of frames of a valid feed."""
    return len(next(iter(feed.values())))


def _type(dtype: np.dtype[Any]) -> str:
    """Return the name of a NumPy type in ONNX Runtime's notation."""
    return f"tensor({_TYPES.get(dtype.name, dtype.name)})"
