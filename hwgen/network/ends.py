"""Descriptions of the operators of an ONNX model that the host computes, before and after the hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Permutation from an ONNX tensor's values to the hardware's feature map ``(C, H, W)``, and the inverse.

    A tensor has a layout if the map stores its values in another order.

    Parameters
    ----------
    map : tuple of int
        Shape of the map, ``(C, H, W)``.
    factors : tuple of int
        Factors of the map's dimensions, in order. A frame is reshaped to these dimensions.
    order : tuple of int
        Permutation of ``factors`` in the tensor: index into ``factors`` of each of the tensor's factors.
    shape : tuple of int
        Shape of a frame of the tensor, without the batch.
    """

    map: tuple[int, int, int]
    factors: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def to_frames(self, maps: np.ndarray) -> np.ndarray:
        """Return the hardware's feature maps ``(n, C, H, W)``, reordered, as the ONNX tensor ``(n, *shape)``."""
        split = maps.reshape(len(maps), *self.factors)
        return split.transpose(0, *(1 + factor for factor in self.order)).reshape(len(maps), *self.shape)

    def to_maps(self, frames: np.ndarray) -> np.ndarray:
        """Return an ONNX tensor ``(n, *shape)``, reordered, as the hardware's feature maps ``(n, C, H, W)``."""
        split = frames.reshape(len(frames), *(self.factors[factor] for factor in self.order))
        axes = [1 + self.order.index(factor) for factor in range(len(self.order))]
        return split.transpose(0, *axes).reshape(len(frames), *self.map)


