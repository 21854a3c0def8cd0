"""Sessions: a model's inference on simulated hardware or on a board, with the interface of ONNX Runtime."""

from __future__ import annotations

from hwgen.host.session import DEVICES, Session, TensorInfo

__all__ = ["DEVICES", "Session", "TensorInfo"]
