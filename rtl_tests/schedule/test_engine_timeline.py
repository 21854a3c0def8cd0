"""What the engine's array, port and layers do when: what must add up; bins beside a count cycle by cycle."""

from __future__ import annotations

import base64
from itertools import pairwise

import numpy as np
import pytest
from engine_transfers import loads, stores
from hypothesis import given
from hypothesis import strategies as st
from programs import ONE_CORE
from report_pages import PLANNED, check_page

import hwgen
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.engine.job import Job
from hwgen.program.timeline import ARRAY, PORT, Band, bands
from hwgen.report.page import times
from hwgen.schedule.engine import LOAD, STORE


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
