"""Checks of runs of accelerators with any number of inputs and outputs: stalled, reset, in every simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from accelerators import Case, inputs_for
from hypothesis import strategies as st

from hwgen import simulate as run
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network import golden
from hwgen.schedule.solve import Cycles, Schedule

SEEDS = st.integers(0, 2**32)
PROBABILITIES = st.sampled_from([0, 0.1, 0.5, 0.9])


def check_maps(done: run.Run, expected: Sequence[np.ndarray]) -> None:
    """Every value of every output."""
    for values, should in zip(done.maps, expected, strict=True):
        np.testing.assert_array_equal(values, should)


def check_stalled(case: Case, data: st.DataObject, **options: Any) -> run.Run:
    """Random stalls at each end, each of its own probability: nothing is lost, nothing gets stuck."""
    frames = inputs_for(case.network, 3, data.draw(SEEDS))
    stalls = tuple(data.draw(PROBABILITIES) for _ in range(1 + len(case.config.outputs)))
    asked = run.Options(simulator="amaranth", stalls=stalls, seed=data.draw(st.integers(0, 99)), **options)
    done = run.run(case.config, frames, asked)
    check_maps(done, golden.outputs(case.network, frames))
    return done


def check_reset(case: Case, seed: int, cycle: int) -> None:
    """Check that a reset in ``cycle`` drops all beats in flight, and that later frames are right and on time."""
    frames = inputs_for(case.network, 3, seed)
    done = run.run(case.config, frames, run.Options(simulator="amaranth", reset_at=cycle, taps=True))
    check_maps(done, golden.outputs(case.network, frames))
    cycles = Schedule(case.config, 3).cycles
    assert (done.latency, done.interval) == (cycles.latency, cycles.interval)


def runs_of(
    config: AcceleratorConfig, frames: Sequence[np.ndarray], options: Sequence[dict[str, Any]], simulator: run.Simulator
) -> Iterator[run.Run]:
    """Yield a run with taps for each of these options."""
    for each in options:
        yield run.run(config, frames, run.Options(simulator=simulator, taps=True, **each))


def check_agree(ours: run.Run, theirs: run.Run) -> None:
    """Check that two runs have the same cycles, bytes, steps and taps."""
    for name in ("frame_ends", "written_ends", "first_input", "cycles", "read_bytes", "written_bytes", "steps"):
        assert getattr(ours, name) == getattr(theirs, name), name
    np.testing.assert_array_equal(ours.busy, theirs.busy)
    for number, values in ours.taps.items():
        np.testing.assert_array_equal(values, theirs.taps[number])


def check_simulator(
    config: AcceleratorConfig,
    frames: Sequence[np.ndarray],
    simulator: run.Simulator,
    cycles: Cycles,
    options: Sequence[dict[str, Any]],
    others: Sequence[run.Run],
    expected: Sequence[np.ndarray],
) -> None:
    """Check a run without options against the predicted cycles, and runs with options against ``others``."""
    (plain,) = runs_of(config, frames, [{}], simulator)
    assert (plain.latency, plain.interval) == (cycles.latency, cycles.interval)
    check_maps(plain, expected)
    for ours, theirs in zip(runs_of(config, frames, options, simulator), others, strict=True):
        check_maps(ours, expected)
        check_agree(ours, theirs)
