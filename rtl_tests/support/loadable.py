"""A small model whose weights are loaded at run time, what ONNX Runtime gives for it, and the Verilog of a design."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def model(
    folder: Path,
    seed: int,
    *,
    kernel: int = 3,
    zero: int = 7,
    x_scale: float = 0.02,
    deep: int = 4,
    most: tuple[int, int] = (127, 127),
) -> Path:
    """Two QLinearConvs, a max pool and a QLinearGlobalAveragePool, with random weights, biases and scales.

    ``most``: how large weights of either QLinearConv are at most.
    """
    rng = np.random.default_rng(seed)
    nodes, constants = [], []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def scale(name: str, most: float) -> str:
        return constant(name, rng.uniform(most / 2, most, ()).astype(np.float32))

    before, channels = "x", 2
    scales = [constant("x_scale", np.float32(x_scale)), constant("x_zero", np.uint8(zero))]
    for (name, outputs, size), limit in zip((("first", deep, kernel), ("second", 3, 1)), most, strict=True):
        each = rng.uniform(0.001, 0.01, outputs).astype(np.float32)
        out = [scale(f"{name}_scale", 0.1), constant(f"{name}_zero", np.uint8(3))]
        nodes.append(
            helper.make_node(
                "QLinearConv",
                [
                    *(before, *scales),
                    constant(
                        f"{name}_w", rng.integers(-limit, limit + 1, (outputs, channels, size, size)).astype(np.int8)
                    ),
                    constant(f"{name}_w_scale", each),
                    constant(f"{name}_w_zero", np.zeros(outputs, np.int8)),
                    *out,
                    constant(f"{name}_bias", rng.integers(-2000, 2000, outputs).astype(np.int32)),
                ],
                [name],
                name=name,
                pads=[size // 2] * 4,
            )
        )
        before, channels, scales = name, outputs, out
    nodes.append(helper.make_node("MaxPool", [before], ["pool"], name="pool", kernel_shape=[2, 2], strides=[2, 2]))
    mean = [scale("mean_scale", 0.1), constant("mean_zero", np.uint8(seed % 5))]
    nodes.append(
        helper.make_node(
            "QLinearGlobalAveragePool", ["pool", *scales, *mean], ["y"], name="mean", domain="com.microsoft"
        )
    )
    graph = helper.make_graph(
        nodes,
        "twoconv",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 2, 6, 4))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, (1, 3, 1, 1))],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = folder / f"twoconv{seed}" / "twoconv.onnx"
    path.parent.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def runtime(path: Path, frames: np.ndarray) -> np.ndarray:
    """What ONNX Runtime gives."""
    session: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": frame[None]})[0] for frame in frames])


def verilog_of(design: Path) -> dict[str, bytes]:
    """What a project takes in."""
    names = [path for path in design.iterdir() if path.suffix in (".v", ".mem") and not path.name.endswith("_tb.v")]
    return {path.name: path.read_bytes() for path in names}
