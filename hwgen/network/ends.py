"""The ends of a model around the hardware: what the host does in front of it and behind it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, eq=False)
class Host:
    """The host's part of a model that came as ONNX.

    Parameters
    ----------
    input, output : str
        The model's names of its input, and of the last integer tensor, at which the hardware ends.
    input_shape, output_shape : tuple of int
        A frame of these two as the model has it, without the batch: ``(C, H, W)`` or ``(features,)``.
    before, behind : tuple of str
        Operators on the host, in order: in front of the first integer tensor, and behind the last.
    batch : int, optional
        Frames that the model takes at a time; ``None`` if any number.
    tail : bytes, optional
        The ONNX model of ``behind``, from the last integer tensor to the model's output; ``None`` if there is nothing.
    """

    input: str
    output: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    batch: int | None = None
    tail: bytes | None = None
