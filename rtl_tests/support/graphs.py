"""Random small networks that branch, with random plans, and random joins of maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from accelerators import Case, choices, integers, requantised, size_buffers, windows
from hypothesis import strategies as st

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.float32 import Label
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import FeatureMap, IntegerType, Requantisation, Window
from hwgen.network.onnx.lrn_thresholds import tabulate_falls
from hwgen.network.ops import (
    LRN,
    Add,
    Concat,
    Conv,
    Crop,
    DepthToSpace,
    GlobalAveragePool,
    Join,
    Lookup,
    Max,
    MaxPool,
    Min,
    Mul,
    Op,
    Pad,
    Select,
    SpaceToDepth,
    Sub,
    Sum,
    Upsample,
)
from hwgen.network.ops.lrn import Falls, Scale
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll

#: Scales that meet in a sum: equal ones and powers of two make ties, others hardly ever do.
SCALES = [0.5, 0.25, 0.0625, 0.1, 0.0371]

#: Steps of a `Maker` that make layers which an engine doesn't compute.
NOT_ON_ENGINES = {"lrn"}


def pixels_of(source: FeatureMap) -> int:
    return source.height * source.width


@cache
def normalisation(channels: int, size: int, alpha: float, x_scale: float, y_scale: float) -> tuple[Scale, Falls]:
    """Return the tables of a local response normalisation of 8-bit maps with these scales."""
    x = np.arange(256, dtype=np.float32) * np.float32(x_scale)
    scale = Scale(bias=1.0, size=size, channels=channels, terms=np.float32(alpha / size) * (x * x))
    return scale, tabulate_falls(scale, 0.75, np.float32(x_scale), np.float32(y_scale), 255)


class Maker:
    """A network in the making; for an engine, of layers that the engine computes."""

    def __init__(self, draw, max_side: int, inputs: int = 1, *, for_engine: bool = False):
        self.draw, self.rng = draw, np.random.default_rng(draw(st.integers(0, 2**32)))
        self.for_engine = for_engine
        self.layers: list[Op] = []
        self.edges: list[tuple[str, ...]] = []
        height, width = draw(st.integers(1, max_side)), draw(st.integers(1, max_side))
        self.maps = {INPUT: self.a_map(draw(st.integers(1, 4)), height, width)}
        self.read: set[str] = set()
        self.inputs = (INPUT,)
        if inputs > 1:
            self.inputs = tuple(f"view {place}" for place in range(inputs))
            self.maps = {edge: self.another(self.maps[INPUT], max_side) for edge in self.inputs}

    def another(self, source: FeatureMap, max_side: int) -> FeatureMap:
        """Draw a map of any size or of the source's size, with any channels or the source's channels."""
        draw = self.draw
        height, width = (draw(st.integers(1, max_side)) for _ in range(2))
        if draw(st.booleans()):
            height, width = source.height, source.width
        channels = source.channels if draw(st.booleans()) else draw(st.integers(1, 4))
        return self.a_map(channels, height, width)

    def a_map(self, channels: int, height: int, width: int) -> FeatureMap:
        kind = IntegerType(bits=int(self.rng.choice([8, 8, 4])), signed=bool(self.rng.integers(2)))
        zero = int(self.rng.integers(kind.minimum, kind.maximum + 1))
        scale = float(np.float32(self.rng.choice(SCALES)))
        return FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero, scale=scale)

    def add_layer(self, layer: Op, *edges: str) -> str:
        self.layers.append(layer)
        self.edges.append(edges)
        self.maps[layer.name] = layer.output
        self.read.update(edges)
        return layer.name

    def name(self, kind: str) -> str:
        return f"{kind}{len(self.layers)}"

    def conv(self, source: str, window: Window, channels: int | None = None) -> str:
        before, rng = self.maps[source], self.rng
        rows, columns = window.output_size(before.height, before.width)
        groups = self.draw(st.sampled_from([1, 1, before.channels]))
        channels = channels or groups * self.draw(st.integers(1, max(1, 5 // groups)))
        groups = groups if channels % groups == 0 else 1
        limit = 1 << int(rng.integers(1, 8))
        layer = Conv(
            name=self.name("conv"),
            input=before,
            output=self.a_map(channels, rows, columns),
            window=window,
            weights=integers(rng, -limit, limit - 1, (channels, before.channels // groups, *window.kernel)),
            bias=rng.integers(-(1 << 10), 1 << 10, channels),
            requantisation=None,
            groups=groups,
        )
        return self.add_layer(requantised(rng, layer), source)

    def pool(self, source: str, window: Window) -> str:
        before = self.maps[source]
        rows, columns = window.output_size(before.height, before.width)
        after = replace(before, height=rows, width=columns)
        return self.add_layer(MaxPool(name=self.name("pool"), input=before, output=after, window=window), source)

    def whole(self, source: str) -> str:
        """Add a global average pool, whose output map has one pixel."""
        before = self.maps[source]
        kind, pixels = before.type, before.height * before.width
        layer = GlobalAveragePool(
            name=self.name("whole"),
            input=before,
            output=replace(before, height=1, width=1),
            window=Window(kernel=(before.height, before.width)),
            requantisation=Requantisation(
                significand=np.full(before.channels, 1 << 23),
                shift=np.full(before.channels, 23 + pixels.bit_length() - 1),
                zero_point=before.zero_point,
                low=kind.minimum,
                high=kind.maximum,
                float32=True,
            ),
        )
        return self.add_layer(layer, source)

    def joined(self, kind: type[Join], *sources: str) -> str:
        inputs = [self.maps[source] for source in sources]
        channels = sum(each.channels for each in inputs) if kind is Concat else inputs[0].channels
        output = self.a_map(channels, inputs[0].height, inputs[0].width)
        if self.rng.integers(2):
            output = replace(inputs[0], channels=channels)
        return self.add_layer(random_join(kind, self.name(kind.kind), inputs, output, self.rng), *sources)

    def join(self, left: list[str]) -> str:
        """One map of some, of pixels made of all of each where their sizes differ."""
        sizes = {self.maps[name].shape[1:] for name in left}
        if len(sizes) > 1:
            left = [self.whole(name) if self.maps[name].shape[1:] != (1, 1) else name for name in left]
        return self.concatenated(*left) if len(left) > 1 else left[0]

    def concatenated(self, *sources: str) -> str:
        return self.joined(Concat, *sources)

    def window(self, source: str) -> Window:
        """Any window, not dilated."""
        before = self.maps[source]
        return replace(self.draw(windows(before.height, before.width)), dilation=(1, 1))

    def upsample(self, source: str) -> str:
        before = self.maps[source]
        factors = self.draw(st.sampled_from([(2, 2), (1, 2), (2, 1), (1, 3), (3, 2)]))
        after = replace(before, height=before.height * factors[0], width=before.width * factors[1])
        layer = Upsample(
            name=self.name("upsample"), input=before, output=after, window=Window(kernel=(1, 1)), factors=factors
        )
        return self.add_layer(layer, source)

    def lookup(self, source: str) -> str:
        """Any function of one value, the same for all channels or (not for an engine) one for each."""
        before = self.maps[source]
        after = self.a_map(before.channels, before.height, before.width)
        tables = 1 if self.for_engine else self.draw(st.sampled_from([1, before.channels]))
        layer = Lookup(
            name=self.name("lookup"),
            input=before,
            output=after,
            window=Window(kernel=(1, 1)),
            table=integers(self.rng, after.type.minimum, after.type.maximum, (tables, 1 << before.type.bits)),
        )
        return self.add_layer(layer, source)

    def select(self, source: str) -> str:
        """Any channels in any order."""
        before = self.maps[source]
        index = self.draw(st.lists(st.integers(0, before.channels - 1), min_size=1, max_size=6))
        layer = Select(
            name=self.name("select"),
            input=before,
            output=replace(before, channels=len(index)),
            window=Window(kernel=(1, 1)),
            index=tuple(index),
        )
        return self.add_layer(layer, source)

    def lrn(self, source: str) -> str:
        """Add a local response normalisation, with rounded or exact sums, and of small or large effect."""
        before, draw = self.maps[source], self.draw
        after = self.a_map(before.channels, before.height, before.width)
        alpha, size = draw(st.sampled_from([1e-4, 1e-3, 1e-1])), draw(st.sampled_from([3, 5]))
        assert before.scale is not None
        assert after.scale is not None
        scale, falls = normalisation(before.channels, size, alpha, before.scale, after.scale)
        layer = LRN(
            name=self.name("lrn"),
            input=before,
            output=after,
            window=Window(kernel=(1, 1)),
            scale=scale,
            falls=falls,
            low=after.type.minimum,
            high=after.type.maximum,
        )
        return self.add_layer(layer, source)

    def blocks(self, source: str) -> str:
        """Pixels of channels, or channels of pixels where the map has whole blocks."""
        sizes = [(2, 2), (1, 2), (2, 1), (3, 2)]
        before, blocks = self.maps[source], self.draw(st.sampled_from(sizes))
        count, channels = blocks[0] * blocks[1], before.channels
        common = {"window": Window(kernel=(1, 1)), "blocks": blocks}
        if before.height % blocks[0] == before.width % blocks[1] == 0:
            rows, columns = before.height // blocks[0], before.width // blocks[1]
            after = replace(before, channels=channels * count, height=rows, width=columns)
            return self.add_layer(SpaceToDepth(name=self.name("deep"), input=before, output=after, **common), source)
        if channels % count:
            source = self.same(source, count * self.draw(st.integers(1, 2)))
            before = self.maps[source]
        rows, columns = before.height * blocks[0], before.width * blocks[1]
        after = replace(before, channels=before.channels // count, height=rows, width=columns)
        return self.add_layer(DepthToSpace(name=self.name("wide"), input=before, output=after, **common), source)

    def crop(self, source: str) -> str:
        """Add a crop, a padding, or both at once."""
        before, pads = self.maps[source], self.draw(st.booleans())
        padding = tuple(self.draw(st.integers(-2, 2 * pads)) for _ in range(4))
        strides = self.draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
        window = Window(kernel=(1, 1), stride=strides, padding=padding)
        rows, columns = window.output_size(before.height, before.width)
        if min(rows, columns) < 1:
            return self.select(source)
        after = replace(before, height=rows, width=columns)
        if pads:
            value = int(self.rng.integers(before.type.minimum, before.type.maximum + 1))
            layer = Pad(name=self.name("pad"), input=before, output=after, window=window, value=value)
        else:
            layer = Crop(name=self.name("crop"), input=before, output=after, window=window)
        return self.add_layer(layer, source)

    def same(self, source: str, channels: int | None = None) -> str:
        """Add a convolution that keeps rows and columns."""
        kernel = self.draw(st.sampled_from([(1, 1), (3, 3), (1, 3)]))
        top, left = kernel[0] // 2, kernel[1] // 2
        return self.conv(source, Window(kernel=kernel, padding=(top, left, top, left)), channels)

    def step(self) -> None:
        draw = self.draw
        source = draw(st.sampled_from(list(self.maps)))
        kinds = ["conv", "pool", "residual", "residual", "double", "concat", "product", "scaled", "lookup", "sum"]
        kinds += ["select", "crop", "lrn"] + ["upsample", "blocks"] * (pixels_of(self.maps[source]) <= 12)
        if self.for_engine:
            kinds = [kind for kind in kinds if kind not in NOT_ON_ENGINES]
        kind = draw(st.sampled_from(kinds))
        before = self.maps[source]
        if kind == "conv":
            self.conv(source, self.window(source))
        elif kind == "pool":
            self.pool(source, self.window(source))
        elif kind == "residual":
            other = self.same(source, before.channels)
            if draw(st.booleans()):
                other = self.same(other, before.channels)
            self.joined(draw(st.sampled_from([Add, Add, Sub, Max, Min])), *draw(st.permutations([source, other])))
        elif kind == "blocks":
            self.blocks(source)
        elif kind == "crop":
            self.crop(source)
        elif kind == "select":
            self.select(source)
        elif kind == "lrn":
            self.lrn(source)
        elif kind == "upsample":
            self.upsample(source)
        elif kind == "lookup":
            self.lookup(source)
        elif kind == "product":
            self.joined(Mul, *draw(st.permutations([source, self.same(source, before.channels)])))
        elif kind == "scaled":  # as squeeze-and-excitation does; or with the next frame's pixel early
            pixel = self.whole(source)
            if draw(st.booleans()):
                pixel = self.conv(pixel, Window(kernel=(1, 1)), before.channels)
            self.joined(Mul, self.same(source, before.channels) if draw(st.booleans()) else source, pixel)
        elif kind == "sum":
            others = [self.same(source, before.channels) for _ in range(draw(st.integers(1, 2)))]
            kinds = [Max, Min] if self.for_engine else [Sum, Max, Min]
            self.joined(draw(st.sampled_from(kinds)), *draw(st.permutations([source, *others, others[0]])))
        elif kind == "double":  # the same map twice
            self.joined(Add, source, source)
        else:
            others = [self.same(source) for _ in range(draw(st.integers(1, 2)))]
            self.concatenated(*draw(st.permutations([source, *others])))

    def join_inputs(self) -> None:
        """Two inputs, as they come in, in one layer if their maps fit; and what nobody reads in a layer of its own."""
        first, second = self.draw(st.permutations(self.inputs))[:2]
        one, other = self.maps[first], self.maps[second]
        if one.shape[1:] == other.shape[1:] and self.draw(st.booleans()):
            kinds = [Concat, Add, Sub, Mul] if one.channels == other.channels else [Concat]
            self.joined(self.draw(st.sampled_from(kinds)), first, second)
        elif other.shape == (one.channels, 1, 1):
            self.joined(Mul, first, second)
        for edge in self.inputs:
            if edge not in self.read:
                self.same(edge)

    def with_outputs(self) -> Network:
        """Two outputs or three, those among them that nobody reads; the others joined."""
        left = [layer.name for layer in self.layers if layer.name not in self.read]
        count = self.draw(st.integers(2, 3))
        if len(left) > count:
            left = [*left[: count - 1], self.join(left[count - 1 :])]
        names = [layer.name for layer in self.layers]
        while len(left) < count:  # of what others read, too; perhaps the same twice
            left.append(self.draw(st.sampled_from(names)))
        outputs = tuple(self.draw(st.permutations(left)))
        return self.network(outputs)

    def finish(self) -> Network:
        """All that nobody reads, joined."""
        left = [layer.name for layer in self.layers if layer.name not in self.read]
        self.join(left)
        return self.network()

    def network(self, outputs: tuple[str, ...] = ()) -> Network:
        layers, edges = tuple(self.layers), tuple(self.edges)
        network = Network(name="graph", layers=layers, edges=edges, inputs=self.inputs, outputs=outputs)
        return network.with_inputs_read_once()


@st.composite
def graphs(
    draw, *, max_steps: int = 3, max_side: int = 6, several: bool = False, inputs: int = 1, for_engine: bool = False
) -> Network:
    """Draw a network with forks, sums and concatenations, with one or ``several`` outputs, and one or more inputs."""
    maker = Maker(draw, max_side, inputs, for_engine=for_engine)
    for _ in range(draw(st.integers(1, max_steps))):
        maker.step()
    if inputs > 1:
        maker.join_inputs()
    return maker.with_outputs() if several else maker.finish()


@st.composite
def unrolls(draw, network: Network) -> tuple[LayerPlan, ...]:
    """Any unroll factors, with ample buffers."""
    wide = draw(st.sampled_from([1, 1, 2]))
    if any(isinstance(layer, DepthToSpace | SpaceToDepth) for layer in network.layers):
        wide = 1
    plans: list[LayerPlan] = []
    pixels = {edge: min(wide, source.width) for edge, source in zip(network.inputs, network.input_maps, strict=True)}
    for layer, edges in zip(network.layers, network.edges, strict=True):
        stage = stage_of(layer)
        tp = pixels[layer.name] = min(wide, layer.output.width)
        if stage.direct_inputs or isinstance(layer, Join):
            tp = pixels[layer.name] = pixels[edges[0]]
        tn = draw(st.integers(1, stage.max_lanes[0]))
        tm = tn if stage.channelwise else draw(st.integers(1, stage.max_lanes[1]))
        unroll = Unroll(tn, tm, draw(st.integers(1, layer.taps)) if stage.has_line_buffer else 1, tp)
        readers = len(network.readers[layer.name]) + len(network.output_indices(layer.name))
        plans.append(draw(choices(stage, unroll, pixels[edges[0]], readers)))
    return tuple(plans)


@st.composite
def converted(draw, config: AcceleratorConfig, plans: tuple[LayerPlan, ...]) -> tuple[LayerPlan, ...]:
    """Any of the width converters to fewer beats before their FIFOs."""
    first = [[draw(st.booleans()) for regroup in layer.regroups if regroup.widens] for layer in config.layers]
    chosen = (
        tuple(regroup.widens and flags.pop() for regroup in layer.regroups)
        for layer, flags in zip(config.layers, first, strict=True)
    )
    return tuple(
        replace(plan, converts_first=flags if any(flags) else ()) for plan, flags in zip(plans, chosen, strict=True)
    )


@st.composite
def graph_cases(draw, *, sized: bool = False, **limits) -> Case:
    """Draw a network and its accelerator, with buffers of the size that the schedule gives (``sized``), or larger."""
    network = draw(graphs(**limits))
    plans = draw(unrolls(network))
    plans = draw(converted(compose(network, plans), plans))
    config = compose(network, plans)
    rows, depths = size_buffers(config)
    if not sized and draw(st.booleans()):
        depths = [tuple(depth + draw(st.integers(0, 9)) for depth in each) for each in depths]
    return Case(network, compose(network, with_buffers(plans, rows, depths)))


def random_join(
    kind: type[Join], name: str, inputs: Sequence[FeatureMap], output: FeatureMap, rng: np.random.Generator
) -> Join:
    """Return a join of ``inputs`` whose lower clamp, and rounding for an Add, are drawn."""
    parameters = {"fused": bool(rng.integers(2))} if kind is Add else {}
    return kind(
        name=name,
        input=inputs[0],
        more=tuple(inputs[1:]),
        output=output,
        window=Window(kernel=(1, 1)),
        labels=tuple(Label(source.scale, source.zero_point) for source in (*inputs, output)),
        low=output.zero_point if rng.integers(2) else output.type.minimum,
        high=output.type.maximum,
        **parameters,
    )
