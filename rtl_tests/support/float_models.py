"""Quantises float models that are written in ONNX's own text, as ONNX Runtime quantises them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser
from onnxruntime.quantization import CalibrationDataReader, quantize_static


class _Frames(CalibrationDataReader):
    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(0)
        self._feeds = iter([{"x": random.normal(size=shape).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def quantised(text: str, shape: tuple[int, ...], folder: Path, **weights: tuple[int, ...] | np.ndarray) -> str:
    """Write a float model from ONNX's text, quantise it, and return the path of its file."""
    random, graph = np.random.default_rng(1), parser.parse_graph(text)
    for name, weight in weights.items():
        values = weight if isinstance(weight, np.ndarray) else random.normal(0, 0.1, weight).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "float.onnx"
    )
    quantize_static(folder / "float.onnx", folder / "model.onnx", _Frames(shape))
    return str(folder / "model.onnx")


VIT = """
vit (float[1, 3, 16, 16] x) => (float[1, 10] y) {
    patches = Conv <kernel_shape = [4, 4], strides = [4, 4]> (x, patch)
    rows = Reshape (patches, to_rows)
    tokens = Transpose <perm = [0, 2, 1]> (rows)
    q0 = MatMul (tokens, wq)
    k0 = MatMul (tokens, wk)
    v0 = MatMul (tokens, wv)
    q1 = Reshape (q0, to_heads)
    k1 = Reshape (k0, to_heads)
    v1 = Reshape (v0, to_heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    scores = MatMul (q, k)
    weights = Softmax <axis = 3> (scores)
    mixed = MatMul (weights, v)
    joined = Transpose <perm = [0, 2, 1, 3]> (mixed)
    flat = Reshape (joined, to_tokens)
    out = MatMul (flat, wo)
    skip = Add (out, tokens)
    pooled = ReduceMean <axes = [1], keepdims = 0> (skip)
    y = Gemm (pooled, head)
}"""
VIT_WEIGHTS = {
    "patch": (24, 3, 4, 4),
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (24, 24)),
    "head": (24, 10),
    "to_rows": np.array([1, 24, 16]),
    "to_heads": np.array([1, 16, 3, 8]),
    "to_tokens": np.array([1, 16, 24]),
}
