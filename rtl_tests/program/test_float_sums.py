"""Programs of layers that ONNX Runtime computes in float32, run by the interpreter: values of the golden model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import interpret
import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st
from programs import alone, resized_places

from hwgen.errors import ConfigError, ModelError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.float32 import Label
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, UINT8, FeatureMap, Window
from hwgen.network.ops import Add, AveragePool, Interpolate, Mul, Op, Sum
from hwgen.program.compile import schedule
from hwgen.program.elementwise import product_factors

ENGINE = EngineConfig(fixed_words=512, lookup_words=2048, float_sums=True, pixels=5, map_words=512, weight_steps=512)
POINT = Window(kernel=(1, 1))


def a_scale(random: Random) -> float:
    return float(np.float32(random.choice((0.5, 0.0123, 0.1 + random.random()))))


def a_map(random: Random, channels: int, height: int, width: int) -> FeatureMap:
    kind = random.choice((INT8, UINT8))
    zero = random.randint(kind.minimum, kind.maximum)
    return FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero)


def sizes(random: Random) -> tuple[int, int, int]:
    return random.randint(1, 20), random.randint(2, 7), random.randint(2, 9)


def interpolation(random: Random) -> Op:
    channels, *shape = sizes(random)
    source, places = a_map(random, channels, *shape), resized_places(random, shape, (1, 2, 4, 16))
    scale = a_scale(random)
    output = a_map(random, channels, len(places["rows"]), len(places["columns"]))
    return Interpolate(
        name="op",
        input=source,
        output=output,
        window=POINT,
        **places,
        x_scale=scale,
        y_scale=random.choice((scale, a_scale(random))),
        low=random.choice((output.type.minimum, output.zero_point)),
        high=output.type.maximum,
        in_floats=True,
    )


def average(random: Random) -> Op:
    """Return an average pool; with equal scales, averages of two or four values are often ties."""
    channels, height, width = sizes(random)
    kernel = random.choice(((2, 2), (1, 2), (2, 3)))
    padding = random.choice(((0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0)))
    stride = random.choice((1, 2)), random.choice((1, 2))
    rows, columns = (
        (size + padding[axis] + padding[axis + 2] - kernel[axis]) // stride[axis] + 1
        for axis, size in enumerate((height, width))
    )
    scale = a_scale(random)
    if min(rows, columns) < 1 or (padding[1] + padding[3] and kernel[1] == 1) or (padding[0] and kernel[0] == 1):
        return average(random)
    try:
        return AveragePool(
            name="op",
            input=a_map(random, channels, height, width),
            output=a_map(random, channels, rows, columns),
            window=Window(kernel=kernel, stride=stride, padding=padding),
            x_scale=scale,
            y_scale=random.choice((scale, a_scale(random))),
            include_padding=random.random() < 0.5,
        )
    except ConfigError:  # a window in the padding
        return average(random)


def labels(random: Random, maps: list[FeatureMap]) -> tuple[Label, ...]:
    return tuple(Label(a_scale(random), each.zero_point) for each in maps)


def a_sum(random: Random) -> Op:
    shape = sizes(random)
    maps = [a_map(random, *shape) for _ in range(random.choice((3, 3, 4, 5, 6, 7)) + 1)]
    *inputs, output = maps
    ends = {"low": output.type.minimum, "high": output.type.maximum}
    return Sum(
        name="op",
        input=inputs[0],
        more=tuple(inputs[1:]),
        output=output,
        window=POINT,
        labels=labels(random, maps),
        **ends,
    )


#: Scales and zero points of a product of MobileNetV3's that no factor of 24 bits rounds as float32 does.
NO_FACTOR = tuple(
    Label(float(np.float32(scale)), zero) for scale, zero in ((0.013976259, 27), (0.0023482188, 0), (0.006976406, 30))
)


def a_product(random: Random) -> Op:
    shape = sizes(random)
    other = random.choice((shape, (shape[0], 1, 1)))
    maps = [a_map(random, *shape), a_map(random, *other), a_map(random, *shape)]
    scales = labels(random, maps)
    if random.random() < 0.7:
        maps, scales = [replace(each, type=UINT8, zero_point=100) for each in maps], NO_FACTOR
    ends = {"low": maps[2].type.minimum, "high": maps[2].type.maximum}
    return Mul(name="op", input=maps[0], more=(maps[1],), output=maps[2], window=POINT, labels=scales, **ends)


@pytest.mark.parametrize("make", [interpolation, average, a_sum, a_product])
@cases_in_the_long_run(40)
@given(seed=st.integers(0, 2**32), cores=st.integers(1, 3))
def test_float32(make: Callable[[Random], Op], seed: int, cores: int) -> None:
    random = Random(seed)
    network = alone(make(random))
    interpret.check_network(network, replace(ENGINE, cores=cores), seed)


def test_products_without_factor() -> None:
    source = FeatureMap(channels=1, height=1, width=1, type=UINT8)
    op = Mul(
        name="op",
        input=source,
        more=(source,),
        output=source,
        window=POINT,
        labels=NO_FACTOR,
        low=0,
        high=UINT8.maximum,
    )
    assert product_factors(op) is None


def test_products_beyond_the_largest_factor() -> None:
    source = FeatureMap(channels=2, height=2, width=3, type=INT8)
    scales = tuple(Label(float(np.float32(scale)), 0) for scale in (677.46, 408.25, 1e-3))
    ends = {"low": INT8.minimum, "high": INT8.maximum}
    op = Mul(name="op", input=source, more=(source,), output=source, window=POINT, labels=scales, **ends)
    interpret.check_network(alone(op), ENGINE)


def test_an_addition_after_a_sum_of_two_maps() -> None:
    source = FeatureMap(channels=2, height=2, width=3, type=INT8)
    half, ends = Label(0.5, 0), {"low": INT8.minimum, "high": INT8.maximum}
    sides = {"input": source, "more": (source,), "output": source, "window": POINT, "labels": (half,) * 3, **ends}
    layers = Sum(name="sum", **sides), Add(name="add", fused=False, **sides)
    network = Network(name="both", layers=layers, edges=(("x", "y"), ("sum", "z")), inputs=("x", "y", "z"))
    interpret.check_network(network, ENGINE)


def test_other_engines_are_refused() -> None:
    network = alone(interpolation(Random(1)))
    with pytest.raises(ModelError, match="op: is a sum in float32, which this engine can't compute"):
        schedule(network, replace(ENGINE, float_sums=False))
