"""Sessions: inference of a model on simulated hardware or on a board, with ONNX Runtime's session interface."""

from __future__ import annotations

from hwgen.host.session import DEVICES, Session, TensorInfo

__all__ = ["DEVICES", "Session", "TensorInfo"]
