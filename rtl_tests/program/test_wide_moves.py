"""Programs of layers that move values of wide maps, pool them, or pick rows and columns, run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import interpret
import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import given, reject
from hypothesis import strategies as st
from programs import alone, resized_places

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import STRIDES, EngineConfig
from hwgen.network.float32 import Label
from hwgen.network.maps import INT8, FeatureMap, IntegerType, Requantisation, Window
from hwgen.network.ops import (
    Concat,
    Crop,
    DepthToSpace,
    Interpolate,
    MaxPool,
    Op,
    Pad,
    Resample,
    Select,
    SpaceToDepth,
    Upsample,
)
from hwgen.program.compile import schedule
from hwgen.program.resample import even_runs

ENGINE = EngineConfig(fixed_words=512, pixels=5, map_words=512, weight_steps=512)
POINT = Window(kernel=(1, 1))


def a_map(random: Random, kind: IntegerType) -> FeatureMap:
    height, width = random.randint(2, 7), random.randint(2, 9)
    return FeatureMap(channels=random.randint(1, 20), height=height, width=width, type=kind)


def sized(source: FeatureMap, channels: int, height: int, width: int) -> FeatureMap:
    return replace(source, channels=channels, height=height, width=width)


def concat(random: Random, source: FeatureMap) -> Op:
    more = tuple(replace(source, channels=random.randint(1, 20)) for _ in range(random.randint(1, 3)))
    output = replace(source, channels=source.channels + sum(each.channels for each in more))
    ends = {"low": source.type.minimum, "high": source.type.maximum}
    labels = (Label(0.5, 0),) * (len(more) + 2)
    return Concat(name="op", input=source, more=more, output=output, window=POINT, labels=labels, **ends)


def select(random: Random, source: FeatureMap) -> Op:
    index = tuple(random.randrange(source.channels) for _ in range(random.randint(1, 20)))
    return Select(name="op", input=source, output=replace(source, channels=len(index)), window=POINT, index=index)


def crop(random: Random, source: FeatureMap) -> Op:
    sides = -random.randint(0, 1), -random.randint(0, 1)
    window = Window(kernel=(1, 1), padding=random.choice(((*sides, 0, 0), (0, 0, *sides))))
    return moved(Crop, source, window)


def pad(random: Random, source: FeatureMap) -> Op:
    window = Window(kernel=(1, 1), padding=tuple(random.randint(0, 2) for _ in range(4)))
    return moved(Pad, source, window, value=random.randint(source.type.minimum, source.type.maximum))


def moved(kind: type[Op], source: FeatureMap, window: Window, **fields) -> Op:
    top, left, bottom, right = window.padding
    output = sized(source, source.channels, source.height + top + bottom, source.width + left + right)
    return kind(name="op", input=source, output=output, window=window, **fields)


def upsample(random: Random, source: FeatureMap) -> Op:
    down, right = factors = random.randint(1, 3), random.randint(1, 3)
    output = sized(source, source.channels, down * source.height, right * source.width)
    return Upsample(name="op", input=source, output=output, window=POINT, factors=factors)


def depth_to_space(random: Random, source: FeatureMap) -> Op:
    down, right = blocks = random.randint(1, 2), random.randint(1, 3)
    source, channels = replace(source, channels=source.channels * down * right), source.channels
    output = sized(source, channels, down * source.height, right * source.width)
    return DepthToSpace(name="op", input=source, output=output, window=POINT, blocks=blocks)


def space_to_depth(random: Random, source: FeatureMap) -> Op:
    down, right = blocks = random.randint(1, 2), random.randint(1, 3)
    source, shape = sized(source, source.channels, down * source.height, right * source.width), source.shape[1:]
    output = sized(source, source.channels * down * right, *shape)
    return SpaceToDepth(name="op", input=source, output=output, window=POINT, blocks=blocks)


def resample(random: Random, source: FeatureMap) -> Op:
    rows, columns = (picks(random, size) for size in source.shape[1:])
    output = sized(source, source.channels, len(rows), len(columns))
    return Resample(name="op", input=source, output=output, window=POINT, rows=rows, columns=columns)


def picks(random: Random, size: int) -> tuple[int, ...]:
    """Return rows that are stretched by any factor, reflected or in any order."""
    count = random.randint(1, 12)
    return random.choice(
        (
            tuple(index * size // count for index in range(count)),
            (*range(size), *range(size - 1, -1, -1)),
            tuple(random.randrange(size) for _ in range(count)),
        )
    )


def max_pool(random: Random, source: FeatureMap) -> Op:
    kernel, stride = (random.randint(1, 3), random.randint(1, 3)), (random.randint(1, 2), random.randint(1, 3))
    padding = tuple(random.randint(0, size - 1) for size in (*kernel, *kernel))
    dilation = random.randint(1, 2), random.randint(1, 2)
    window = Window(kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    sizes = [
        (size + padding[axis] + padding[axis + 2] - (kernel[axis] - 1) * dilation[axis] - 1) // stride[axis] + 1
        for axis, size in enumerate(source.shape[1:])
    ]
    if min(sizes) < 1:
        return max_pool(random, source)
    return MaxPool(name="op", input=source, output=sized(source, source.channels, *sizes), window=window)


MOVES = (concat, select, crop, pad, upsample, depth_to_space, space_to_depth, resample)


@pytest.mark.parametrize("make", [*MOVES, max_pool])
@cases_in_the_long_run(40)
@given(seed=st.integers(0, 2**32), cores=st.integers(1, 3))
def test_wide_maps(make: Callable[[Random, FeatureMap], Op], seed: int, cores: int) -> None:
    """Maps of 9 to 32 bits, signed or not."""
    random = Random(seed)
    kind = IntegerType(bits=random.randint(9, 32), signed=random.random() < 0.7)
    op = make(random, a_map(random, kind))
    interpret.check_network(alone(op), replace(ENGINE, cores=cores), seed)


@cases_in_the_long_run(60)
@given(seed=st.integers(0, 2**32), cores=st.integers(1, 3))
def test_rows_and_columns_in_any_order(seed: int, cores: int) -> None:
    """Maps of 8 bits need no fixed unit."""
    random = Random(seed)
    op = resample(random, a_map(random, INT8))
    interpret.check_network(alone(op), replace(ENGINE, fixed_words=0, cores=cores), seed)


def interpolation(random: Random, source: FeatureMap) -> Interpolate:
    """Return an interpolation of integers, by any factor."""
    units, scales = random.choice((((2, 4, 16, 32), (0.5, 0.25, 0.6943219)), ((3, 7, 23), (0.5, 0.6943219))))
    places = resized_places(random, source.shape[1:], units)
    size = source.channels, len(places["rows"]), len(places["columns"])
    output = replace(sized(source, *size), zero_point=random.randint(-9, 9))
    given = Requantisation(
        significand=np.array([random.randint(1 << 23, (1 << 24) - 1) for _ in range(source.channels)]),
        shift=np.full(source.channels, random.randint(24, 36)),
        zero_point=output.zero_point,
        low=INT8.minimum,
        high=INT8.maximum,
        float32=False,
    )
    return Interpolate(
        name="op",
        input=source,
        output=output,
        window=POINT,
        **places,
        x_scale=0.5,
        y_scale=random.choice(scales),
        low=random.choice((INT8.minimum, 0)),
        high=INT8.maximum,
        in_floats=False,
        requantisation=given if random.random() < 0.3 else None,
    )


@cases_in_the_long_run(60)
@given(seed=st.integers(0, 2**32), cores=st.integers(1, 3))
def test_interpolation_of_integers(seed: int, cores: int) -> None:
    random = Random(seed)
    source = replace(a_map(random, INT8), zero_point=random.randint(-20, 20))
    op = interpolation(random, source)
    try:
        schedule(alone(op), ENGINE)
    except ModelError:
        if op.x_scale == op.y_scale:
            raise
        reject()  # a factor of 24 bits rounds no sum near a tie as float64 does
    interpret.check_network(alone(op), replace(ENGINE, cores=cores), seed)


@cases_in_the_long_run(40)
@given(seed=st.integers(0, 2**32), cores=st.integers(1, 3))
def test_interpolation_of_wide_maps(seed: int, cores: int) -> None:
    random = Random(seed)
    kind = IntegerType(bits=random.randint(9, 32), signed=random.random() < 0.7)
    op = interpolation(random, a_map(random, INT8))
    parts = op.axis_parts[0] * op.axis_parts[1]
    low, high = (kind.minimum, kind.maximum) if random.random() < 0.7 else (INT8.minimum, INT8.maximum)
    rule = Requantisation(
        significand=np.array([random.randint(1 << 23, (1 << 24) - 1) for _ in range(op.channels)]),
        shift=np.full(op.channels, 23 + parts.bit_length() + random.randint(-1, 2)),
        zero_point=0,
        low=low,
        high=high,
        float32=False,
    )
    output = replace(op.output, type=kind if high == kind.maximum else INT8, zero_point=0)
    wide = replace(
        op,
        input=replace(op.input, type=kind, zero_point=0),
        output=output,
        requantisation=rule,
        low=low,
        high=high,
    )
    interpret.check_network(alone(wide), replace(ENGINE, cores=cores), seed)


@pytest.mark.parametrize("in_floats", [False, True])
def test_interpolation_of_one_pixel(in_floats: bool) -> None:
    """Each value has one output, which a table gives, also where ONNX Runtime adds in float32."""
    source = FeatureMap(channels=9, height=1, width=1, type=INT8, zero_point=3)
    op = Interpolate(
        name="op",
        input=source,
        output=sized(source, 9, 3, 2),
        window=POINT,
        rows=(0, 0, 0),
        columns=(0, 0),
        row_weights=(1, 1, 0),
        column_weights=(1, 0),
        axis_parts=(2, 2),
        x_scale=0.3,
        y_scale=0.3,
        low=INT8.minimum,
        high=INT8.maximum,
        in_floats=in_floats,
    )
    interpret.check_network(alone(op), replace(ENGINE, fixed_words=0))


@given(indices=st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_runs_are_evenly_spaced(indices: list[int]) -> None:
    """Runs contain each output row once, and the engine has their strides."""
    copied = {}
    for run in even_runs(dict(enumerate(indices))):
        assert run.stride in STRIDES
        for number in range(run.count):
            place = run.first + number * run.step
            assert place not in copied
            copied[place] = run.source + number * run.stride
    assert copied == dict(enumerate(indices))


def test_too_uneven_rows_are_refused() -> None:
    source = FeatureMap(channels=1, height=40, width=40, type=INT8)
    rows = tuple(index * index % 41 % 40 for index in range(40))
    op = Resample(name="op", input=source, output=source, window=POINT, rows=rows, columns=rows)
    with pytest.raises(ModelError, match=r"op: the engine would copy the rows and columns of this layer in \d+ passes"):
        schedule(alone(op), ENGINE)
