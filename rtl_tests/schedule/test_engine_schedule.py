"""Cycles of programs on the engine, and what its array, port and layers do when: by hand, bounds, sums."""

from __future__ import annotations

import base64
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from engine_transfers import Transfer, loads, moved, stores
from hypothesis import given
from hypothesis import strategies as st
from programs import ONE_CORE
from report_pages import PLANNED, check_page

import hwgen
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Compute, Drain, Job, Load, Store
from hwgen.network import shapes
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.figures import ARRAY, PORT, Band, bands
from hwgen.report.page import times
from hwgen.schedule.engine import LOAD, STORE, EngineCycles, EngineSchedule, MemoryTiming, group_steps

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


@pytest.fixture(scope="module")
def design():
    return hwgen.load("resnet8@8x8").plan("zedboard", **ONE_CORE, bandwidth=0.8)


@pytest.fixture(scope="module")
def group(design):
    return design.plan.groups[0]


def words(transfers):
    """Of all boxes."""
    boxes = (each.box for each in transfers)
    return sum(blocks * rows * count for _, _, _, blocks, rows, count in boxes)


def test_cycles_add_up(group):
    """Multiplications are the jobs' steps, the port's cycles their words, and every cycle is in one state at most."""
    found = bands(group.schedule, group.run)
    whole = np.array([0, group.cycles])
    told = [{state: int(each.sum()) for state, each in band.cycles(whole).items()} for band in found]
    assert [band.kind for band in found] == [ARRAY, PORT] + ["layer"] * (len(found) - 2)
    assert sum(told[0].values()) == sum(told[1].values()) == group.cycles
    steps = {each.layer.name: each.steps for each in group.figures}
    assert told[0]["work"] == sum(steps.values()) > 0
    for band, cycles in zip(found[2:], told[2:], strict=True):
        assert cycles["work"] == steps[band.name]
        assert sum(cycles.values()) <= group.cycles
    jobs = group.schedule.jobs
    read = sum(words(loads(group.template.engine, job.load)) for job in jobs)
    short = int((group.run.bursts[:, 3] - group.run.bursts[:, 2] == 2).sum())  # of one word, or of two
    assert read <= told[1]["work"] <= read + short
    assert told[1]["buffer"] == len(jobs) * Job.BYTES // LANES
    assert sum(words(stores(job.store)) for job in jobs) <= told[1]["room"]
    every = np.sort(np.concatenate([np.concatenate(list(band.states.values())) for band in found[:1]]), axis=0)
    np.testing.assert_array_equal(every[1:, 0], every[:-1, 1])  # one behind the other, without a gap


@pytest.mark.long
def test_reads_and_writes_at_the_same_time():
    """With the board's own memory the port is busy with both; each cycle is counted once, with a read if it has one."""
    group = hwgen.load("resnet8@8x8").plan("zedboard", **ONE_CORE).plan.groups[0]
    run, port = group.run, bands(group.schedule, group.run)[1]
    reads, writes = np.zeros(group.cycles, bool), np.zeros(group.cycles, bool)
    for user, _, begin, end in run.bursts.tolist():
        channel = writes if user == STORE else reads
        assert not channel[begin:end].any()
        channel[begin:end] = True
    assert (reads & writes).any()
    cycles = {state: int(count.sum()) for state, count in port.cycles(np.array([0, group.cycles])).items()}
    assert cycles["work"] + cycles["buffer"] == reads.sum()
    assert cycles["room"] == (writes & ~reads).sum()
    assert cycles["input"] == (~writes & ~reads).sum()


