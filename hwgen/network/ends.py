"""The ends of a model around the hardware: what the host does in front of it and behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a tensor of the model lies on a feature map that holds the same values in another order.

    Parameters
    ----------
    map : tuple of int
        ``(C, H, W)``.
    parts : tuple of int
        Factors of these, in their order, into which a frame is split.
    order : tuple of int
        For each factor, as the tensor has them, which of ``parts`` it is.
    shape : tuple of int
        Of a frame of the tensor, without the batch.
    """

    map: tuple[int, int, int]
    parts: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def to_frames(self, maps: np.ndarray) -> np.ndarray:
        """The tensor ``(n, *shape)`` of maps ``(n, C, H, W)``."""
        parted = maps.reshape(len(maps), *self.parts)
        return parted.transpose(0, *(1 + place for place in self.order)).reshape(len(maps), *self.shape)

    def to_maps(self, frames: np.ndarray) -> np.ndarray:
        """Maps ``(n, C, H, W)`` of the tensor ``(n, *shape)``."""
        parted = frames.reshape(len(frames), *(self.parts[place] for place in self.order))
        places = [1 + self.order.index(place) for place in range(len(self.order))]
        return parted.transpose(0, *places).reshape(len(frames), *self.map)


@dataclass(frozen=True, kw_only=True)
class InputEnd:
    """One of the model's inputs.

    Parameters
    ----------
    name : str
        The model's name of it.
    shape : tuple of int
        A frame of it as the model has it, without the batch: ``(C, H, W)``, ``(features,)`` or another.
    layout : Layout, optional
        How it lies on the map that the hardware takes; ``None`` if in the map's order.
    limits : tuple of int, optional
        The least and the greatest integer that the hardware gets, where the model clips those of its input.
    taken : bool
        Whether it is one of the hardware's; otherwise only what is left for the host takes it, as it is given.
    """

    name: str
    shape: tuple[int, ...]
    layout: Layout | None = None
    limits: tuple[int, int] | None = None
    taken: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputEnd:
    """What stands behind the hardware up to one of the model's outputs.

    Parameters
    ----------
    name : str
        The model's name of its output.
    tensor : str
        And of the last integer tensor before it, at which the hardware ends.
    shape : tuple of int
        A frame of that tensor as the model has it, without the batch: ``(C, H, W)``, ``(features,)`` or another.
    layout : Layout, optional
        How it lies on the map; ``None`` if in the map's order.
    behind : tuple of str
        Operators on the host between the two, in order.
    tail : bytes, optional
        Their ONNX model, from the integer tensor to the output; ``None`` if there is nothing.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    layout: Layout | None = None
    behind: tuple[str, ...] = ()
    tail: bytes | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Remainder:
    """What is left to ONNX Runtime behind several tensors together, or where only a part of a model is built.

    Parameters
    ----------
    tensors : tuple of str
        Of the model: those at which the hardware ends, one for each of its outputs, in their order.
    model : bytes
        The ONNX model of what is left; empty where that is nothing.
    maps : tuple of str
        The names under which it takes these tensors as integers.
    integers : tuple of OutputEnd
        Its inputs that are the hardware's, by their tensors.
    integers_of : tuple of str
        Which of the model's inputs each of these is.
    given : tuple of str
        Those that are the model's inputs as they are, floats mostly.
    outputs : tuple of str
        The whole model's outputs; those that are among ``maps`` or ``integers`` are no outputs of the remainder.
    operators : tuple of str
        What it runs, in order.
    macs_covered : float
        Share of the whole model's multiply-accumulates that is built.
    whole : bool
        Whether that is no choice: what is left are operators of the host alone, as behind a last integer tensor.
    """

    tensors: tuple[str, ...]
    model: bytes
    maps: tuple[str, ...]
    integers: tuple[OutputEnd, ...] = ()
    integers_of: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    outputs: tuple[str, ...]
    operators: tuple[str, ...]
    macs_covered: float
    whole: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Host:
    """The host's part of a model that came as ONNX.

    Parameters
    ----------
    inputs : tuple of InputEnd
        One for each input of the model; those that are taken are the network's, in its order.
    outputs : tuple of OutputEnd
        One for each output of the model; where there is a remainder, for each tensor at which the hardware ends.
    before : tuple of str
        Operators on the host in front of the first integer tensor, in order.
    batch : int, optional
        Frames that the model takes at a time; ``None`` if any number.
    remainder : Remainder, optional
        What ONNX Runtime makes of all that the hardware gives, where it takes several tensors at once.
    optimised : bool
        Whether ONNX Runtime may compute in integers what is left between DequantizeLinear and QuantizeLinear.
    """

    inputs: tuple[InputEnd, ...]
    outputs: tuple[OutputEnd, ...]
    before: tuple[str, ...] = ()
    batch: int | None = None
    remainder: Remainder | None = None
    optimised: bool = True

    @property
    def taken(self) -> tuple[InputEnd, ...]:
        """The inputs that are the hardware's."""
        return tuple(end for end in self.inputs if end.taken)