@dataclass(frozen=True)
class Frames:
    """Position of a batch's frames in an ONNX tensor: index of the dimension that holds them, and its other factors.

    Parameters
    ----------
    axis : int
        Dimension that holds the frames.
    before, behind : int
        Number of positions of the same dimension outside and inside the frames: the dimension has ``before * N *
        behind`` of them for ``N`` frames.
    vanishes : bool
        Whether a batch of one frame has no such dimension, because a Squeeze without axes dropped it.
    """

    axis: int
    before: int = 1
    behind: int = 1
    vanishes: bool = False

    @property
    def are_rows(self) -> bool:
        """Whether each row of the tensor, along its first dimension, is one frame."""
        return replace(self, vanishes=False) == Frames(0)

    def size(self, count: int) -> int:
        """Return the size of the tensor dimension that holds the frames, for a batch of ``count`` frames."""
        return self.before * count * self.behind

    def batch_of(self, tensors: Sequence[np.ndarray]) -> np.ndarray:
        """Return the tensor of a batch as an array, joined from tensors of single frames, each computed by itself."""
        if len(tensors) == 1:
            return tensors[0]
        if self.vanishes:
            return np.stack(tensors, self.axis)
        shape = tensors[0].shape
        before, behind = shape[: self.axis], shape[self.axis + 1 :]
        split = [part.reshape(*before, self.before, self.behind, *behind) for part in tensors]
        return np.stack(split, self.axis + 1).reshape(*before, self.size(len(tensors)), *behind)


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and type of an input or output of a model, like ONNX Runtime's ``NodeArg``.

    Parameters
    ----------
    name : str
        Name in the model.
    shape : list of int, str or None
        Shape, as ONNX Runtime gives it: a symbolic size is its name, and an unknown one ``None``.
    type : str
        ONNX type, such as ``tensor(float)``.
    """

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True, kw_only=True)
class InputEnd:
    """Input of an ONNX model: tensor name, shape and layout on the hardware's input map, if hardware reads it.

    Parameters
    ----------
    name : str
        Name of the input in the model.
    shape : tuple of int
        Shape of a frame in the model, without the batch: ``(C, H, W)``, ``(features,)`` or another.
    layout : Layout, optional
        Layout on the map of the hardware; ``None`` if the values have the map's order.
    limits : tuple of int, optional
        Minimum and maximum integer that the hardware gets, if the model clips its input.
    taken : bool
        Whether the hardware reads this input. Otherwise only the host reads it, unchanged.
    dtype : str
        Name of the NumPy type of the input in the model.
    """

    name: str
    shape: tuple[int, ...]
    layout: Layout | None = None
    limits: tuple[int, int] | None = None
    taken: bool = True
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputEnd:
    """Output of an ONNX model, with the host's operators from the hardware's last integer tensor to this output.

    Parameters
    ----------
    name : str
        Name of the output in the model.
    tensor : str
        Name of the last integer tensor before the output, the hardware's output.
    shape : tuple of int
        Shape of a frame of that tensor in the model, without the batch: ``(C, H, W)``, ``(features,)`` or another.
    layout : Layout, optional
        Layout on the map of the hardware; ``None`` if the values have the map's order.
    behind : tuple of str
        Operators on the host from the tensor to the output, in order.
    tail : bytes, optional
        ONNX model of these operators; ``None`` if there are none.
    rows : bool
        Whether each row of the output is one frame. Otherwise these operators run on one frame at a time.
    ragged : bool
        Whether the number of the output's rows depends on the frame's values, as after NonMaxSuppression.
    frames : Frames, optional
        Position of a batch's frames in the output; ``None`` if it is not known.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    layout: Layout | None = None
    behind: tuple[str, ...] = ()
    tail: bytes | None = None
    rows: bool = True
    ragged: bool = False
    frames: Frames | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Head:
    """Part of an ONNX model before its first QuantizeLinear nodes, which ONNX Runtime runs on the host.

    Parameters
    ----------
    inputs : tuple of InputEnd
        Inputs of the model.
    model : bytes
        ONNX model of the head. Its outputs are the inputs of the hardware, in order.
    operators : tuple of str
        Operators of the head, in order.
    """

    inputs: tuple[InputEnd, ...]
    model: bytes
    operators: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Remainder:
    """Part of an ONNX model after the hardware's outputs, which ONNX Runtime runs on the host as one model.

    It reads several tensors of the hardware, or follows a part of the model.

    Parameters
    ----------
    tensors : tuple of str
        Names of the model's tensors that are the hardware's outputs, in order.
    model : bytes
        ONNX model of the remainder; empty if there are no operators.
    maps : tuple of str
        Names of the remainder's inputs for these tensors, as integers.
    integers : tuple of OutputEnd
        Inputs of the remainder that are also inputs of the hardware, as integers.
    integers_of : tuple of str
        Name of the model's input for each of ``integers``.
    raw_inputs : tuple of str
        Names of the model's inputs that the remainder reads unchanged, mostly floats.
    outputs : tuple of str
        Names of all outputs of the model. Outputs among ``maps`` or ``integers`` are not outputs of ``model``.
    operators : tuple of str
        Operators of the remainder, in order.
    macs_covered : float
        Share of the model's multiply-accumulates that the hardware computes.
    whole : bool
        Whether the hardware computes all that it can: the remainder has operators of the host only.
    rows : bool
        Whether each row of each output is one frame. Otherwise the remainder runs on one frame at a time.
    ragged : frozenset of str
        Names of the outputs whose number of rows depends on the frame's values, as after NonMaxSuppression.
    frames : dict of str to Frames
        Position of a batch's frames in each output, by name, where it is known.
    """

    tensors: tuple[str, ...]
    model: bytes
    maps: tuple[str, ...]
    integers: tuple[OutputEnd, ...] = ()
    integers_of: tuple[str, ...] = ()
    raw_inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...]
    operators: tuple[str, ...]
    macs_covered: float
    whole: bool = False
    rows: bool = True
    ragged: frozenset[str] = frozenset()
    frames: Mapping[str, Frames] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Host:
    """Part of an ONNX model that the host computes: inputs, outputs, and operators before and after the hardware.

    Parameters
    ----------
    inputs : tuple of InputEnd
        Inputs of the model; with a head, the head's outputs. Those with ``taken`` are the network's inputs, in order.
    outputs : tuple of OutputEnd
        Outputs of the model; with a remainder, one entry for each output of the hardware.
    before : tuple of str
        Operators on the host before the first integer tensor, in order, including the head's.
    head : Head, optional
        Operators on the host before the first quantisers, except operators that only change dimensions.
    batch : int, optional
        Number of frames that the model takes at a time; ``None`` for any number.
    remainder : Remainder, optional
        Operators on the host that read several tensors of the hardware at once.
    optimised : bool
        Whether ONNX Runtime can compute in integers between DequantizeLinear and QuantizeLinear on the host.
    input_infos, output_infos : tuple of TensorInfo
        Inputs and outputs of the ONNX model, as a session of ONNX Runtime describes them; empty for a network without
        a model.
    """

    inputs: tuple[InputEnd, ...]
    outputs: tuple[OutputEnd, ...]
    before: tuple[str, ...] = ()
    head: Head | None = None
    batch: int | None = None
    remainder: Remainder | None = None
    optimised: bool = True
    input_infos: tuple[TensorInfo, ...] = ()
    output_infos: tuple[TensorInfo, ...] = ()

    @property
    def taken(self) -> tuple[InputEnd, ...]:
        """Tuple of the ONNX model's inputs (`InputEnd`) that the hardware reads, in order."""
        return tuple(end for end in self.inputs if end.taken)
