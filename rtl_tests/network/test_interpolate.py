"""Resize with mode linear: the golden model against ONNX Runtime, hardware, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import by_hwgen
from onnx_writing import as_model
from referees import integer_session
from step_checks import around, in_hardware, kinds, quantised

import hwgen
from hwgen.errors import ConfigError, ModelError
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Interpolate

WAYS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")


def resizing(
    numbers: np.ndarray,
    shape: tuple[int, ...],
    *,
    kind: str = "uint8",
    scales: tuple[float, float] = (0.05, 0.05),
    zeros: tuple[int, int] = (3, 3),
    opset: int = 19,
    **attributes,
) -> onnx.ModelProto:
    """A model of one Resize between quantisers, by scales (float32 ``numbers``) or to sizes (int64)."""
    absent = "roi" if opset < 13 else ""
    inputs = ["real", absent, "numbers"] if numbers.dtype == np.float32 else ["real", absent, "", "numbers"]
    constants = {"roi": np.zeros(0, np.float32)} if absent else {}
    for name, scale, zero in zip("xy", scales, zeros, strict=True):
        constants |= {f"{name}_scale": np.float32(scale), f"{name}_zero": np.array(zero, kind)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real"]),
        helper.make_node("Resize", inputs, ["wide"], name="wider", mode="linear", **attributes),
        helper.make_node("QuantizeLinear", ["wide", "y_scale", "y_zero"], ["y"]),
    ]
    element_type = TensorProto.UINT8 if kind == "uint8" else TensorProto.INT8
    return as_model(
        nodes,
        {"x": (element_type, ("batch", *shape))},
        {"y": (element_type, ["batch", "c", "h", "w"])},
        constants | {"numbers": numbers},
        opset=opset,
    )


def factors(down: float, right: float) -> np.ndarray:
    return np.array([1, 1, down, right], np.float32)


def differences(model: onnx.ModelProto, seed: int, count: int = 1) -> np.ndarray:
    """Differences of the golden model's integers from ONNX Runtime's, for random frames."""
    tensor = model.graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim[1:]]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    limits = np.iinfo(dtype)
    frames = np.random.default_rng(seed).integers(limits.min, limits.max + 1, (count, *shape)).astype(dtype)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    return by_hwgen(model, frames).reshape(theirs.shape).astype(int) - theirs


real_scales = st.floats(2**-8, 0.5, width=32)


@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    by=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([2, 4, 8])),
    way=st.sampled_from(WAYS[:4]), kind=st.sampled_from(["uint8", "int8"]),
    scales=st.one_of(st.tuples(real_scales, real_scales), real_scales.map(lambda scale: (scale, scale))),
    zeros=st.tuples(st.integers(0, 127), st.integers(0, 127)),
    opset=st.sampled_from([11, 13, 19]), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_powers_of_two(shape, by, way, kind, scales, zeros, opset, seed):
    """Equal in every value, exact ties included, with any scales."""
    how = {"kind": kind, "scales": scales, "zeros": zeros, "opset": opset, "coordinate_transformation_mode": way}
    if way == "half_pixel_symmetric":
        how["opset"] = 19
    model = resizing(factors(*by), shape, **how)
    assert not differences(model, seed).any()
    assert to_network(model, "model").in_floats == ()


@pytest.mark.parametrize("way", WAYS)
def test_ties(way: str) -> None:
    """Many exact ties: equal scales, and frames of small values."""
    for scale in (0.0371, 0.1, 0.25):
        assert not differences(resizing(factors(2, 2), (8, 16, 16), scales=(scale, scale)), 1, 4).any()
        model = resizing(factors(4, 2), (8, 16, 16), scales=(scale, scale), coordinate_transformation_mode=way)
        assert not differences(model, 2, 4).any()


@pytest.mark.parametrize("way", WAYS)
def test_other_factors(way: str) -> None:
    """Layers differ by 1 at most, where exact sums are next to ties, and are named; others are equal."""
    named = set()
    for by in ((3, 3), (5, 1), (3, 7), (6, 2), (2, 3), (1.5, 3), (0.5, 0.5), (0.7, 1.3)):
        model = resizing(factors(*by), (4, 12, 14), coordinate_transformation_mode=way)
        found, layers = differences(model, 2), to_network(model, "model").in_floats
        assert np.abs(found).max() <= len(layers)
        assert (found != 0).mean() < 0.06
        assert all((layer.name, layer.largest_difference) == ("wider", 1) and layer.error < 2**-8 for layer in layers)
        named |= {by} if layers else set()
    if way != "align_corners":  # whose sums can be as near to a tie as the bound on ONNX Runtime's roundings
        assert {(6, 2), (2, 3)} <= named <= {(6, 2), (2, 3), (1.5, 3), (0.7, 1.3)}
    sizes = np.array([1, 4, 36, 42])
    assert not differences(resizing(sizes, (4, 12, 14), coordinate_transformation_mode=way), 3).any()


def on_integers(by: tuple[float, float], way: str, kind: str) -> onnx.ModelProto:
    """A Resize of integers, as in models of the form QOperator."""
    node = helper.make_node(
        "Resize", ["x", "", "numbers"], ["y"], name="wider", mode="linear", coordinate_transformation_mode=way
    )
    element_type = TensorProto.UINT8 if kind == "uint8" else TensorProto.INT8
    return as_model(
        [node],
        {"x": (element_type, ("batch", 3, 5, 7))},
        {"y": (element_type, ["batch", "c", "h", "w"])},
        {"numbers": factors(*by)},
        opset=19,
    )


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("way", ["half_pixel", "asymmetric"])
def test_integers(way: str, kind: str, tmp_path: Path) -> None:
    """ONNX Runtime's kernel for integers rounds towards 0."""
    for by in ((2, 2), (4, 1), (8, 4)):
        assert not differences(on_integers(by, way, kind), 1, 2).any()
    with pytest.raises(ModelError, match="at parts of a pixel that must be powers of two, not 3x"):
        to_network(on_integers((3, 2), way, kind), "model")
    simulate(on_integers((2, 2), way, kind), tmp_path, "amaranth")


