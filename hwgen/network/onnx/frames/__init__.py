"""Frames of a batch in the tensors of a model: the axis that holds them, and the nodes that mix them."""

from __future__ import annotations

from hwgen.network.onnx.frames.operands import Frames, Special
from hwgen.network.onnx.frames.search import FrameSearch, declares_rows, is_after_ragged

__all__ = ["FrameSearch", "Frames", "Special", "declares_rows", "is_after_ragged"]
