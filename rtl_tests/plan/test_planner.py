"""Plans are buildable, and take the cycles and slices that the search counted on; none within the budget is faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from accelerators import (
    Case,
    FifoUse,
    check,
    check_data,
    fifo_uses,
    frames_for,
    frames_that_show,
    networks,
    simulate,
    watched_fifos,
    with_less,
)
from counted import cases_in_the_long_run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import RandomModel, Tensor
from refusals import FEW_SLICES, left_out_if
from testbench import Circuit, Pattern, Trace

import hwgen
from hwgen import boards, plan
from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.network import golden, load
from hwgen.network import load as load_network
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, INT32, UINT8, FeatureMap, Window
from hwgen.network.ops import Add, Concat, Conv, Copy, Lookup, MaxPool, Op, Upsample
from hwgen.plan import planner
from hwgen.schedule.solve import Schedule, endless_cycles, enough_frames, steady_cycles
from hwgen.templates import unroll as factors
from hwgen.templates.compose import compose
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import LayerWork, Unroll

#: Greatest number of output pixels per cycle.
MAX_PIXELS = 16


def over(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


class AllFactors:
    """All unroll factors of a network whose products are made in DSP slices, one multiply-add per slice.

    Parameters
    ----------
    network : Network
    finishes : dict of str to int
        DSP slices of each convolution's requantiser, for each channel that is finished per cycle.
    """

    def __init__(self, network: Network, finishes: dict[str, int]):
        self.network, self._finishes = network, finishes
        self._layers = list(network.layers)
        self._index = {layer.name: index for index, layer in enumerate(self._layers)}

    def choices(self, layer: Op, pixels: int) -> Iterator[tuple[int, int, int]]:
        """Yield cycles of all windows, input beats of a pixel, and slices of each choice with ``pixels`` per cycle."""
        groups = layer.output_height * over(layer.output_width, pixels)
        if isinstance(layer, Conv):
            for tn, tm, tk in product(*(range(1, size + 1) for size in (layer.channels, layer.outputs, layer.taps))):
                folds = over(layer.channels, tn)
                steps = folds * over(layer.taps, tk)
                finished = over(tm, steps)
                slices = tn * tm * tk * pixels + self._finishes[layer.name] * finished * pixels
                yield groups * over(layer.outputs, tm) * steps, folds, slices
            return
        for tn in range(1, max(source.channels for source in layer.inputs) + 1):
            sources = layer.inputs if isinstance(layer, Concat) else layer.inputs[:1]
            folds = sum(over(source.channels, tn) for source in sources)
            for tk in range(1, layer.taps + 1):
                yield groups * folds * over(layer.taps, tk), folds, 0

    @cached_property
    def _tables(self) -> list[dict[int, list[tuple[int, int, int]]]]:
        """For each layer and number of pixels: its choices, but those that another one equals or beats in all."""
        tables = []
        for layer in self._layers:
            assert isinstance(layer, Add | Concat | Conv | Copy | Lookup | MaxPool | Upsample), layer
            table = {}
            for pixels in range(1, min(MAX_PIXELS, layer.output_width) + 1):
                kept: list[tuple[int, int, int]] = []
                for choice in sorted(set(self.choices(layer, pixels))):
                    if not any(all(a <= b for a, b in zip(other, choice, strict=True)) for other in kept):
                        kept.append(choice)
                table[pixels] = kept
            tables.append(table)
        return tables

    @cached_property
    def intervals(self) -> list[int]:
        """All cycles that some layer can take, by its windows or its input beats, rising."""
        found = set()
        for layer, table in zip(self._layers, self._tables, strict=True):
            for cycles, beats, _ in {choice for choices in table.values() for choice in choices}:
                found.add(cycles)
                found |= {self._beats(layer, beats, pixels) for pixels in range(1, layer.inputs[0].width + 1)}
        return sorted(found)

    @staticmethod
    def _beats(layer: Op, beats: int, pixels: int) -> int:
        return layer.inputs[0].height * over(layer.inputs[0].width, pixels) * beats

    def fewest(self, interval: int) -> float:
        """Return the fewest slices with which each layer takes at most ``interval`` cycles; infinite if none do.

        Layer by layer, the fewest slices are kept for each combination of the pixels of maps that are still to be read.
        """
        best: dict[tuple[int, ...], float] = {(): 0}
        last = [self._last_reader(layer.name) for layer in self._layers]
        for index, (layer, edges) in enumerate(zip(self._layers, self.network.edges, strict=True)):
            before = [other for other in range(index) if last[other] >= index]
            after = [other for other in range(index + 1) if last[other] > index]
            following: dict[tuple[int, ...], float] = {}
            for state, slices in best.items():
                known = dict(zip(before, state, strict=True))
                sources = [known[self._index[edge]] for edge in edges if edge in self._index]
                for own in self._tables[index]:
                    if not isinstance(layer, Conv | MaxPool) and {*sources} - {own}:
                        continue  # reads as many pixels per cycle as it writes
                    cost = self._cheapest(index, own, sources[0] if edges[0] in self._index else own, interval)
                    key = tuple({**known, index: own}[other] for other in after)
                    following[key] = min(following.get(key, inf), slices + cost)
            best = following
        return min(best.values(), default=inf)

    def _cheapest(self, index: int, pixels: int, incoming: int, interval: int) -> float:
        """Return the fewest slices of a layer within an interval, with ``incoming`` pixels per input beat."""
        layer = self._layers[index]
        return min(
            (
                slices
                for cycles, beats, slices in self._tables[index][pixels]
                if cycles <= interval and self._beats(layer, beats, incoming) <= interval
            ),
            default=inf,
        )

    def _last_reader(self, name: str) -> int:
        readers = [index for index, edges in enumerate(self.network.edges) if name in edges]
        return max(readers, default=-1)

    def shortest(self, slices: int) -> int:
        """Return the shortest interval of the slowest layer that some factors within ``slices`` have."""
        return next(interval for interval in self.intervals if self.fewest(interval) <= slices)


#: Blocks of a model, the commoner ones more often.
BLOCKS = ("conv", "concat", "concat", "upsample", "upsample", "pool", "residual", "long", "activation")


class BurstModel(RandomModel):
    """A model of concatenations, upsamplings, pools, shortcuts and convolutions of few channels on small maps."""

    def block(self, source: Tensor, *, first: bool) -> Tensor:
        rng, outputs = self.rng, int(self.rng.choice([2, 3, 4, 6]))
        is_small = min(source.height, source.width) < 4
        kind = "conv" if first else str(rng.choice(BLOCKS))
        if kind == "conv":
            stride = 1 if is_small else int(rng.choice([1, 1, 2]))
            return self.conv(source, outputs, int(rng.choice([1, 3])), strides=(stride, stride))
        if kind == "concat":
            branches = [self.same(source, outputs), source if rng.random() < 0.5 else self.same(source, 3)]
            return self.concatenated(*(branches if rng.random() < 0.5 else branches[::-1]))
        if kind == "upsample":
            return source if source.height * source.width > 60 else self.upsample(source)
        if kind == "pool":
            return source if is_small else self.halved(source)
        if kind == "residual":
            return self.residual(source)
        if kind == "long":
            return source if is_small or source.height % 2 or source.width % 2 else self.long(source, outputs)
        return self.activation(source, "LeakyRelu")

    def whole(self, source: Tensor) -> Tensor:
        """Return the map as it is: no model ends with a global average pool."""
        return source

    def concatenated(self, *branches: Tensor) -> Tensor:
        name = self.node("Concat", *branches, axis=1)
        return self.quantise(name, branches[0], channels=sum(branch.channels for branch in branches))

    def halved(self, source: Tensor) -> Tensor:
        """Add a maximum pool of 2x2 pixels."""
        rows, columns = source.height // 2, source.width // 2
        name = self.node("MaxPool", source, kernel_shape=[2, 2], strides=[2, 2])
        return self.labelled(name, replace(source, height=rows, width=columns))

    def long(self, source: Tensor, outputs: int) -> Tensor:
        """Add a level of a U-Net: a pool, a convolution, an upsampling, and a concatenation with what came in."""
        inner = self.same(self.halved(source), outputs)
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        rounding = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        name = self.node("Resize", inner, "", scales, **rounding)
        return self.concatenated(source, self.labelled(name, replace(inner, height=source.height, width=source.width)))


def burst_model(seed: int) -> onnx.ModelProto:
    """Return the model of a seed."""
    return BurstModel(seed, blocks=4, max_side=9).model()


BOARD = boards.load("zedboard")


def unrolls_of(made: plan.Plan) -> list[Unroll]:
    return [Unroll(layer.tn, layer.tm, layer.tk, layer.tp) for layer in made.layers]


@cases_in_the_long_run(26)
@given(network=networks(), budget=st.integers(1, 220))
def test_figures_agree(network, budget):
    """Layers as fast as the search says; the accelerator as fast as the slowest, in no more slices than allowed."""
    with left_out_if(FEW_SLICES):
        made = plan.make(network, BOARD, dsp=budget, multipliers="dsp")
    assume(made.obstacle is None)  # too few slices for one group
    works, unrolls, config = (
        [LayerWork.of(layer, **stage_of(layer).work_fields) for layer in network.layers],
        unrolls_of(made),
        made.configure(),
    )
    assert config.multipliers <= budget
    for work, unroll, layer in zip(works, unrolls, config.layers, strict=True):
        assert layer.cycles == factors.cycles(work, unroll, layer.window.input.pixels)
        assert layer.multipliers >= work.multipliers(unroll)
    assert steady_cycles(config).interval == factors.interval(works, unrolls)


def depthwise_network(height: int, width: int) -> Network:
    """A depthwise 3 x 3 convolution over 4 channels."""
    rng = np.random.default_rng(0)
    before = FeatureMap(channels=4, height=height, width=width, type=UINT8, zero_point=3)
    depthwise = Conv(
        name="depthwise",
        input=before,
        output=replace(before, type=INT32, zero_point=0),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-128, 128, (4, 1, 3, 3)),
        bias=rng.integers(-100, 100, 4),
        requantisation=None,
        groups=4,
    )
    return Network(name="depthwise_network", layers=(depthwise,))


def test_depthwise():
    """By hand: 4 groups of one channel in, one out; 36 slices hold 9 taps of 4 pixels, 4 groups in turn."""
    network = depthwise_network(8, 8)
    made = plan.make(network, BOARD, dsp=36, multipliers="dsp")
    assert unrolls_of(made) == [Unroll(1, 1, 9, 4)]
    config = made.configure()
    assert config.multipliers == 36
    assert config.layers[0].cycles == 8 * 2 * 4
    check(Case(network, config), frames_for(network, 3, 1))


@pytest.mark.parametrize(
    ("template", "dsp", "unroll"),
    [
        ("stream", 36, Unroll(4, 4, 9, 1)),
        ("stream", 18, Unroll(2, 2, 9, 1)),
        ("stream", 9, Unroll(1, 1, 9, 1)),
        ("pyramid", 36, Unroll(4, 4, 9, 1)),
    ],
)
def test_depthwise_lanes(template, dsp, unroll):
    """Where a row is a pixel only channels side by side make use of the slices, each with taps of its own."""
    network = depthwise_network(6, 1)
    board = replace(BOARD, memory_gb_s=100.0)
    made = plan.make(network, board, dsp=dsp, multipliers="dsp", template=template)
    assert unrolls_of(made) == [unroll]
    config = made.configure()
    assert config.multipliers == dsp
    check(Case(network, config), frames_for(network, 3, 1))


def test_pixels_where_channels_do_not_help():
    """One channel of signed values, one output: only pixels make more of the slices."""
    before = FeatureMap(channels=1, height=4, width=12, type=INT8)
    layer = Conv(
        name="blur",
        input=before,
        output=replace(before, type=INT32),
        window=Window(kernel=(1, 3), padding=(0, 1, 0, 1)),
        weights=np.array([[[[1, 2, 1]]]]),
        bias=np.zeros(1, np.int64),
        requantisation=None,
    )
    network = Network(name="blur", layers=(layer,))
    board = replace(BOARD, memory_gb_s=100.0)  # otherwise 240 bytes a frame are too many for the last
    for budget, unroll in ((3, Unroll(1, 1, 3, 1)), (9, Unroll(1, 1, 3, 3)), (220, Unroll(1, 1, 3, 12))):
        made = plan.make(network, board, dsp=budget, multipliers="dsp")
        assert unrolls_of(made) == [unroll]
        check(Case(network, made.configure()), frames_for(network, 3, 2))


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_weights_of_depthwise_lanes_in_block_ram(lanes):
    """What the search counts is what the memories take: 240 channels in turn, three taps at once."""
    rng = np.random.default_rng(0)
    before = FeatureMap(channels=240, height=4, width=4, type=UINT8)
    op = Conv(
        name="deep",
        input=before,
        output=replace(before, type=INT32),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-128, 128, (240, 1, 3, 3)),
        bias=np.zeros(240, np.int64),
        requantisation=None,
        groups=240,
    )
    stage, unroll = stage_of(op), Unroll(lanes, lanes, 3)
    plan = layer_plan(stage, unroll, 1)
    (layer,) = compose(Network(name="deep", layers=(op,)), (plan,)).layers
    work = LayerWork.of(op, **stage.work_fields)
    assert layer.compute.resources.bram36 == float(stage.weight_bram36(work, unroll)) > 0
    assert layer.multipliers == work.multipliers(unroll) == 3 * lanes


KEPT = Path(__file__).resolve().parent.parent / "kept"

#: Networks with readers that take their input in bursts: options, interval, DSP slices. With narrow beats in all FIFOs
#: the same factors would have intervals of 156, 5,632 and 720 cycles.
BURSTS = {
    "upsample": ({"template": "stream", "multipliers": "dsp", "dsp": 8}, 108, 8),
    "unet": ({"multipliers": "dsp", "dsp": 150}, 4_096, 146),
    "dominated": ({"dsp": 40, "lut": 10_000}, 420, 40),
}


@pytest.mark.parametrize("name", BURSTS)
def test_bursts(name, tmp_path):
    """As short as the cycles of the slowest layer, in no more slices; the plan is read back as it was."""
    options, interval, slices = BURSTS[name]
    model = hwgen.load(str(KEPT / f"interval-{name}.onnx"))
    design = model.plan(board="zedboard", **options)
    assert design.interval == interval == max(layer.cycles for layer in design.config.layers)
    assert design.resources["dsp"] <= slices
    (path := tmp_path / "plan.json").write_text(design.to_json())
    assert model.plan(board="zedboard", plan=path).to_json() == design.to_json()


#: DSP slices of the models of successive seeds: few, so that layers share them out.
SLICES = (14, 18, 24, 32, 48)

#: Seeds of the default run: some plans have width converters before FIFOs.
QUICK = (0, 12, 18, 24)


def seeds(count: int, quick: tuple[int, ...] = QUICK) -> list[Any]:
    """Return seeds as parameters of a test; the default run has only those of ``quick``."""
    return [pytest.param(seed, marks=() if seed in quick else pytest.mark.long) for seed in range(count)]


def planned(seed: int, folder: Path, **options: Any) -> hwgen.Design:
    onnx.save(burst_model(seed), path := folder / "model.onnx")
    return hwgen.load(str(path)).plan(board="zedboard", template="stream", **options)


@pytest.mark.parametrize("seed", seeds(48))
def test_all_factors(seed, tmp_path):
    """No factors at all within the slices have a shorter interval, nor the same interval in fewer slices."""
    slices = SLICES[seed % len(SLICES)]
    design = planned(seed, tmp_path, multipliers="dsp", dsp=slices)
    network, layers = design.network, design.config.layers
    finishes = {
        op.name: layer.finish.multipliers // (layer.fifo_lanes * layer.pixels)
        for op, layer in zip(network.layers, layers, strict=True)
        if isinstance(op, Conv)
    }
    search = AllFactors(network, finishes)
    assert design.interval == search.shortest(slices)
    assert design.resources["dsp"] == search.fewest(design.interval)


@pytest.mark.long
def test_all_plans_of_a_small_network():
    """Every plan of two layers, composed: factors, widths of FIFOs, and the converter on either side of its FIFO."""
    network = load_network(str(KEPT / "interval-upsample.onnx"))
    conv, upsample = network.layers
    shortest: dict[int, int] = {}
    for tn, tm, tp, lanes, taken in product(*(range(1, most + 1) for most in (3, 6, 3, 6, 6))):
        if lanes > tm or lanes < -(-tm // -(-3 // tn)) or tn * tm * tp > 24:
            continue
        plans = [
            replace(layer_plan(stage_of(layer), unroll, tp), fifo_depths=(999,))
            for layer, unroll in ((conv, Unroll(tn, tm, 1, tp)), (upsample, Unroll(taken, taken, 1, tp)))
        ]
        for first in ((), (True,)):
            try:
                config = compose(network, [replace(plans[0], fifo_lanes=lanes, converts_first=first), plans[1]])
            except ConfigError:
                assert first
                continue
            cycles = endless_cycles(config).interval
            shortest[config.multipliers] = min(cycles, shortest.get(config.multipliers, cycles))
    for slices in (3, 5, 8, 12, 20):
        plan = planner.make(network, boards.load("zedboard"), dsp=slices, multipliers="dsp", template="stream")
        assert plan.groups[0].steady.interval == min(shortest[count] for count in shortest if count <= slices)


#: Objectives, each with the figure that it minimises.
AIMS = {
    "interval": lambda design: design.interval,
    "latency": lambda design: design.latency,
    "traffic": lambda design: design.plan.groups[0].map_bytes,
    "dsp": lambda design: design.resources["dsp"],
}

#: Share of a price (40 LUTs for a slice) that another plan of the same interval can save, because the rule for LUTs
#: that the search counts by is not exact.
TOLERANCE = 0.05


@pytest.mark.parametrize("options", [{"multipliers": "dsp"}, {"lut": 6_000}], ids=["slices", "both"])
@pytest.mark.parametrize("seed", seeds(24, quick=(18,)))
def test_no_objective_beats_another_at_its_aim(seed, options, tmp_path):
    slices = SLICES[seed % len(SLICES)]
    designs = {aim: planned(seed, tmp_path, objective=aim, dsp=slices, **options) for aim in AIMS}
    for aim, figure in AIMS.items():
        assert figure(designs[aim]) == min(map(figure, designs.values())), aim


@pytest.mark.parametrize("seed", seeds(24, quick=(12,)))
def test_more_slices_are_never_worse(seed, tmp_path):
    """An interval is never longer, and takes as few slices."""
    figures = []
    for slices in (16, 20, 28, 44):
        design = planned(seed, tmp_path, multipliers="dsp", dsp=slices)
        figures.append((design.interval, design.resources["dsp"]))
    for (before, fewer), (after, more) in pairwise(figures):
        assert after < before or (after, more) == (before, fewer)


@pytest.mark.parametrize("seed", seeds(24, quick=(12,)))
def test_larger_budgets_are_never_worse(seed, tmp_path):
    """Neither more slices nor more LUTs, nor both resources for products instead of one, give a longer interval.

    A plan of the same interval may cost more than one of smaller budgets only by what the rule for LUTs may miss, and
    no such plan has fewer slices and fewer LUTs.
    """
    budgets = product((15, 40), (4_000, 9_000), ("dsp", "lut", "auto"))
    plans = {}
    for budget in budgets:
        with suppress(PlanError):
            slices, luts, resource = budget
            limits = {"dsp": slices} if resource == "dsp" else {"dsp": slices, "lut": luts}
            design = planned(seed, tmp_path, multipliers=resource, **limits)
            plans[budget] = design.interval, design.resources["dsp"], design.resources["lut"]
    for (budget, (interval, slices, luts)), (smaller, other) in product(plans.items(), repeat=2):
        if smaller[0] > budget[0] or smaller[1] > budget[1] or budget[2] not in (smaller[2], "auto"):
            continue
        assert interval <= other[0], (budget, smaller)
        if interval == other[0]:
            assert 40 * slices + luts <= (1 + TOLERANCE) * (40 * other[1] + other[2]), (budget, smaller)
            assert (slices, luts) == other[1:] or not (slices >= other[1] and luts >= other[2]), (budget, smaller)


BOARDS = {name: boards.load(name) for name in ("zedboard", "vc709")}


@st.composite
def plans(draw, **limits) -> plan.Plan:
    """What the planner makes of a random network, and of a budget that it does not refuse."""
    board = BOARDS[draw(st.sampled_from(sorted(BOARDS)))]
    most = draw(st.sampled_from([12, 60, board.dsp]))
    network, budget = draw(networks(**limits)), draw(st.integers(1, most))
    with left_out_if(FEW_SLICES):
        made = plan.make(network, board, dsp=budget, multipliers="dsp", macs_per_dsp=draw(st.sampled_from([1, 2])))
    assume(made.obstacle is None)  # too few slices for one group
    return made


def interval_of(trace: Trace, config: AcceleratorConfig) -> int:
    """Between the last outputs of the last two frames."""
    beats = config.output.beats
    return trace.times[-1] - trace.times[-1 - beats]


def latency_of(trace: Trace, config: AcceleratorConfig) -> int:
    return trace.times[config.output.beats - 1] - trace.taken[0]


def shallower(config: AcceleratorConfig, number: int) -> AcceleratorConfig:
    """With one FIFO one shallower."""
    layers = list(config.layers)
    layers[number] = replace(layers[number], fifo_depths=(layers[number].fifo_depths[0] - 1,))
    return replace(config, layers=tuple(layers))


def frames_needed(config: AcceleratorConfig) -> dict[int, int]:
    """For each FIFO that could be shallower, the frames in which one less shows, as the schedule has it."""
    sized = Schedule(config, enough_frames(config, Schedule(config, 3).cycles))
    needed = {}
    for number, layer in enumerate(config.layers):
        if layer.fifo_depths[0] > max(2, *layer.fold_beats):
            frames = frames_that_show(with_less(sized, number, depth=1), sized)
            assert frames, f"{layer.name}: a FIFO of {layer.fifo_depths[0] - 1} would do"
            needed[number] = frames
    return needed


def check_fifos(config: AcceleratorConfig, trace: Trace) -> list[FifoUse]:
    """No more in any than its depth, and no credit given that is not there."""
    uses = fifo_uses(config, trace)
    for layer, use in zip(config.layers, uses, strict=True):
        assert 0 <= use.stored.min() <= use.stored.max() <= layer.fifos[0].depth, f"{layer.name}: overflow"
        assert use.credits.min() >= 0, f"{layer.name}: overdrawn"
    return uses


@dataclass
class Watched:
    """The accelerator of a plan, made ready once for several runs, in which its FIFOs are watched."""

    made: plan.Plan

    def __post_init__(self) -> None:
        self.config = self.made.configure()
        with watched_fifos(self.config) as watch:
            self.seen = {"circuit": Circuit(Accelerator(self.config)), "watch": watch}


def check_unstalled(watched: Watched, count: int, deep: dict[int, int], seed: int) -> None:
    """Values and cycles; a FIFO that needs its depth has no credit left at some time."""
    made, config = watched.made, watched.config
    trace = check(Case(made.network, config), frames_for(made.network, count, seed), **watched.seen)
    prediction = made.placement.predict(count)
    assert latency_of(trace, config) == made.latency == prediction.latency
    assert interval_of(trace, config) == made.interval == prediction.interval
    uses = check_fifos(config, trace)
    assert all(uses[number].credits.min() == 0 for number in deep)


def check_blocked(watched: Watched, seed: int) -> None:
    """A sink that takes nothing until nothing moves: the last FIFO is full, none ever more than that."""
    made, config = watched.made, watched.config
    last = config.layers[-1]
    count = 3 + -(-last.fifo_depths[0] // last.beats)
    frames = frames_for(made.network, count, seed)
    blocked = count * sum(layer.cycles for layer in config.layers) + made.latency
    sink = Pattern((False,) * blocked + (True,) * 10 * blocked)
    trace = simulate(config, frames, accept=sink, patience=blocked + 1000, **watched.seen)
    check_data(config, trace.words, golden.run(made.network, frames))
    use = check_fifos(config, trace)[-1]
    left = use.credits[blocked - 1]
    assert left < max(last.fold_beats)
    assert use.stored[blocked - 1] == use.stored.max() == last.fifo_depths[0] - left


def check_shallower(made: plan.Plan, number: int, count: int, seed: int) -> None:
    """With that FIFO one shallower the simulated latency or interval is greater; the values are the same."""
    config = shallower(made.configure(), number)
    trace = check(Case(made.network, config), frames_for(made.network, count, seed))
    assert (
        latency_of(trace, config) > made.latency or interval_of(trace, config) > made.placement.predict(count).interval
    )


def check_plan(made: plan.Plan, seed: int) -> dict[int, int]:
    """All but FIFOs made shallower in simulation: what `frames_needed` says of these is returned."""
    deep = frames_needed(made.configure())
    watched = Watched(made)
    check_unstalled(watched, max([3, *deep.values()]), deep, seed)
    check_blocked(watched, seed)
    return deep


@settings(max_examples=4)
@given(made=plans(), seed=st.integers(0, 2**32))
def test_plans(made, seed):
    """One FIFO of each is made shallower in simulation, the others in the schedule alone."""
    deep = check_plan(made, seed)
    if deep:
        number = sorted(deep)[seed % len(deep)]
        check_shallower(made, number, deep[number], seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(2))
@settings(max_examples=12)
@given(made=plans(), seed=st.integers(0, 2**32))
def test_many_plans(block, made, seed):
    """Every FIFO of each is made shallower in simulation; other plans in each block."""
    for number, count in check_plan(made, seed).items():
        check_shallower(made, number, count, seed)


def example() -> plan.Plan:
    return plan.make(load("decoilfnet-example"), BOARDS["zedboard"], dsp=30, multipliers="dsp")


def test_padding_is_seen():
    """A FIFO one deeper than planned could be shallower."""
    made = example()
    layers = list(made.layers)
    layers[1] = replace(layers[1], fifo_depths=(layers[1].fifo_depths[0] + 1,))
    deeper = replace(made, groups=(replace(made.groups[0], layers=tuple(layers)),))
    with pytest.raises(AssertionError, match=f"^conv2: a FIFO of {made.layers[1].fifo_depths[0]} would do"):
        frames_needed(deeper.configure())


def test_overflow_is_seen():
    """More credits than the FIFO has room for."""
    made = example()
    config = made.configure()
    last = config.layers[-1]
    assert last.fifos[0].depth > 1
    last.__dict__["fifos"] = (replace(last.fifos[0], depth=last.fifos[0].depth - 1),)
    with watched_fifos(config) as watch:
        frames = frames_for(made.network, 6, 1)
        trace = simulate(config, frames, accept=Pattern((False,) * 300 + (True,) * 9000), watch=watch)
    with pytest.raises(AssertionError, match=r"^pool1: overflow"):
        check_fifos(config, trace)


def test_overdraft_is_seen():
    """The folds of deeper FIFOs take more credits than shallow ones have."""
    made = example()
    config = made.configure()
    with watched_fifos(config) as watch:
        trace = check(Case(made.network, config), frames_for(made.network, 3, 1), watch=watch)
    poorer = replace(
        config, layers=tuple(replace(layer, fifo_depths=(max(layer.fold_beats),)) for layer in config.layers)
    )
    with pytest.raises(AssertionError, match=r"^conv1: over(flow|drawn)"):
        check_fifos(poorer, trace)
