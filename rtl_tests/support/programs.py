"""Small networks on small engines: their programs, the images of their memory, and what the programs compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import interpret
import numpy as np
from accelerators import a_requantisation, global_average_pool, inputs_for, integers, windows
from hypothesis import strategies as st
from pieces import Piece
from pieces import check as agree
from refusals import left_out_if

from hwgen import plan
from hwgen.gateware.engine.check import faults
from hwgen.gateware.engine.config import BUS_BYTES, EngineConfig
from hwgen.network import golden
from hwgen.network.float32 import Label
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, UINT8, FeatureMap, IntegerType, Window
from hwgen.network.ops import (
    LRN,
    Add,
    AveragePool,
    Concat,
    Conv,
    DepthToSpace,
    Join,
    Lookup,
    Max,
    MaxPool,
    Min,
    Mul,
    Op,
    SpaceToDepth,
    Sum,
    Upsample,
)
from hwgen.network.ops.lrn import Falls, Scale, magnitudes, to_bits
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.file import MapRegion
from hwgen.program.layout import unpack_map
from hwgen.program.maps import fused_layers
from hwgen.program.passes import Pass, passes
from hwgen.schedule.engine import MemoryTiming
from hwgen.templates.engine import EngineGroup, engine_group

#: Options of a plan on an engine of one core, whose array fills the DSP slices of an XC7Z020; nothing is searched.
ONE_CORE = {"template": "engine", "cores": 1, "array": (8, 13), "bus_bits": 64}

SMALL = EngineConfig(
    maps=8,
    pixels=5,
    map_words=128,
    weight_steps=128,
    parameter_words=4,
    output_words=64,
    addend_words=64,
    slots=8,
    queue=2,
)


def behind(bus_bytes: int) -> EngineConfig:
    """Return the small engine behind another bus, with as many banks of maps as a beat has words."""
    return replace(SMALL, bus_bytes=bus_bytes, pixels=max(SMALL.pixels, 11 if bus_bytes == 64 else 0))


DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@st.composite
def engines(draw) -> EngineConfig:
    """Small ones, so that layers take many tiles and chunks, behind all buses."""
    bus_bytes = draw(st.sampled_from([8, *BUS_BYTES]))
    return EngineConfig(
        bus_bytes=bus_bytes,
        maps=draw(st.sampled_from([8, 8, 16, 24])),
        pixels=draw(st.sampled_from([11, 13] if bus_bytes == 64 else [5, 7, 13])),
        map_words=draw(st.sampled_from([64, 128, 512])),
        weight_steps=draw(st.sampled_from([128, 256, 1024])),
        parameter_words=draw(st.sampled_from([4, 16])),
        output_words=draw(st.sampled_from([32, 64, 256])),
        addend_words=draw(st.sampled_from([16, 64, 256])),
        slots=draw(st.sampled_from([2, 4, 16])),
    )


def timings() -> st.SearchStrategy[MemoryTiming]:
    """Memories that take a whole number of cycles a beat, or a fraction."""
    paces = st.one_of(st.integers(1, 3), st.fractions(0.5, 3, max_denominator=85), st.just(Fraction(1, 2))).map(
        Fraction
    )
    return st.builds(
        lambda pace, latency, write_latency: MemoryTiming(
            latency=latency, write_latency=write_latency, pace=pace.numerator, pace_beats=pace.denominator
        ),
        paces, st.integers(0, 99), st.integers(0, 50),
    )  # fmt: skip


#: Refusals of random layers: small buffers or tables, and roundings that no factor gives.
REFUSALS = (
    "buffers hold no tile",
    "no lookup tables with",
    "too few for inputs",
    "no factor",
    "can't round",
    "so near a tie",
)
REFUSALS += ("products of two maps", "needs the unit for layers in fixed point")

KINDS = ["conv", "conv", "conv", "depthwise", "groups", "dense", "pool", "half", "whole", "add", "move"]
KINDS += ["multiply", "gate", "extreme", "concat", "average", "slopes"]


JOINED: dict[str, tuple[type[Join], ...]] = {"multiply": (Mul,), "extreme": (Max, Min), "concat": (Concat,)}


class Maker:
    """A chain of layers that the engine computes, in the making."""

    def __init__(self, draw, max_side: int, max_channels: int):
        self.draw, self.rng, self.most = draw, np.random.default_rng(draw(st.integers(0, 2**32))), max_channels
        self.layers: list[Op] = []
        self.edges: list[tuple[str, ...]] = []
        self.name = INPUT
        self.inputs = [INPUT]
        sides = draw(st.integers(1, max_side)), draw(st.integers(1, max_side))
        self.map = self.a_map(draw(st.integers(1, max_channels)), *sides)

    def a_map(self, channels: int, height: int, width: int) -> FeatureMap:
        kind = UINT8 if self.rng.integers(2) else INT8
        zero = int(self.rng.integers(kind.minimum, kind.maximum + 1))
        return FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero)

    def add(self) -> None:
        before = self.map
        kind = self.draw(st.sampled_from(KINDS))
        name = f"{kind}{len(self.layers)}"
        if kind in JOINED:
            self.joined(name, kind)
        elif kind == "gate":
            self.gate(name)
        elif kind == "average":
            self.average(name)
        elif kind == "slopes":
            self.slopes(name)
        elif kind == "add":
            self.residual(name)
        elif kind == "move":
            self.append(self.move(name))
        elif kind == "whole":
            self.append(global_average_pool(self.rng, name, before))
        elif kind == "pool" or (kind == "half" and min(before.shape[1:]) > 1):
            window = self.window() if kind == "pool" else Window(kernel=(2, 2), stride=(2, 2))
            rows, columns = window.output_size(before.height, before.width)
            after = replace(before, height=rows, width=columns)
            self.append(MaxPool(name=name, input=before, output=after, window=window))
        else:
            self.append(self.conv(name, kind, Window(kernel=before.shape[1:]) if kind == "dense" else self.window()))

    @property
    def network(self) -> Network:
        ends = {"inputs": tuple(self.inputs), "edges": tuple(self.edges)}
        return Network(name="random", layers=tuple(self.layers), **ends)

    def other(self, source: FeatureMap, edge: str) -> tuple[FeatureMap, str]:
        """Return a map with its edge: the given one, or a further input of the network of the same shape."""
        if self.draw(st.integers(0, 3)):
            return source, edge
        self.inputs.append(f"input{len(self.inputs)}")
        return self.a_map(*source.shape), self.inputs[-1]

    def append(self, layer: Op, *others: str) -> None:
        """Append a layer that reads the last layer's map and the maps of others."""
        self.layers.append(layer)
        self.edges.append((self.name, *others))
        self.name, self.map = layer.name, layer.output

    def move(self, name: str) -> Op:
        """Blocks of 2 x 2 pixels, of channels or of copies."""
        kind, before = self.draw(st.sampled_from([Upsample, DepthToSpace, SpaceToDepth])), self.map
        if (kind is DepthToSpace and before.channels % 4) or (
            kind is SpaceToDepth and (before.height % 2 or before.width % 2)
        ):
            kind = Upsample
        return moved(name, kind, before, **{"factors" if kind is Upsample else "blocks": (2, 2)})

    def residual(self, name: str) -> None:
        """Append a layer that keeps the map's size, and the sum of its input and its output, in either order."""
        other, before = self.name, self.map
        padding = Window(kernel=(3, 3), padding=(1,) * 4)
        kind = self.draw(st.sampled_from(["depthwise", "pool", "conv"]))
        if kind == "pool":
            self.append(MaxPool(name=f"{name}_pool", input=before, output=before, window=padding))
        else:
            self.append(self.conv(f"{name}_{kind}", kind, padding, before.channels))
        before, other = self.other(before, other)
        self.append(self.a_sum(name, self.map, before), other)
        if self.draw(st.booleans()):
            self.layers[-1] = self.a_sum(name, before, self.layers[-2].output)
            self.edges[-1] = self.edges[-1][::-1]
            self.map = self.layers[-1].output

    def joined(self, name: str, kind: str) -> None:
        """Append a layer that keeps rows and columns, and a product, a maximum or a concatenation of both maps."""
        other, before = self.name, self.map
        channels = self.draw(st.integers(1, self.most)) if kind == "concat" else before.channels
        self.append(self.conv(f"{name}_conv", "conv", Window(kernel=(3, 3), padding=(1,) * 4), channels))
        operator = self.draw(st.sampled_from(JOINED[kind]))
        before, other = self.other(before, other)
        self.append(self.a_join(name, operator, self.map, before), other)

    def gate(self, name: str) -> None:
        """Append a global average pool, and a product of its output and all pixels of its input."""
        other, before = self.name, self.map
        self.append(global_average_pool(self.rng, f"{name}_whole", before))
        pixel, self.name = self.name, other
        self.append(self.a_join(name, Mul, before, self.map), pixel)

    def a_join(self, name: str, kind: type[Join], *sources: FeatureMap) -> Join:
        scales = self.rng.uniform(0.1, 1, 2)
        after = self.a_map(sources[0].channels, *sources[0].shape[1:])
        last = scales.max() * self.rng.uniform(0.5, 1.5)
        if kind is Mul:
            last = scales.prod() * self.rng.uniform(20, 200)
        if kind is Concat:
            after = replace(after, channels=sum(each.channels for each in sources))
        labels = tuple(
            Label(float(np.float32(scale)), each.zero_point)
            for scale, each in zip((*scales, last), (*sources, after), strict=True)
        )
        maps = {"input": sources[0], "more": sources[1:], "output": after, "window": Window(kernel=(1, 1))}
        low = after.zero_point if self.rng.integers(2) else after.type.minimum
        return kind(name=name, **maps, labels=labels, low=low, high=after.type.maximum)

    def average(self, name: str) -> None:
        """Append an average pool; half of them have as many values in all windows."""
        before = self.map
        window = replace(self.draw(windows(before.height, before.width)), dilation=(1, 1))
        rows, columns = window.output_size(before.height, before.width)
        after = replace(self.a_map(before.channels, rows, columns))
        scales = (float(np.float32(scale)) for scale in self.rng.uniform(0.1, 1, 2))
        maps = {"input": before, "output": after, "window": window}
        include = self.draw(st.booleans())
        with left_out_if("not only padding"):
            layer = AveragePool(name=name, **maps, x_scale=next(scales), y_scale=next(scales), include_padding=include)
        self.append(layer)

    def slopes(self, name: str) -> None:
        """Append a line for each channel (an affine function), or one for its negative values (PRelu)."""
        before, rng = self.map, self.rng
        after = self.a_map(*before.shape)
        values = np.arange(before.type.minimum, before.type.maximum + 1) - before.zero_point
        slopes = rng.uniform(0.1, 1.2, (before.channels, 1))
        reals = np.where(values < 0, values * slopes, values)
        if self.draw(st.booleans()):
            reals = values * slopes * rng.choice([-1, 1], (before.channels, 1)) + rng.uniform(-20, 20, slopes.shape)
        table = np.clip(np.rint(reals) + after.zero_point, after.type.minimum, after.type.maximum)
        maps = {"input": before, "output": after, "window": Window(kernel=(1, 1))}
        self.append(Lookup(name=name, **maps, table=table.astype(np.int64)))

    def a_sum(self, name: str, first: FeatureMap, second: FeatureMap) -> Add:
        after = self.a_map(*first.shape)
        labels = tuple(Label(self.rng.uniform(0.1, 1), each.zero_point) for each in (first, second, after))
        low, high = sorted(self.rng.integers(after.type.minimum, after.type.maximum + 1, 2).tolist())
        if self.rng.integers(2):
            low, high = after.type.minimum, after.type.maximum
        fused = bool(self.rng.integers(2))
        maps = {"input": first, "more": (second,), "output": after, "window": Window(kernel=(1, 1))}
        return Add(name=name, **maps, labels=labels, fused=fused, low=low, high=high)

    def window(self) -> Window:
        return self.draw(windows(self.map.height, self.map.width))

    def conv(self, name: str, kind: str, window: Window, outputs: int | None = None) -> Conv:
        before, rng = self.map, self.rng
        maps = groups = before.channels
        if kind == "groups" and before.channels % 8 == 0:
            groups = before.channels // 8
            maps = groups * 8 * self.draw(st.integers(1, 2))
        elif kind != "depthwise":
            groups, maps = 1, outputs or self.draw(st.integers(1, self.most))
        limit = int(rng.integers(1, 128))
        layer = Conv(
            name=name,
            input=before,
            output=self.a_map(maps, *window.output_size(before.height, before.width)),
            window=window,
            weights=integers(rng, -limit, limit, (maps, before.channels // groups, *window.kernel)),
            bias=rng.integers(-(1 << 12), 1 << 12, maps),
            requantisation=None,
            groups=groups,
        )
        return replace(layer, requantisation=replace(a_requantisation(rng, layer), float32=True))


def moved(name: str, kind: type[Op], source: FeatureMap, **parameters: tuple[int, int]) -> Op:
    """Return a layer that moves pixels of a map, without arithmetic."""
    (down, right), (channels, rows, columns) = next(iter(parameters.values())), source.shape
    if kind is SpaceToDepth:
        rows, columns, channels = rows // down, columns // right, channels * down * right
    else:
        rows, columns, channels = (
            rows * down,
            columns * right,
            channels // (down * right if "blocks" in parameters else 1),
        )
    output = replace(source, channels=channels, height=rows, width=columns)
    return kind(name=name, input=source, output=output, window=Window(kernel=(1, 1)), **parameters)


@st.composite
def networks(draw, max_layers: int = 2, max_side: int = 12, max_channels: int = 40) -> Network:
    maker = Maker(draw, max_side, max_channels)
    for _ in range(draw(st.integers(1, max_layers))):
        maker.add()
    return maker.network


def check(found: ProgramSchedule, seed: int = 1) -> None:
    """Interpreted, the program gives what the golden model gives; no engine refuses its jobs."""
    assert not [each for number, job in enumerate(found.jobs) for each in faults(found.engine, number, job)]
    frames = inputs_for(found.network, 1, seed)
    for got, expected in zip(
        interpret.run_outputs(found.program, *frames), golden.outputs(found.network, frames), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def scheduled(network: Network, engine: EngineConfig) -> ProgramSchedule:
    """Schedule of a network; cases are left out where buffers or tables are too small, or no factor rounds alike."""
    with left_out_if(*REFUSALS):
        return schedule(network, engine)


def conv(kernel=3, channels=24, maps=40, size=(9, 14), stride=1, **parameters) -> Conv:
    """One with weights of every kind, on uint8 maps."""
    rng = np.random.default_rng(0)
    window = Window(kernel=(kernel, kernel), stride=(stride, stride), padding=(kernel // 2,) * 4)
    rows, columns = window.output_size(*size)
    layer = Conv(
        name="conv",
        input=FeatureMap(channels=channels, height=size[0], width=size[1], type=UINT8, zero_point=7),
        output=FeatureMap(channels=maps, height=rows, width=columns, type=UINT8, zero_point=100),
        window=window,
        weights=rng.integers(-128, 128, (maps, channels, kernel, kernel)),
        bias=rng.integers(-1000, 1000, maps),
        requantisation=None,
    )
    rule = replace(a_requantisation(rng, layer), float32=True)
    return replace(layer, **{"requantisation": rule} | parameters)


def two_inputs() -> Network:
    """A sum of two inputs, of int8 and uint8."""
    first = FeatureMap(channels=9, height=3, width=4, type=INT8, zero_point=-7)
    second, after = replace(first, type=UINT8, zero_point=120), replace(first, zero_point=3)
    labels = tuple(Label(scale, each.zero_point) for scale, each in ((0.3, first), (0.7, second), (0.9, after)))
    maps = {"input": first, "more": (second,), "output": after, "window": Window(kernel=(1, 1))}
    add = Add(name="add", **maps, labels=labels, fused=True, low=-128, high=127)
    return Network(name="two", layers=(add,), edges=(("first", "second"),), inputs=("first", "second"))


def alone(op: Op) -> Network:
    """Return a network of one layer, whose inputs are the network's."""
    names = tuple(f"input_{index}" for index in range(len(op.inputs))) if len(op.inputs) > 1 else (INPUT,)
    return Network(name="alone", layers=(op,), edges=(names,), inputs=names)


def resized_places(random: Random, shape: tuple[int, int], units: Sequence[int]) -> dict[str, tuple]:
    """Return the fields of an `Interpolate` that say which pixels it reads: random places in order, in units' parts."""
    indices, weights, parts = [], [], []
    for size in shape:
        count, unit = random.randint(1, 9), random.choice(units)
        places = sorted(random.randrange(size * unit) for _ in range(count))  # after the last row: the last row
        indices.append(tuple(place // unit for place in places))
        weights.append(tuple(place % unit for place in places))
        parts.append(unit)
    (rows, columns), (row_weights, column_weights) = indices, weights
    return {
        "rows": rows,
        "columns": columns,
        "row_weights": row_weights,
        "column_weights": column_weights,
        "axis_parts": tuple(parts),
    }


def tamed(network: Network) -> Network:
    """Return a network with convolutions as in 8-bit models, and with weights that an engine supports."""
    layers = []
    for layer in network.layers:
        if isinstance(layer, Conv):
            rule = layer.requantisation and replace(layer.requantisation, float32=True)
            layer = replace(layer, requantisation=rule, fraction=0, weights=np.maximum(layer.weights, -128))
        layers.append(layer)
    return replace(network, layers=tuple(layers))


def joined_maps() -> Network:
    """Concatenations in one another, of a map with several readers, of the input, and of one with another scale."""
    source = FeatureMap(channels=8, height=5, width=6, type=UINT8, zero_point=3, scale=0.5)
    base = conv(channels=8, maps=16, size=(5, 6))
    layers, edges, maps = [], [], {INPUT: source}

    def add(layer: Op, *those: str) -> None:
        layers.append(layer)
        edges.append(those)
        maps[layer.name] = layer.output

    def convolve(name: str, edge: str, scale: float) -> None:
        before = maps[edge]
        weights = np.resize(base.weights, (16, before.channels, 3, 3))
        after = replace(base.output, scale=scale)
        add(replace(base, name=name, input=before, output=after, weights=weights), edge)

    def join(name: str, *those: str) -> None:
        inputs = [maps[each] for each in those]
        output = replace(inputs[0], channels=sum(each.channels for each in inputs))
        labels = tuple(Label(each.scale, each.zero_point) for each in (*inputs, output))
        kind = {"window": Window(kernel=(1, 1)), "labels": labels, "low": 0, "high": 255}
        add(Concat(name=name, input=inputs[0], more=tuple(inputs[1:]), output=output, **kind), *those)

    convolve("first", INPUT, 0.25)
    convolve("second", "first", 0.25)
    convolve("third", "second", 0.125)
    join("inner", "first", "second")
    join("outer", "inner", "third", INPUT)
    convolve("last", "outer", 0.25)
    return Network(name="joined", layers=tuple(layers), edges=tuple(edges), outputs=("last", "inner"))


def alone_chain(op: Conv, count: int) -> Network:
    """Return a network that repeats a convolution ``count`` times."""
    layers = [replace(op, name="conv0")]
    for number in range(1, count):
        before = layers[-1].output
        weights = np.resize(op.weights, (op.outputs, before.channels, *op.window.kernel))
        layer = replace(op, name=f"conv{number}", input=before, weights=weights)
        layers.append(replace(layer, requantisation=op.requantisation))
    return Network(name="chain", layers=tuple(layers))


def clamped(scale: float, zero: int) -> Network:
    """Return a network of a convolution and a sum that a second quantiser clamps, checked against ONNX Runtime."""
    piece = Piece((4, 3, 5), np.int8, scale=0.5, zero=0)
    values = piece.real()
    branch = piece.requantise(piece.conv(values, 4, 4, pads=[1] * 4), 0.37, 0, np.int8)
    total = piece.requantise(piece.node("Add", values, branch), 0.61, 0, np.int8)
    model = piece.model(piece.quantise(piece.node("Relu", total), scale, zero, np.int8))
    return agree(model, piece.frames(8))


def bottleneck(rng: np.random.Generator, side: int, channels: tuple[int, int, int], stride: int = 1) -> Network:
    """Return a network of an expansion, a depthwise convolution and a projection, with random operands."""
    inputs, inner, outputs = channels
    source = FeatureMap(channels=inputs, height=side, width=side, type=UINT8, zero_point=9)
    padded = Window(kernel=(3, 3), stride=(stride, stride), padding=(1,) * 4)
    layers: list[Conv] = []
    for name, count, window in (
        ("expand", inner, Window(kernel=(1, 1))),
        ("depthwise", inner, padded),
        ("project", outputs, Window(kernel=(1, 1))),
    ):
        before = layers[-1].output if layers else source
        rows, columns = window.output_size(before.height, before.width)
        groups = inner if name == "depthwise" else 1
        layer = Conv(
            name=name,
            input=before,
            output=replace(source, channels=count, height=rows, width=columns, zero_point=30),
            window=window,
            weights=integers(rng, -99, 99, (count, before.channels // groups, *window.kernel)),
            bias=rng.integers(-1000, 1000, count),
            requantisation=None,
            groups=groups,
        )
        layers.append(replace(layer, requantisation=replace(a_requantisation(rng, layer), float32=True)))
    return Network(name="bottleneck", layers=tuple(layers))


def group_of(made: plan.Plan) -> EngineGroup:
    (group,) = made.groups
    return engine_group(group)


def tasks_of(network: Network) -> list[Pass]:
    return [task for step in fused_layers(network) for task in passes(step.ops, step.takes, step.inside)]


def image(found: ProgramSchedule, seed: int) -> tuple[bytes, list[np.ndarray]]:
    """Memory with random frames of a run, and the frames ``(n, C, H, W)`` of each input."""
    frames, program = inputs_for(found.network, found.frames, seed), found.program
    memory = bytearray(np.random.default_rng(seed).bytes(found.size))
    memory[: len(program.image)] = program.image
    for region, values in zip(program.inputs, frames, strict=True):
        for number, frame in enumerate(values):
            memory[region.at(number)] = region.pack(frame)
    return bytes(memory), frames


def given_frame(packed: bytes, region: MapRegion) -> np.ndarray:
    """The frame ``(C, H, W)`` of an input whose bytes are in memory; each value is there at least once."""
    if region.unfold is None:
        return unpack_map(packed, region.map)
    stored = unpack_map(packed, region.unfold.map(region.map))
    # Values outside of the map are bytes, and the others here are numbers beyond.
    numbers = 1000 + np.arange(np.prod(region.map.shape)).reshape(region.map.shape)
    taken = region.unfold.apply(numbers, region.map.type)
    frame = np.zeros(numbers.size, stored.dtype)
    frame[taken[taken >= 1000] - 1000] = stored[taken >= 1000]
    return frame.reshape(region.map.shape)


def summed(scales: list[float], shape: tuple[int, int, int], kind: IntegerType = INT8, seed: int = 0) -> Network:
    """Return a network that adds inputs of given scales; the last scale is that of the output."""
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    maps = [
        FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=int(zero))
        for zero in rng.integers(kind.minimum, kind.maximum + 1, len(scales))
    ]
    labels = tuple(
        Label(float(np.float32(scale)), source.zero_point) for scale, source in zip(scales, maps, strict=True)
    )
    sides = {"input": maps[0], "more": tuple(maps[1:-1]), "output": maps[-1], "window": Window(kernel=(1, 1))}
    layer = Sum(name="sum", **sides, labels=labels, low=kind.minimum, high=kind.maximum)
    names = tuple(f"input{index}" for index in range(len(scales) - 1))
    return Network(name="summed", layers=(layer,), edges=(names,), inputs=names)


def normalised(
    shape: tuple[int, int, int], kind: IntegerType, size: int, most: int, seed: int = 0, thresholds: int = 1
) -> Network:
    """Return a normalisation whose squares are up to ``most`` steps of float32 at 1; some values have thresholds."""
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    zero, target = (int(each) for each in rng.integers(kind.minimum, kind.maximum + 1, 2))
    source = FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero)
    count = magnitudes(kind.minimum, kind.maximum, zero)
    squares = np.rint(np.arange(count) ** 2 * most / count**2)
    scale = Scale(bias=1.0, size=size, channels=channels, terms=(squares * 2.0**-23).astype(np.float32))
    falling = rng.integers(0, 2, count) * thresholds
    spans = size * int(squares.max()) + 2
    at = np.concatenate([np.sort(rng.integers(0, spans, falls)) + 64 * np.arange(falls) for falls in falling])
    falls = Falls(
        last_distance=np.rint(np.arange(count) * rng.uniform(0.3, 1)).astype(np.int64),
        first=np.cumsum([0, *falling]),
        at=at.astype(np.int64) + int(to_bits(np.float32(1))),
        ripples=np.zeros(len(at), np.int64),
    )
    sides = {"input": source, "output": replace(source, zero_point=target), "window": Window(kernel=(1, 1))}
    return alone(LRN(name="lrn", **sides, scale=scale, falls=falls, low=kind.minimum, high=kind.maximum))
