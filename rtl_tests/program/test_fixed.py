"""Programs for layers in fixed point: random layers, and networks around them, run by the interpreter of programs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import interpret
import numpy as np
import pytest
from counted import cases_in_the_long_run
from fixed_points import random_layer, random_maps
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from programs import alone
from wide_maps import INPUT_MAP, POINT, averaged, conv, gated, residual, rule, wide

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.float32 import Label
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, UINT8, FeatureMap, IntegerType, Window
from hwgen.network.ops import FixedPoint, Lookup, Max, SumPool
from hwgen.network.ops.fixed_point import Curve, Limits, Shift, Times
from hwgen.program.compile import schedule
from hwgen.program.fixed import channel_line_passes, fixed_point_passes
from hwgen.program.layout import map_bytes, pack_map, unpack_map

ENGINE = EngineConfig(fixed_words=512, lookup_words=2048, pixels=5, map_words=512, weight_steps=512)


@cases_in_the_long_run(100)
@given(seed=st.integers(0, 2**32), cores=st.integers(1, 3), bus_bytes=st.sampled_from([4, 8, 16]))
def test_random_layers(seed, cores, bus_bytes):
    """Of maps of 2 to 32 bits, with constants and rules of each channel, and maps of one pixel for all pixels."""
    random = Random(seed)
    size = {"channels": random.choice((3, 8, 20, 33)), "height": random.choice((1, 4, 9))}
    op = random_layer(random, **size, width=random.choice((1, 5, 17)), count=random.randint(1, 5))
    engine = replace(ENGINE, cores=cores, bus_bytes=bus_bytes)
    try:
        made = schedule(alone(op), engine, side_by_side=False)
    except ModelError as error:
        if not str(error).startswith("program: the engine's fixed-point unit"):
            raise
        reject()
    frames = random_maps(random, op)
    (found,) = interpret.outputs(made.program, *frames)
    np.testing.assert_array_equal(found, op.compute(*frames))


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("make", [residual, averaged])
def test_networks(make, cores):
    """Wide sums of convolutions, SiLU, pools and gates, with quantised and wide outputs."""
    interpret.check_network(make(), replace(ENGINE, cores=cores))


def test_several_frames():
    interpret.check_network(averaged(), ENGINE, frames=3)
    interpret.check_network(averaged(), replace(ENGINE, cores=4), frames=3)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_groups_and_fractions(groups):
    """Of a convolution with wide outputs: groups, channel by channel, and biases with fractional bits."""
    rng = np.random.default_rng(groups)
    source = FeatureMap(channels=8, height=6, width=5, type=INPUT_MAP.type, zero_point=3)
    output = replace(wide(28, 8), width=5)
    weights = rng.integers(-90, 90, (8, 8 // groups, 3, 3))
    layer = conv(rng, "sums", source, output, 3.0)
    layer = replace(layer, groups=groups, weights=weights, fraction=4)
    interpret.check_network(Network(name="conv", layers=(layer,)), ENGINE)


@pytest.mark.parametrize("shift", [18, 30])
def test_products_of_wide_values(shift):
    """Of two values of 28 bits, the product is computed in two halves."""
    output = wide(28, 4, 3) if shift == 30 else wide(40, 4, 3)
    if shift == 30:
        steps = (Times(operands=(0, 1), shift=shift),)
    else:
        output, steps = wide(30, 4, 3), (Times(operands=(0, 1), shift=30), Shift(operands=(2,), shift=-2))
    side = wide(28, 4, 3)
    layer = FixedPoint(name="product", input=side, more=(side,), output=output, window=POINT, steps=steps)
    interpret.check_network(alone(layer), ENGINE)


@pytest.mark.parametrize(("segments", "steepness"), [(64, 0), (1024, 0), (256, 3), (1024, 3)])
def test_curves(segments, steepness):
    """Of many segments, the engine looks up only those that are not constant, and two tables together if it must."""
    fraction, source = 18, wide(26, 4, 3)
    curve = Curve.fitted(
        (lambda x: np.tanh(steepness * x)) if steepness else (lambda x: np.tanh(x / 9) + np.sin(x)),
        0,
        low=-32 << fraction,
        segment_bits=fraction + 6 - segments.bit_length() + 1,
        segments=segments,
        fractions=(fraction, fraction),
    )
    layer = FixedPoint(name="curves", input=source, output=wide(28, 4, 3), window=POINT, steps=(curve,))
    (task,) = fixed_point_passes(layer, ("input_0",))
    looked_up = len(task.fixed.lookups)
    assert looked_up < segments if steepness else looked_up == (2 if segments == 1024 else 3) * segments
    interpret.check_network(alone(layer), ENGINE)


@cases_in_the_long_run(40)
@given(seed=st.integers(0, 2**32), signed=st.booleans())
def test_lines_of_channels(seed, signed):
    """Each channel's function is a line between bounds, of any slope and start."""
    rng = np.random.default_rng(seed)
    kind = INT8 if signed else UINT8
    source = FeatureMap(channels=int(rng.integers(1, 20)), height=4, width=5, type=kind)
    slope, start = rng.normal(size=(source.channels, 1)) * 10.0 ** rng.integers(-3, 2), rng.normal(size=1) * 90
    values = np.arange(kind.minimum, kind.maximum + 1)
    table = np.clip(np.rint(slope * values + start), kind.minimum, kind.maximum).astype(np.int64)
    assume((table != table[0]).any())
    layer = Lookup(name="lines", input=source, output=source, window=POINT, table=table)
    (task,) = channel_line_passes(layer, ("input_0",))
    assert task.fixed is not None
    interpret.check_network(alone(layer), ENGINE, seed)