def test_what_a_layer_waits_for(group):
    """It begins with its first load and ends when all is stored; nothing is multiplied before it is loaded."""
    owners = [group.schedule.tiled_passes[owner].task.name for owner in group.schedule.owners]
    run = group.run
    ends = {}
    for name, stored in zip(owners, run.stored, strict=True):
        ends[name] = max(ends.get(name, 0), stored)
    by_name = {band.name: band for band in bands(group.schedule, run)[2:]}
    begin = next(iter(by_name.values())).begin - run.bursts[run.bursts[:, 0] == LOAD, 2].min()
    for name, band in by_name.items():
        assert band.states["room"][-1, 1] - begin == ends[name]
        first = next(loaded for owner, loaded in zip(owners, run.loaded, strict=True) if owner == name)
        assert band.states["work"][0, 0] - begin >= first
        assert band.begin < first + begin


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=8), st.lists(st.integers(0, 99), min_size=2))
def test_cycles_of_bins(lengths, cuts):
    """As counted cycle by cycle."""
    stretches, at, state = [], 0, np.zeros(200, dtype=np.int64)
    for gap, length in lengths:
        stretches.append((at + gap, at + gap + length))
        state[at + gap : at + gap + length] = 1
        at += gap + length
    band = Band("x", "layer", {"work": np.array(stretches, dtype=np.int64).reshape(-1, 2)})
    edges = np.unique(cuts)
    expected = [state[begin:end].sum() for begin, end in pairwise(edges)]
    np.testing.assert_array_equal(band.cycles(edges)["work"], expected)


def test_what_the_page_shows(group):
    """Rows add up to the cycles, and shares of bins to the rows."""

    class Plan:
        groups, layers = (group,), group.layers

    document = times.document(Plan())  # type: ignore[arg-type]
    (view,) = document["views"]
    assert view["edges"][0] == 0
    assert view["edges"][-1] == group.cycles
    lengths = np.diff(view["edges"])
    for layer in view["layers"]:
        assert sum(state["cycles"] for state in layer["states"]) == group.cycles
        for state in layer["states"]:
            if state["shares"]:
                shares = np.frombuffer(base64.b64decode(state["shares"]), np.uint8)
                assert abs((shares * lengths / 255).sum() - state["cycles"]) <= lengths.sum() / 255
            assert state["kind"] in {*document["kinds"], "turn"}
            assert state["says"]


def test_memory_of_the_page(design, group):
    """Layers' bytes add up to the jobs', MACs to the network's, parts to the circuit's; one layer is as by hand."""
    page = check_page(design.page(), PLANNED)["design"]
    moved = {name: sum(layer["moved"][name] for layer in page["traffic"]) for name in page["traffic"][0]["moved"]}
    loaded = [loads(group.template.engine, job.load) for job in group.schedule.jobs]
    maps = LANES * words([each[0] for each, job in zip(loaded, group.schedule.jobs, strict=True) if job.load.x_blocks])
    assert (moved["maps read"], moved["jobs"]) == (maps, len(loaded) * Job.BYTES)
    assert moved["maps read"] + moved["weights, parameters"] == LANES * sum(words(each) for each in loaded)
    assert moved["maps written"] == LANES * words([each for job in group.schedule.jobs for each in stores(job.store)])
    first, row = page["traffic"][0], page["engine"]["layers"][0]
    assert first["name"] == row["name"] == "conv"
    assert first["alone"] == 8 * 8 * 8 + 16 * 8 * 8  # three channels lie in eight lanes
    assert (row["maps"], row["output"], row["weights"]) == (8 * 8 * 8, 16 * 8 * 8, 16 * 3 * 3 * 3)
    assert row["maps_again"] == first["moved"]["maps read"] / (8 * 8 * 8)
    buffers = {each["name"]: each["words"] * each["width"] for each in page["engine"]["buffers"]}
    assert buffers["map buffer"] == 13 * 2048 * 64
    assert buffers["sums"] == 8 * 13 * 32 * 32  # maps, pixels, slots, bits
    points = page["roofline"]["points"]
    assert sum(each["macs"] for each in points if each["kind"] == "layer") == design.network.macs
    assert page["roofline"]["port_gb_s"] == pytest.approx(0.8)  # 8 bytes in each cycle of 10 ns
    for name, used in design.resources.items():
        assert sum(part[name] for part in page["resources"]["layers"]) == used
