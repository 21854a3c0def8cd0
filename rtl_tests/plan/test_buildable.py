"""Every plan is buildable: random networks and budgets through the planner, then hardware that does what it said.

Outputs are the golden model's, cycles are the plan's, no FIFO holds more than its depth; and one that is deeper than it
must be to hold an output fold, and than 2, is not deeper than the plan's cycles need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import FEW_SLICES, left_out_if
from testbench import Circuit, Pattern, Trace

from hwgen import boards, plan
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.network import golden, load
from hwgen.schedule.solve import Schedule, enough_frames

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