@cases_in_the_long_run(30)
@given(seed=st.integers(0, 2**32), cores=st.integers(1, 3))
def test_sums_of_large_windows(seed: int, cores: int) -> None:
    """Columns of windows of 64 taps and more are added before rows, byte by byte, into maps of 16 bits."""
    random = Random(seed)
    kernel = random.randint(8, 14), random.choice((8, 11, 17))
    kind = IntegerType(bits=random.randint(9, 32), signed=random.random() < 0.6)
    dilation = random.choice((1, 1, 2)), random.choice((1, 1, 2))
    stride = random.randint(1, 3), random.randint(1, 2)
    window = Window(kernel=kernel, stride=stride, dilation=dilation)
    height, width = (extent + random.choice((0, 1, 5)) for extent in window.extent)
    zero = random.choice((0, random.randint(kind.minimum, kind.maximum)))
    source = FeatureMap(channels=random.choice((1, 8, 19)), height=height, width=width, type=kind, zero_point=zero)
    rows, columns = window.output_size(height, width)
    output = replace(source, height=rows, width=columns, zero_point=0)
    operation = rule(np.random.default_rng(seed), output, random.choice((0.9, 0.01)) / window.taps)
    op = SumPool(name="op", input=source, output=output, window=window, requantisation=operation)
    assert len(schedule(alone(op), ENGINE).tiled_passes) == 1 + -(-kind.bits // 8)
    interpret.check_network(alone(op), replace(ENGINE, cores=cores), seed)


def test_packed_maps():
    """Each row of a wide map has a row for each byte, the highest one first."""
    source = FeatureMap(channels=9, height=2, width=3, type=IntegerType(bits=20, signed=True))
    frame = np.random.default_rng(0).integers(-(1 << 19), 1 << 19, source.shape)
    packed = np.frombuffer(pack_map(frame, source.type), np.uint8).reshape(2, 2, 3, 3, 8)
    assert packed.size == map_bytes(source)
    value = int(frame[8, 1, 2]) % (1 << 24)
    assert packed[1, 1, :, 2, 0].tolist() == [value >> 16, value >> 8 & 0xFF ^ 0x80, value & 0xFF ^ 0x80]
    np.testing.assert_array_equal(unpack_map(packed.tobytes(), source), frame)


def refused() -> dict[str, Network]:
    """Return networks that the engine refuses, by the reason."""
    rng = np.random.default_rng(0)
    first = conv(rng, "first", INPUT_MAP, wide(24), 7.3)
    kind = wide(24).type
    greatest = Max(
        name="greatest",
        input=wide(24),
        more=(wide(24),),
        output=wide(24),
        window=POINT,
        labels=(Label(0.5, 0),) * 3,
        low=kind.minimum,
        high=kind.maximum,
    )
    padded = SumPool(
        name="sums",
        input=wide(24),
        output=wide(30),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        requantisation=first.requantisation,
    )
    steps = tuple(Limits(operands=(index,), low=-5, high=5) for index in range(127))
    many = FixedPoint(name="many", input=wide(24), output=wide(24), window=POINT, steps=steps)
    edges = (INPUT,), ("first",)
    return {
        "greatest: the engine computes max with values of at most 8 bits": alone(greatest),
        "sums: the engine's fixed-point unit sums windows of maps of more than 8 bits only without padding": Network(
            name="padded", layers=(first, padded), edges=edges
        ),
        "many: the engine's fixed-point unit executes 127 instructions": alone(many),
    }


@pytest.mark.parametrize("text", [*refused()])
def test_refusals(text):
    with pytest.raises(ModelError, match=f"^{text}"):
        schedule(refused()[text], ENGINE)


def test_engine_without_the_unit():
    with pytest.raises(ModelError, match=r"this engine does not have \(fixed_words\)"):
        schedule(residual(), replace(ENGINE, fixed_words=0, lookup_words=0))
    with pytest.raises(ModelError, match="need 645 lookup words, and this engine has 0"):
        schedule(residual(), replace(ENGINE, lookup_words=0))


def test_gate_of_one_pixel():
    interpret.check_network(alone(gated(np.random.default_rng(3))), replace(ENGINE, cores=2))
