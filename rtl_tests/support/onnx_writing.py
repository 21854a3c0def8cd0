"""Models of ONNX from nodes, and frames for ONNX Runtime's quantiser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader

Ends = Mapping[str, tuple[int, Sequence[int | str | None] | None]]
"""Types and shapes of inputs or outputs, by name."""


def as_model(
    nodes: Iterable[onnx.NodeProto],
    inputs: Ends,
    outputs: Ends,
    constants: Mapping[str, Any] | Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 17,
    domains: Iterable[str] = (),
    ir_version: int = 9,
) -> onnx.ModelProto:
    """Return a model of nodes, with constants as arrays by name or as tensors."""
    if isinstance(constants, Mapping):
        constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    ends = (
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in each.items()]
        for each in (inputs, outputs)
    )
    graph = helper.make_graph(list(nodes), "network", *ends, constants)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


class Frames(CalibrationDataReader):
    """Frames of an input for ONNX Runtime's quantiser, each in a batch of its own."""

    def __init__(self, frames: np.ndarray, name: str = "x") -> None:
        self._feeds = iter([{name: frame[None]} for frame in frames])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)
