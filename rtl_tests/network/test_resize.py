"""Resize and Upsample of quantised models: what is taken equals ONNX Runtime, and what is refused is no repetition."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import by_hwgen
from referees import integer_session

from hwgen.errors import ModelError

WAYS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SHAPE = (2, 3, 4)


def resizing(
    operator: str, *inputs: np.ndarray | None, opset: int = 19, shape=SHAPE, after: float = 0.5, **attributes
) -> onnx.ModelProto:
    """A model of integers around one operator; ``inputs`` are its constants, ``None`` where it has none."""
    constants = {"s": np.float32(0.5), "z": np.uint8(3), "t": np.float32(after)}
    names = ["real"]
    for number, value in enumerate(inputs):
        names.append("" if value is None else f"constant{number}")
        if value is not None:
            constants[names[-1]] = value
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node(operator, names, ["wide"], name="wider", **attributes),
        helper.make_node("QuantizeLinear", ["wide", "t", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "resizing",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, *shape))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, (1, "c", "h", "w"))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(model: onnx.ModelProto, shape=SHAPE) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (1, *shape)).astype(np.uint8)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    np.testing.assert_array_equal(by_hwgen(model, frames), theirs)


def scales(down: float, right: float) -> np.ndarray:
    return np.array([1, 1, down, right], np.float32)


@pytest.mark.parametrize(("way", "rounding"), list(product(WAYS, ROUNDINGS)))
def test_ways_and_roundings(way, rounding):
    """Where ONNX Runtime repeats pixels, they are repeated; where it makes something else, the model is refused."""
    taken = 0
    for factors, shape in product(((2, 2), (3, 1), (1, 4), (4, 3)), (SHAPE, (1, 1, 5))):
        model = resizing(
            "Resize",
            np.zeros(0, np.float32),
            scales(*factors),
            shape=shape,
            coordinate_transformation_mode=way,
            nearest_mode=rounding,
        )
        frames = np.arange(np.prod(shape), dtype=np.uint8).reshape(1, *shape)
        (theirs,) = integer_session(model)[0].run(None, {"x": frames})
        if (theirs != frames.repeat(factors[0], axis=2).repeat(factors[1], axis=3)).any():
            with pytest.raises(ModelError, match="must repeat each pixel"):
                by_hwgen(model, frames)
        else:
            np.testing.assert_array_equal(by_hwgen(model, frames), theirs)
            taken += 1
    assert taken == 8 or (way, rounding) not in (("half_pixel", "round_prefer_floor"), ("asymmetric", "floor"))


def test_sizes_and_older_versions():
    sizes = np.array([1, 2, 6, 12], np.int64)
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    check(resizing("Resize", None, None, sizes, **floor))
    check(resizing("Resize", None, None, sizes))
    check(resizing("Resize", None, scales(2, 1), after=0.25))  # other steps behind it
    check(resizing("Resize", scales(2, 3), opset=10))
    check(resizing("Resize", None, scales(1, 1), after=0.25))
    check(resizing("Resize", None, np.array([3, 2], np.float32), axes=[-1, 2]))
    check(resizing("Resize", None, None, np.array([12]), axes=[3]))
    check(resizing("Resize", None, np.array([2, 1, 1], np.float32), axes=[2, 0, 1]))


def computed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same; that its scales don't fit is seen only when they are computed."""
    model.graph.node.insert(0, helper.make_node("Exp", ["constant1"], ["scales"]))
    model.graph.node[2].input[2] = "scales"
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (resizing("Resize", None, scales(2, 2), mode="linear"), "mode must be nearest, not linear"),
        (resizing("Resize", None, scales(1.5, 2)), r"scales must be four, whole, .*, not \[1, 1, 1.5, 2\]"),
        (resizing("Resize", None, scales(0.5, 2)), r"scales must be four, whole, of rows and columns alone"),
        (resizing("Resize", None, np.array([1, 2, 2, 2], np.float32)), "scales must be four, whole, of rows"),
        (resizing("Resize", None, None, np.array([1, 2, 7, 8])), r"scales must .* not \[1, 1, 2.33333, 2\]"),
        (resizing("Resize", None, np.array([2, 1.5], np.float32), axes=[-1, 2]), r"scales .*, not \[1, 1, 1.5, 2\]"),
        (resizing("Resize", None, np.array([2, 3], np.float32), axes=[1, 2]), r"scales must .*, not \[1, 2, 3, 1\]"),
        (computed(resizing("Resize", None, np.ones(2, np.float32), axes=[3])), r"axes must be as many as scales or"),
        (resizing("Resize", None, scales(np.nan, 2)), r"scales must be four, whole, .* not \[1, 1, nan, 2\]"),
        (resizing("Resize", None, scales(np.inf, 2)), r"scales must be four, whole, .* not \[1, 1, inf, 2\]"),
        (resizing("Resize", None, scales(2, 2).reshape(2, 2)), "scales must be four, whole"),
        (resizing("Resize", None, scales(30_000, 1)), "gives 90,000 x 4 pixels; at most 65,535 a side can be"),
        (
            resizing("Resize", None, scales(2, 2), coordinate_transformation_mode="asymmetric", nearest_mode="ceil"),
            "must repeat each pixel 2 times, which asymmetric with ceil does not",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(model, message):
    with pytest.raises(ModelError, match=rf"^model: Resize node 'wider': {message}"):
        by_hwgen(model, np.zeros((1, *SHAPE), np.uint8))