def test_share_of_ties(tmp_path: Path) -> None:
    """The share of exact ties, by counting those of random values, and what check says of it."""
    model = resizing(factors(6, 2), (1, 12, 12))
    (layer,) = to_network(model, "model").in_floats
    values = np.random.default_rng(1).integers(0, 256, (200, 12, 12))
    for axis, factor in ((1, 6), (2, 2)):
        parts, index = 2 * factor, np.arange(12 * factor)
        place = np.clip(2 * index + 1 - factor, 0, 11 * parts)  # in parts of a pixel
        below = (place % parts).reshape((-1, 1) if axis == 1 else -1)
        first, second = place // parts, np.minimum(place // parts + 1, 11)
        values = (parts - below) * values.take(first, axis) + below * values.take(second, axis)
    assert layer.ties == pytest.approx((values % 48 == 24).mean(), abs=0.002)
    onnx.save(model, tmp_path / "model.onnx")
    assert "% of random results of wider are exactly there" in hwgen.check(tmp_path / "model.onnx").table()


@pytest.mark.parametrize(
    ("by", "shape", "how"),
    [
        ((2, 2), (3, 4, 5), {"scales": (0.0371, 0.0371)}),
        (
            (4, 2),
            (2, 2, 3),
            {"scales": (0.0171, 0.011), "kind": "int8", "coordinate_transformation_mode": "asymmetric"},
        ),
        ((2, 2), (3, 4, 5), {"coordinate_transformation_mode": "align_corners"}),
        ((1, 3), (2, 3, 4), {"scales": (0.25, 0.25)}),
        ((2, 2), (2, 1, 1), {}),
    ],
)
def test_in_hardware(by: tuple[int, int], shape: tuple[int, ...], how: dict, tmp_path: Path) -> None:
    """All values of ONNX Runtime, and the cycles that were predicted."""
    simulate(resizing(factors(*by), shape, **how), tmp_path, "amaranth")


def test_beside_a_shortcut(tmp_path: Path) -> None:
    """As in a U-Net: a map is halved, interpolated, and joined with itself, so that a FIFO holds what is waited for."""
    nodes = [
        helper.make_node("MaxPool", ["real"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        *quantised("half", to=["h"]),
        helper.make_node("DequantizeLinear", ["h", "s", "z"], ["h_real"]),
        helper.make_node("Resize", ["h_real", "", "numbers"], ["wide"], mode="linear"),
        *quantised("wide", to=["w_8"]),
        helper.make_node("DequantizeLinear", ["w_8", "s", "z"], ["w_real"]),
        helper.make_node("Concat", ["w_real", "real"], ["joined"], axis=1),
    ]
    model = around(*nodes, *quantised("joined"), shape=(2, 8, 6), numbers=factors(2, 2))
    assert "interpolate" in kinds(model)
    in_hardware(model, tmp_path)


@pytest.mark.long
def test_emitted_verilog(tmp_path: Path) -> None:
    model = resizing(factors(2, 2), (16, 12, 10), scales=(0.0371, 0.0371))
    simulate(model, tmp_path, "verilator", lut=20_000)


def simulate(model: onnx.ModelProto, folder: Path, simulator: str, **options) -> None:
    path = folder / "model.onnx"
    onnx.save(model, path)
    tensor = model.graph.input[0].type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    limits, shape = np.iinfo(dtype), [dim.dim_value for dim in tensor.shape.dim[1:]]
    frames = np.random.default_rng(1).integers(limits.min, limits.max + 1, (3, *shape)).astype(dtype)
    result = hwgen.load(path).plan("zedboard", **options).simulate(frames, simulator=simulator)
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    np.testing.assert_array_equal(result.outputs, theirs)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            resizing(np.array([1, 2, 5003, 4]), (2, 300, 4), coordinate_transformation_mode="align_corners"),
            r"divides a pixel into \d.*; at most 4,096 are supported$",
        ),
        (resizing(factors(2, 2), (2, 3, 4), antialias=1), "interpolates maps of .* without antialias, not uint8 laid"),
        (resizing(factors(30_000, 1), (2, 3, 4)), "its output must have 1 to 65,535 pixels per side, not 90,000"),
    ],
)
def test_what_is_refused(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(ModelError, match=rf"^model: Resize node 'wider': {message}"):
        to_network(model, "model")


def test_what_layers_refuse() -> None:
    source = FeatureMap(channels=1, height=2, width=2, type=UINT8)
    more = {"window": Window(kernel=(1, 1)), "x_scale": 1.0, "y_scale": 1.0, "low": 0, "high": 255, "rows": (0, 1)}
    more |= {"columns": (0, 1), "row_weights": (0, 1), "column_weights": (0, 1)}
    with pytest.raises(ConfigError, match=r"^wide: weights must be from 0 to 0, not "):
        Interpolate(name="wide", input=source, output=source, **more, axis_parts=(0, 1), in_floats=False)
    with pytest.raises(ConfigError, match=r"^wide: axis_parts must be a power of two up to 16, not 3$"):
        Interpolate(name="wide", input=source, output=source, **more, axis_parts=(2, 3), in_floats=True)
