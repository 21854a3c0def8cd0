"""Random quantised networks with random options of the planner, reproducible from their seed: small to medium ones."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

from graphs import random_join

import hwgen
from hwgen.errors import HwgenError, PlanError
from hwgen.network.float32 import Label, quantize_linear
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import FeatureMap, IntegerType, Requantisation, Window
from hwgen.network.ops import Add, AveragePool, Concat, Conv, GlobalAveragePool, Join, Lookup, MaxPool, Mul, Op
from hwgen.plan.plan import Plan
from hwgen.plan.planner import make

#: Kernel sides of a convolution, the commoner ones more often.
KERNELS = (1, 1, 3, 3, 3, 5, 7)
#: Kinds of blocks that a network consists of.
BLOCKS = ("conv", "conv", "depthwise", "separable", "grouped", "dilated", "residual", "concat", "gate", "table", "pool")
#: Draws until one can be planned.
MAX_DRAWS = 50
#: LUTs of a network at most, as estimated: Yosys takes seconds for a thousand.
MAX_LUTS = 9_000


@dataclass(frozen=True)
class RandomPlan:
    """A random network's plan, and the options that it was planned with."""

    seed: int
    options: dict[str, Any]
    plan: Plan


class _Maker:
    """A network that grows block by block from one random generator."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.bits, self.per_channel = 8, float(rng.choice([0.5, 0.5, 0.5, 0.5, 0.9]))
        side, width = (int(rng.integers(8, 25)) for _ in range(2))
        self.maps = {INPUT: self._map(int(rng.choice([1, 3, 4])), side, width)}
        self.layers: list[Op] = []
        self.edges: list[tuple[str, ...]] = []
        self.last = INPUT

    def _map(self, channels: int, height: int, width: int) -> FeatureMap:
        """Return a map of a random type: unsigned as behind a Relu (zero point 0), or with any zero point."""
        rng, signed = self.rng, bool(self.rng.integers(2))
        kind = IntegerType(bits=self.bits, signed=signed)
        zero = int(rng.integers(kind.minimum, kind.maximum + 1)) if rng.random() < 0.5 else kind.minimum * signed
        scale = float(np.float32(rng.uniform(0.01, 0.2)))
        return FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero, scale=scale)

    def _add(self, layer: Op, *edges: str) -> str:
        self.layers.append(layer)
        self.edges.append(edges)
        self.maps[layer.name] = layer.output
        self.last = layer.name
        return layer.name

    def _name(self, kind: str) -> str:
        return f"{kind}{len(self.layers)}"

    def conv(self, source: str, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1):
        """Add a convolution with weights of a normal distribution, quantised per tensor or per channel."""
        rng, before = self.rng, self.maps[source]
        reach = (kernel - 1) * dilation
        padded = rng.random() < 0.7 or min(before.height, before.width) <= reach or stride == 1
        sides = (reach // 2, reach // 2, reach - reach // 2, reach - reach // 2) if padded else (0, 0, 0, 0)
        window = Window(kernel=(kernel, kernel), stride=(stride, stride), padding=sides, dilation=(dilation, dilation))
        height, width = window.output_size(before.height, before.width)
        weights = rng.normal(size=(outputs, before.channels // groups, kernel, kernel))
        limit = (1 << (self.bits - 1)) - 1
        per_channel = rng.random() < self.per_channel
        peak = np.abs(weights).max(axis=(1, 2, 3), keepdims=True) if per_channel else np.abs(weights).max()
        layer = Conv(
            name=self._name("depthwise" if groups > 1 and groups == outputs else "conv"),
            input=before,
            output=self._map(outputs, height, width),
            window=window,
            weights=np.rint(weights / peak * limit).astype(np.int64),
            bias=rng.integers(-(1 << 10), 1 << 10, outputs),
            requantisation=None,
            groups=groups,
        )
        return self._add(replace(layer, requantisation=self._rule(layer, per_channel)), source)

    def _rule(self, layer: Conv, per_channel: bool) -> Requantisation:
        rng, outputs, after = self.rng, layer.outputs, layer.output
        excess = max(0, layer.accumulator_bound.bit_length() - after.type.bits)
        significand = rng.integers(1 << 23, 1 << 24, outputs if per_channel else 1)
        shift = 23 + np.maximum(0, excess - rng.integers(0, 3, outputs if per_channel else 1))
        return Requantisation(
            significand=np.broadcast_to(significand, outputs),
            shift=np.broadcast_to(shift, outputs),
            zero_point=after.zero_point,
            low=after.type.minimum if rng.random() < 0.5 else after.zero_point,
            high=after.type.maximum,
        )

    def joined(self, kind: type[Join], *sources: str) -> str:
        inputs = [self.maps[source] for source in sources]
        channels = sum(each.channels for each in inputs) if kind is Concat else inputs[0].channels
        output = self._map(channels, inputs[0].height, inputs[0].width)
        return self._add(random_join(kind, self._name(kind.kind), inputs, output, self.rng), *sources)

    def table(self, source: str) -> str:
        """Add an activation function: a sigmoid, a hyperbolic tangent, a leaky Relu or a HardSwish."""
        before = self.maps[source]
        after = self._map(before.channels, before.height, before.width)
        assert before.scale is not None
        kind = before.type
        integers = np.arange(1 << kind.bits)
        integers = np.where(integers > kind.maximum, integers - (1 << kind.bits), integers)
        x = Label(before.scale, before.zero_point).reals(integers)
        functions = (
            1 / (1 + np.exp(-x)), np.tanh(x), np.where(x < 0, x * 0.1, x), x * np.clip(x / 6 + 0.5, 0, 1),
        )  # fmt: skip
        y = functions[int(self.rng.integers(len(functions)))]
        scale = max(float(np.abs(y).max()) / after.type.maximum, 1e-6)
        layer = Lookup(
            name=self._name("lookup"),
            input=before,
            output=after,
            window=Window(kernel=(1, 1)),
            table=quantize_linear(y.astype(np.float32), scale, after.zero_point, after.type)[None],
        )
        return self._add(layer, source)

    def pool(self, source: str) -> str:
        rng, before = self.rng, self.maps[source]
        kernel = int(rng.choice([2, 3]))
        if min(before.height, before.width) < 4:
            return self.table(source)
        window = Window(kernel=(kernel, kernel), stride=(2, 2))
        height, width = window.output_size(before.height, before.width)
        after = replace(before, height=height, width=width)
        common = {"name": self._name("pool"), "input": before, "output": after, "window": window}
        if rng.random() < 0.6:
            return self._add(MaxPool(**common), source)
        return self._add(
            AveragePool(**common, x_scale=before.scale, y_scale=before.scale, include_padding=False), source
        )

    def whole(self, source: str) -> str:
        before = self.maps[source]
        pixels = before.height * before.width
        layer = GlobalAveragePool(
            name=self._name("whole"),
            input=before,
            output=replace(before, height=1, width=1),
            window=Window(kernel=(before.height, before.width)),
            requantisation=Requantisation(
                significand=np.full(before.channels, int(self.rng.integers(1 << 23, 1 << 24))),
                shift=np.full(before.channels, 23 + pixels.bit_length()),
                zero_point=before.zero_point,
                low=before.type.minimum,
                high=before.type.maximum,
                float32=True,
            ),
        )
        return self._add(layer, source)

    def block(self) -> None:
        """Add a random block behind the last layer."""
        rng, source = self.rng, self.last
        before = self.maps[source]
        channels, outputs = before.channels, int(rng.choice([4, 6, 8, 12, 16, 24, 32]))
        stride = int(rng.choice([1, 1, 2])) if min(before.height, before.width) >= 6 else 1
        kernel = int(rng.choice(KERNELS))
        kind = str(rng.choice(BLOCKS))
        if kind == "conv":
            self.conv(source, outputs, kernel, stride=stride)
        elif kind == "depthwise":
            self.conv(source, channels, max(kernel, 3), stride=stride, groups=channels)
        elif kind == "separable":
            self.conv(self.conv(source, channels, max(kernel, 3), stride=stride, groups=channels), outputs, 1)
        elif kind == "grouped":
            groups = int(rng.choice([each for each in (1, 2, 4) if channels % each == 0]))
            self.conv(source, groups * -(-outputs // groups), 3, stride=stride, groups=groups)
        elif kind == "dilated":
            self.conv(source, outputs, 3, dilation=int(rng.integers(2, 4)))
        elif kind == "residual":
            inner = self.conv(source, channels, 3)
            self.joined(Add, self.conv(inner, channels, 3) if rng.random() < 0.5 else inner, source)
        elif kind == "concat":
            self.joined(Concat, self.conv(source, outputs, 3), self.conv(source, int(rng.choice([4, 8])), 1))
        elif kind == "gate":
            self.joined(Mul, source, self.table(self.conv(self.whole(source), channels, 1)))
        elif kind == "table":
            self.table(source)
        else:
            self.pool(source)

    def network(self, name: str) -> Network:
        network = Network(name=name, layers=tuple(self.layers), edges=tuple(self.edges), inputs=(INPUT,))
        return network.with_inputs_read_once()


def random_network(rng: np.random.Generator, name: str) -> Network:
    """Return a network of two to six random blocks; half of the networks end in a classifier."""
    maker = _Maker(rng)
    for _ in range(int(rng.integers(2, 7))):
        maker.block()
    if rng.random() < 0.5:
        maker.conv(maker.whole(maker.last), 10, 1)
    return maker.network(name)


def random_plan(seed: int) -> RandomPlan:
    """Return the plan of a random network for a ZedBoard, with random options.

    Networks that can't be built, or planned with these options, are drawn again from the same generator.

    Raises
    ------
    PlanError
        If none of `MAX_DRAWS` can be planned.
    """
    rng = np.random.default_rng(seed)
    board = hwgen.boards.load("zedboard")
    for _ in range(MAX_DRAWS):
        options = {
            "dsp": int(rng.choice([8, 20, 40, 80, 120])),
            "macs_per_dsp": int(rng.choice([1, 2])),
            "requantise": str(rng.choice(["dsp", "dsp", "lut"])),
        }
        try:
            plan = make(random_network(rng, f"random{seed}"), board, **options)
            plan.configs()
        except HwgenError:
            continue
        if plan.resources.lut <= MAX_LUTS:
            return RandomPlan(seed, options, plan)
    raise PlanError(f"seed {seed}: none of {MAX_DRAWS} networks could be planned")
