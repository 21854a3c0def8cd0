"""The ends of a model around the hardware: what the host does in front of it and behind it."""

from __future__ import annotations

from dataclasses import dataclass


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
        A frame of that tensor as the model has it, without the batch: ``(C, H, W)`` or ``(features,)``.
    behind : tuple of str
        Operators on the host between the two, in order.
    tail : bytes, optional
        Their ONNX model, from the integer tensor to the output; ``None`` if there is nothing.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    behind: tuple[str, ...] = ()
    tail: bytes | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Host:
    """The host's part of a model that came as ONNX.

    Parameters
    ----------
    input : str
        The model's name of its input.
    input_shape : tuple of int
        A frame of it as the model has it, without the batch: ``(C, H, W)`` or ``(features,)``.
    outputs : tuple of OutputEnd
        One for each output of the model.
    before : tuple of str
        Operators on the host in front of the first integer tensor, in order.
    batch : int, optional
        Frames that the model takes at a time; ``None`` if any number.
    """

    input: str
    input_shape: tuple[int, ...]
    outputs: tuple[OutputEnd, ...]
    before: tuple[str, ...] = ()
    batch: int | None = None
