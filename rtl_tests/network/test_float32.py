"""Rounding to float32 next to ties: golden model and gateware against ONNX Runtime and NumPy, by the million."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import verilated
from onnx import TensorProto, helper
from verilated import Pairs, at_ends, beside, by_float32, join

from hwgen.gateware.requantise import RequantiseConfig
from hwgen.network.requantise import Requantisation, requantise

long = pytest.mark.long
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make"
)


def by_kernel(pairs: Pairs, zero: int) -> np.ndarray:
    """What ONNX Runtime's QLinearConv makes of each pair: the accumulators are biases, the input is zero."""
    count = len(pairs)
    inputs = {
        "x": np.zeros((1, 1, 1, 1), np.uint8),
        "w": np.zeros((count, 1, 1, 1), np.int8),
        "w_scale": pairs.factors,
        "w_zero": np.zeros(count, np.int8),
        "bias": pairs.totals.astype(np.int32),
    }
    one, none = np.ones((), np.float32), np.zeros((), np.uint8)
    constants = {"one": one, "none": none, "zero": np.array(zero, np.uint8)}
    names = ["x", "one", "none", "w", "w_scale", "w_zero", "one", "zero", "bias"]
    initial = [onnx.numpy_helper.from_array(value, name) for name, value in (inputs | constants).items() if name != "x"]
    graph = helper.make_graph(
        [helper.make_node("QLinearConv", names, ["y"])],
        "pairs",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 1, 1, 1))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        initial,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": inputs["x"]})
    return y.reshape(count).astype(np.int64)


def mixed(rng: np.random.Generator, count: int) -> Pairs:
    """Half of the accumulators are below 2**24; some products lie at the very end of a band."""
    ends = min(count // 50, 2000)
    large = count // 2
    return join(at_ends(rng, ends), beside(rng, large, (25, 31)), beside(rng, count - ends - large, (1, 24)))


@pytest.mark.parametrize("millions", [0.2, pytest.param(10, marks=long)])
def test_golden_model(millions: float) -> None:
    """Every pair as ONNX Runtime's kernel has it, and NumPy; the exact product would often give another output."""
    rng = np.random.default_rng(1)
    other = 0
    for start in range(0, round(millions * 1e6), 200_000):
        pairs = mixed(rng, min(200_000, round(millions * 1e6) - start))
        zero = int(rng.integers(0, 256))
        rule: dict[str, Any] = {"significand": pairs.significands, "shift": pairs.shifts, "zero_point": zero}
        rule |= {"low": 0, "high": 255}
        ours = requantise(pairs.totals[:, None], Requantisation(**rule, float32=True), 1 << 31)[:, 0]
        np.testing.assert_array_equal(ours, by_kernel(pairs, zero))
        np.testing.assert_array_equal(ours, np.clip(by_float32(pairs) + zero, 0, 255))
        exact = requantise(pairs.totals[:, None], Requantisation(**rule), 1 << 31)[:, 0]
        other += np.count_nonzero(ours != exact)
    assert other > millions * 50_000


def table(rng: np.random.Generator, channels: int, width: tuple[int, int], ends: float, **shape: Any):
    """A requantiser with one channel a beat, whose every factor has a product next to a tie."""
    some = round(channels * ends)
    pairs = beside(rng, channels - some, width)
    pairs = join(at_ends(rng, some), pairs) if some else pairs
    half = 1 << width[1]
    return RequantiseConfig(
        lanes=1,
        accumulator_bits=width[1] + 2,
        bias=tuple(rng.integers(-half, half, channels).tolist()),
        significand=tuple(pairs.significands.tolist()),
        shift=tuple(pairs.shifts.tolist()),
        beats=tuple((channel,) for channel in range(channels)),
        float32=True,
        **shape,
    )


def totals_of(rng: np.random.Generator, config: RequantiseConfig, rounds: int) -> np.ndarray:
    """``(rounds, channels)`` sums: those nearest to ties, the ends of bands among them, and one more or less."""
    shape = (rounds, config.channels)
    factors = np.ldexp(np.array(config.significand, np.float64), -np.array(config.shift))
    upper = rng.integers(config.low - config.zero_point - 1, config.high - config.zero_point + 3, shape)
    place = np.frexp(np.abs(upper - 0.5))[1] - 1 - 24
    moved = rng.choice([0, 0, 1, -1, 2, -2], shape) * np.ldexp(1.0, place)
    totals = np.rint((upper - 0.5 + moved) / factors) + rng.choice([0, 0, 0, 1, -1], shape)
    bias, half = np.array(config.bias), 1 << (config.accumulator_bits - 1)
    return np.clip(totals, bias - half, bias + half - 1).astype(np.int64)


UINT8 = {"bits": 8, "signed": False, "low": 0, "high": 255}
INT8 = {"bits": 8, "signed": True, "low": -128, "high": 127}
CONFIGS = {
    "uint8, Relu": ({**UINT8, "zero_point": 0}, (16, 21), 0.0),
    "int8, zero point 3": ({**INT8, "zero_point": 3}, (12, 22), 0.0),
    "sums past 2**24": ({**INT8, "zero_point": -7}, (26, 31), 0.0),
    "ends of bands": ({**UINT8, "zero_point": 200}, (8, 20), 0.5),
    "small sums": ({**INT8, "zero_point": -128}, (5, 14), 0.2),
    "one shift, past 2**24": ({**UINT8, "zero_point": 0}, (25, 25), 0.0),
    "bounds inside the type": ({**INT8, "zero_point": 3, "low": 3, "high": 90}, (17, 22), 0.0),
    "bounds on one side": ({**UINT8, "zero_point": 10, "low": 31, "high": 201}, (18, 22), 0.1),
    "four bits": ({"bits": 4, "signed": True, "low": -8, "high": 7, "zero_point": -1}, (15, 20), 0.1),
}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "channels", "rounds"),
    [
        pytest.param("ends of bands", 256, 400, marks=long),
        *(pytest.param(name, 512, 2200, marks=long) for name in CONFIGS),
    ],
)
def test_gateware(name: str, channels: int, rounds: int, tmp_path: Path) -> None:
    """Ten million sums in all in the long run; each compared with NumPy's float32."""
    shape, width, ends = CONFIGS[name]
    rng = np.random.default_rng(channels)
    config = table(rng, channels, width, ends, **shape)
    assert config.beside_ties
    assert (config.rounded_bits > 0) == ("past 2**24" in name)
    totals = totals_of(rng, config, rounds)
    factors = np.ldexp(np.array(config.significand, np.float32), -np.array(config.shift, np.int32))
    wanted = np.rint(totals.astype(np.float32) * factors).astype(np.int64) + config.zero_point
    outputs = verilated.requantise(config, (totals - np.array(config.bias)).ravel(), tmp_path)
    np.testing.assert_array_equal(outputs.reshape(wanted.shape), np.clip(wanted, config.low, config.high))
    exact = np.rint(totals * factors.astype(np.float64)).astype(np.int64) + config.zero_point  # nearly
    assert np.count_nonzero(np.clip(exact, config.low, config.high) != outputs.reshape(wanted.shape)) > 50


