"""Cycles of programs on the engine: hand-counted ones, bounds, order, and programs that never end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from engine_transfers import Transfer, moved

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Compute, Drain, Job, Load, Store
from hwgen.network import shapes
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.schedule.engine import EngineCycles, EngineSchedule, MemoryTiming
from hwgen.schedule.engine_core import group_steps

ENGINE = EngineConfig()


def test_bursts_end_at_borders():
    """A row of 300 words from word 200 on: 56 to the border, 244 behind it. Each row begins another burst."""
    for box, beats in (
        ((8 * 200, 0, 0, 1, 1, 300), [56, 244]),
        ((0, 8 * 100, 8 * 1000, 2, 3, 10), [10] * 6),
        ((8 * 250, 8 * 3, 0, 1, 3, 6), [6, 3, 3, 6]),
        ((0, 0, 0, 1, 1, 1024), [256] * 4),
    ):
        assert list(moved(ENGINE, Transfer(box, wide=True))) == [(count, 8 * count) for count in beats]


def test_bursts_of_other_buses():
    """4 bytes: a word takes two beats, of which a burst has 256. 16 bytes: a wide beat has words 2 n and 2 n + 1, and
    what is read of it counts whole; jobs and parameters come a word a beat. 64 bytes: words 8 n to 8 n + 7."""
    half, twice, eight = (replace(ENGINE, pixels=11, bus_bytes=width) for width in (4, 16, 64))
    row = (8 * 201, 8 * 3, 0, 1, 2, 5)  # words 201 to 205, and 204 to 208
    assert list(moved(half, Transfer((8 * 100, 0, 0, 1, 1, 200), wide=True))) == [(56, 224), (256, 1024), (88, 352)]
    assert list(moved(twice, Transfer(row, wide=True))) == [(3, 48), (3, 48)]
    assert list(moved(twice, Transfer(row, wide=True, writes=True))) == [(3, 40), (3, 40)]
    assert list(moved(twice, Transfer(row))) == [(5, 40), (5, 40)]
    assert list(moved(twice, Transfer((8 * 255, 0, 0, 1, 1, 3), wide=True))) == [(1, 16), (1, 16)]
    assert list(moved(eight, Transfer((8 * 207, 8 * 3, 0, 1, 3, 2), wide=True))) == [(2, 128), (1, 64), (1, 64)]
    assert list(moved(eight, Transfer((8 * 207, 0, 0, 1, 1, 2), wide=True, writes=True))) == [(2, 16)]
    assert list(moved(eight, Transfer((8 * 100, 0, 0, 1, 1, 200), wide=True))) == [(20, 1280), (6, 384)]


def test_a_job_counted_by_hand():
    """Begin 0; fetch granted at 3, its 18 words asked for at 4 and there 10 cycles later, the last at 31. Parts are
    offered at 34; the load's burst is made at 37, granted at 38; its 4 words are there from 49 on, the last counts at
    55. Two groups follow, of a step each, from 57 on.
    """
    load = Load(end=1, w_steps=1)
    compute = Compute(groups=2, folds=1, first=1, last=1, kernel_rows=1, kernel_columns=1, channels=1)
    drain, store = Drain(blocks=1, pixels=26), Store(blocks=1, rows=1, words=26)
    job = Job(load=load, compute=compute, drain=drain, store=store)
    found = EngineSchedule(ENGINE, [job], MemoryTiming(latency=10, write_latency=5)).run()
    assert [*found.loaded] == [55]
    assert [*found.computed] == [58 + 9]  # its last step is in cycle 58
    # The first group's last step is 57, its first beat 21 later; 26 beats; the last word 33 later, and it counts: 2 for
    # the operand of a product, 4 for the product, 10 + 2 for the scale, 6 + 2 for the addition, 2 for the table, 4 + 1.
    assert [*found.drained] == [57 + 21 + 25 + 33 + 1]
    # The burst is made a cycle later, granted then; words 5 later, 26 of them; the response 5 later, and it counts.
    assert [*found.stored] == [137 + 1 + 1 + 5 + 25 + 5 + 1]
    assert ([*found.read], [*found.written], found.fetched) == ([32], [208], 144)


def test_jobs_that_wait_for_ever():
    with pytest.raises(PlanError, match="wait for each other: 0 of 1"):
        EngineSchedule(ENGINE, [Job(load=Load(wait_computed=1))]).run()


def of(name: str, engine: EngineConfig = ENGINE, **memory: int) -> tuple[ProgramSchedule, EngineCycles]:
    found = schedule(shapes.load(name, dense=True) if name.endswith("-dense") else shapes.graph(name), engine)
    return found, EngineSchedule(engine, found.jobs, MemoryTiming(**memory)).run()


def steps(found: ProgramSchedule) -> int:
    """Of the array."""
    return sum(job.compute.groups * job.compute.folds * group_steps(job.compute) for job in found.jobs)


def check_order(found: ProgramSchedule, cycles: EngineCycles) -> None:
    """Each count rises; each unit comes after those that it waits for."""
    for counted in (cycles.loaded, cycles.computed, cycles.drained, cycles.stored):
        assert all(before <= after for before, after in pairwise(counted))
    for number, job in enumerate(found.jobs):
        assert cycles.loaded[number] < cycles.computed[number]
        assert cycles.drained[number] < cycles.stored[number]
        for jobs, counted in ((job.load.wait_computed, cycles.computed), (job.load.wait_stored, cycles.stored)):
            assert not jobs or counted[jobs - 1] < cycles.loaded[number]
        if job.compute.last:
            assert cycles.computed[number] < cycles.drained[number]
    port = (sum(cycles.read) + sum(cycles.written) + cycles.fetched) // 8
    assert cycles.cycles > max(port, steps(found))


@pytest.mark.parametrize("name", ["lenet5", "resnet8", "mobilenetv1-0.25"])
def test_order(name):
    check_order(*of(name))


@pytest.mark.long
def test_slow_memories_take_longer():
    found = [of("resnet8", latency=latency, pace=pace)[1].cycles for latency, pace in ((1, 1), (100, 1), (100, 2))]
    assert found == sorted(set(found))


@pytest.mark.long
def test_small_queues_take_longer():
    fast, slow = (of("resnet8", replace(ENGINE, queue=queue))[1].cycles for queue in (8, 2))
    assert slow > fast


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "most"),
    [
        *(("alexnet", 1_750_000), ("vgg16", 38_400_000), ("vgg16-dense", 54_000_000), ("resnet18", 5_000_000)),
        *(("resnet50", 12_000_000), ("mobilenetv1", 2_450_000), ("mobilenetv2", 2_400_000)),
    ],
)
def test_large_networks(name, most):
    """The marks of docs/figures/engine.md."""
    found, cycles = of(name)
    check_order(found, cycles)
    assert cycles.cycles <= most