@pytest.mark.parametrize(
    ("total", "significand", "shift", "output", "exact"),
    [
        # 11184811 / 2**26 is 1/6 + 2**-26 / 3; float32 has steps of 2**-22 from 2 to 4, of 2**-24 from 1/2 to 1.
        (15, 11184811, 26, 2, 3),
        (-15, 11184811, 26, -2, -3),
        (9, 11184811, 26, 2, 2),
        (3, 11184811, 26, 0, 1),
        # Steps of 4 from 2**25 to 2**26: 5 * 2**23 + 1 and, a tie, + 2 become 5 * 2**23; + 3 becomes + 4.
        (5 * 2**23 + 1, 2**23, 47, 2, 3),
        (5 * 2**23 + 2, 2**23, 47, 2, 3),
        (5 * 2**23 + 3, 2**23, 47, 3, 3),
        (-(7 * 2**23) + 1, 2**23, 47, -4, -3),
        (5 * 2**21 + 1, 2**23, 45, 3, 3),
    ],
)
def test_by_hand(total: int, significand: int, shift: int, output: int, exact: int) -> None:
    for float32, wanted in ((True, output), (False, exact)):
        scale = {"significand": np.array([significand]), "shift": np.array([shift])}
        rule = Requantisation(**scale, zero_point=0, low=-128, high=127, float32=float32)
        assert requantise(np.array([[total]]), rule, 1 << 26).item() == wanted
        config = RequantiseConfig(
            lanes=1,
            accumulator_bits=28,
            bias=(0,),
            significand=(significand,),
            shift=(shift,),
            beats=((0,),),
            float32=float32,
            zero_point=0,
            **INT8,
        )
        assert config.compute(0, total) == wanted
