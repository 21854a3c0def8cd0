"""The template ``engine``: plans, sizes for a board, and how they are written, read and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st
from programs import ONE_CORE, REFUSALS, SMALL, alone, conv, group_of, networks
from refusals import left_out_if, refusals_in

import hwgen
from hwgen import boards, plan
from hwgen.errors import PlanError
from hwgen.fields import Entries
from hwgen.gateware.engine import config
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES, EngineDesign
from hwgen.gateware.engine.job import Job
from hwgen.network.graph import Network
from hwgen.network.maps import INT16
from hwgen.options import REQUANTISERS
from hwgen.program.compile import schedule
from hwgen.report import legend
from hwgen.report.plan import table
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.templates.engine import EngineGroup, EngineTemplate, engine_group, pace_of
from hwgen.templates.engine_search import fitting_engines, sort_key

DIGITS = str(Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx")
BOARD = boards.load("zedboard")


@pytest.fixture(scope="module")
def digits():
    return hwgen.load(DIGITS).network


@pytest.fixture(scope="module")
def text(digits) -> str:
    return plan.write(plan.make(digits, BOARD, **ONE_CORE))


# What a plan says


@pytest.mark.parametrize("name", [DIGITS, "autoencoder", pytest.param("resnet8", marks=pytest.mark.long)])
@pytest.mark.parametrize(("bandwidth", "pace"), [(0.8, 1), (0.3, Fraction(8, 3))])
def test_cycles_are_those_of_the_schedule(name, bandwidth, pace):
    """Compiled anew and gone through; the layers' cycles and bytes add up to them."""
    network = hwgen.load(name).network
    made = plan.make(network, BOARD, **ONE_CORE, bandwidth=bandwidth, macs_per_dsp=2)
    jobs = schedule(network, EngineConfig(), pace=pace).jobs
    run = EngineSchedule(EngineConfig(), jobs, MemoryTiming.at(pace)).run()
    cycles = START_CYCLES + run.cycles + DONE_CYCLES
    assert (made.latency, made.interval) == (cycles, cycles)
    figures = group_of(made).figures
    assert sum(each.cycles for each in figures) == cycles
    read, written = sum(run.read) + Job.BYTES * len(jobs), sum(run.written)
    assert (sum(each.read for each in figures), sum(each.written for each in figures)) == (read, written)
    assert sum(made.traffic_bytes.values()) == read + written
    document = json.loads(plan.write(made))
    assert document["cycles"] == {"latency": cycles, "interval": cycles}
    (group,) = document["groups"]
    assert (group["template"], group["engine"]["maps"], group["engine"]["pixels"]) == ("engine", 8, 13)
    assert [entry["name"] for entry in group["layers"]] == [layer.name for layer in network.layers]
    again = plan.read(plan.write(made), network, BOARD)
    assert plan.write(again) == plan.write(made)
    assert group_of(again).schedule.jobs == jobs


@cases_in_the_long_run(25)
@given(network=networks(max_layers=3), pace=st.fractions(0.5, 9, max_denominator=28))
def test_plans_read_back(network, pace):
    """Whatever the tiles are: the same jobs, and so the same cycles."""
    template = EngineTemplate(engine=SMALL, memory=replace(MemoryTiming.at(pace), latency=5))
    with left_out_if(*REFUSALS):
        group = template.grouped(network)
    document = json.loads(json.dumps(template.document(group)))
    again = EngineTemplate.group(Entries(document, "plan group", PlanError), network, BOARD)
    assert isinstance(again, EngineGroup)
    assert again.schedule.jobs == group.schedule.jobs
    assert (again.template, again.cycles) == (template, group.cycles)


def test_table(digits):
    """Layers side by side have what they do together in the last one's line: here all but the first one."""
    made = plan.make(digits, BOARD, **ONE_CORE, bandwidth=0.8)
    head, _, *lines = table(made).splitlines()[:8]
    assert head.split() == ["layer", "kind", "output", *legend.OWN["engine"]]
    rows = {line.split()[0]: line.split() for line in lines}
    assert [*group_of(made).schedule.choices[1]] == ["conv2", "conv3", "fc"]
    cycles = {each.layer.name: each.cycles for each in group_of(made).figures}
    for names in (["conv1"], ["conv2", "conv3", "fc"]):
        macs = sum(layer.macs for layer in digits.layers if layer.name in names)
        each = macs / sum(cycles[name] for name in names)
        assert rows[names[-1]][-3:] == [f"{cycles[names[-1]]:,}", f"{each:,.1f}", f"{each / 416:.0%}"]
    assert rows["pool1"][-2:] == ["with", "conv2"]
    assert "memory: 8 bytes per cycle, read latency 20 cycles" in table(made)
    assert "*" not in table(made)  # no row has the mark of two multiply-adds a slice


@pytest.mark.parametrize(
    ("bandwidth", "clock", "pace"),
    [
        (0.8, 100, 1),
        (1.59, 100, Fraction(80, 159)),
        (1.2, 100, Fraction(2, 3)),
        (0.79, 100, Fraction(80, 79)),
        (0.4, 100, 2),
        (0.3, 100, Fraction(8, 3)),
        (0.8, 200, 2),
        (1.6, 200, 1),
        (0.0317, 100, Fraction(101, 4)),  # 25.24 cycles: of 5 beats they would be 127, of 3 beats 76 (25.33)
    ],
)
def test_words_are_never_faster_than_the_memory(bandwidth, clock, pace):
    """8 bytes in ``pace`` cycles are at most the bandwidth, and of no other fraction would they be more, yet as few."""
    board = replace(BOARD, memory_gb_s=bandwidth, clock_mhz=clock)
    found = pace_of(board, EngineConfig())
    assert found.beat_cycles == pace
    ratios = {(cycles, beats): cycles / beats for beats in range(1, 256) for cycles in range(-(-beats // 2), 256)}
    slow = [ratio for ratio in ratios.values() if 8 * clock / ratio <= 1000 * bandwidth * (1 + 1e-12)]
    assert float(found.beat_cycles) == min(slow)


@pytest.mark.parametrize(("bandwidth", "clock"), [(1.6, 100), (4.264, 100), (3.2, 200)])
def test_reads_and_writes_at_the_same_time(bandwidth, clock):
    """Memory that moves twice the port's bytes per cycle; the port moves no more than that."""
    found = pace_of(replace(BOARD, memory_gb_s=bandwidth, clock_mhz=clock), EngineConfig())
    assert (found.pace, found.pace_beats) == (1, 2)


def test_what_fits_no_other_way():
    """1,200 x 1,024 weights of 8 bits are 266.7 block RAMs, and more than LUT RAM and block RAM hold together."""
    network = alone(conv(kernel=1, channels=1024, maps=1200, size=(1, 1)))
    made = plan.make(network, BOARD)
    assert group_of(made).template.name == "engine"
    (note,) = [note for note in made.notes if note.startswith("computed from off-chip memory")]
    assert note.endswith("as it fits no other: conv: weights need 267 BRAM36, but zedboard (XC7Z020) has 140")
    for options in ({"template": "stream"}, {"objective": "traffic"}, {"dsp": 7}):
        with pytest.raises(PlanError, match=r"^conv does not fit zedboard: .* 267 BRAM36"):
            plan.make(network, BOARD, **options)


@pytest.mark.parametrize(
    ("options", "width", "pace"),
    [
        ({}, 8, Fraction(1, 2)),  # the board's own memory moves more
        ({"bandwidth": 0.81}, 16, Fraction(160, 81)),
        ({"bandwidth": 1.6, "clock": 200}, 8, 1),
        ({"bandwidth": 12.8}, 64, Fraction(1, 2)),
        ({"bus_bits": 32, "bandwidth": 0.2}, 4, 2),
        ({"bus_bits": 512, "bandwidth": 4.8}, 64, Fraction(4, 3)),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in [
                ({"bandwidth": 0.8}, 8, 1),
                ({"bandwidth": 1.6}, 16, 1),
                ({"bus_bits": 32}, 4, Fraction(1, 2)),
                ({"bus_bits": 128, "bandwidth": 0.8}, 16, 2),
                ({"bandwidth": 1.7}, 32, Fraction(32, 17)),
                ({"bandwidth": 9}, 64, Fraction(32, 45)),
            ]
        ),
    ],
)
def test_width_of_the_bus(digits, options, width, pace):
    """As asked for, or at most the bandwidth's at 100 MHz; the cycles are those of that engine's schedule."""
    request = plan.Request(**options)
    widest = request.max_bus_bits(request.limited(BOARD))
    made = plan.make(digits, BOARD, **{**ONE_CORE, "bus_bits": widest, **options})
    group = group_of(made)
    assert (group.template.engine.bus_bytes, group.template.memory.beat_cycles) == (width, pace)
    engine = EngineConfig(bus_bytes=width, ports=BOARD.ports_of(8 * width))
    run = EngineSchedule(engine, schedule(digits, engine, pace=pace).jobs, group.template.memory).run()
    assert made.interval == START_CYCLES + run.cycles + DONE_CYCLES
    traffic = made.traffic_bytes
    assert sum(traffic.values()) == sum(run.read) + sum(run.written) + run.fetched
    assert plan.read(plan.write(made), digits, BOARD).interval == made.interval


@pytest.mark.parametrize(
    ("name", "width", "pace"),
    [
        ("pynq-z2", 8, Fraction(1, 2)),
        ("zc706", 32, Fraction(254, 169)),
        ("vc707", 64, 1),
        ("vc709", 64, Fraction(1, 2)),
    ],
)
def test_width_of_a_board_s_bus(digits, name, width, pace):
    """ZC706: 4.264 GB/s at 200 MHz are 21.32 bytes a cycle. 32 bytes in 3/2 cycles would be more: 21.33.

    Memory of the VC709 moves 149 bytes a cycle, and so 64 that are read and 64 that are written; the VC707's moves 64.
    """
    memory = group_of(
        plan.make(digits, boards.load(name), **{**ONE_CORE, "bus_bits": boards.load(name).bus_bits})
    ).template
    assert (memory.engine.bus_bytes, memory.memory.beat_cycles) == (width, pace)


def test_former_name(digits, text):
    """Both names are one template wherever a user gives one; only the new name is written."""
    assert plan.write(plan.make(digits, BOARD, **{**ONE_CORE, "template": "tile"})) == text
    former = text.replace('"template": "engine"', '"template": "tile"')
    assert former != text
    assert plan.write(plan.read(former, digits, BOARD)) == text
    with pytest.raises(PlanError, match="template must be stream or pyramid or engine, not 'tiles'"):
        plan.make(digits, BOARD, template="tiles")


# What is refused


@pytest.mark.parametrize(("options", "message"), refusals_in("engine_template_options_that_make_no_engine.txt"))
def test_options_that_make_no_engine(digits, options, message):
    with pytest.raises(PlanError, match=message):
        plan.make(digits, BOARD, template="engine", **options)


@pytest.mark.parametrize(
    ("board", "size", "kept"),
    [
        ("zcu104", "auto", (131_072, 4096, 32, 0)),  # 1 MiB is the most: 8 banks of 4 UltraRAMs
        ("kv260", 100, (16_384, 4096, 4, 0)),  # a bank of 128 KiB
        ("ultra96-v2", 100, (16_384, 1024, 0, 32)),  # 4 banks of 32 KiB in block RAM
    ],
)
def test_map_memories_in_ultra_ram(digits, board, size, kept):
    """UltraRAM where the board has it, block RAM otherwise."""
    group = plan.make(digits, boards.load(board), **{**ONE_CORE, "bus_bits": 128}, map_memory=size).groups[0]
    engine, used = group.template.engine, group.resources
    without = EngineDesign(engine=replace(engine, kept_words=0, kept_rows=1024)).resources
    assert (engine.kept_words, engine.kept_rows, used.uram, used.bram36 - without.bram36) == kept


def test_layers_that_the_engine_lacks():
    layer = conv(kernel=1, channels=1, maps=1)
    network = alone(replace(layer, input=replace(layer.input, type=INT16, zero_point=0)))
    with pytest.raises(
        PlanError, match=r"^conv: the engine computes conv with values of at most 8 bits, not with a map of"
    ):
        plan.make(network, BOARD, **ONE_CORE)


LAYER = ("groups", 0, "layers", 1)  # conv2


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        *refusals_in("engine_template_edits_that_make_no_plan.txt"),
        ((*LAYER, "tile"), [9, 8], r"^plan: conv2: rows must be from 1 to 8 and a multiple of 2, or 8, not 9$"),
        ((*LAYER, "tile"), [4], r"^plan layer conv2: tile must be an array of 2 entries, not of 1$"),
        ((*LAYER, "tile"), None, r"conv2"),
        (
            (*LAYER, "chunk"),
            [4, 3],
            r"^plan: conv2: channels must be from 1 to 8 and a multiple of 8, or 8, not 4$",
        ),
        ((*LAYER, "order"), ["tile"], r"^plan layer conv2: order must be .*, as a list, not \"tile\"$"),
        (
            (*LAYER, "output"),
            [16, 9, 9],
            r"^plan layer conv2 is of another network: its output is \[16, 9, 9\] in the plan, but \[16, 8, 8\]",
        ),
    ],
)
def test_edits_that_make_no_plan(digits, text, place, value, message):
    document = json.loads(text)
    *path, last = place
    entry = document
    for key in path:
        entry = entry[key]
    entry[last] = value
    with pytest.raises(PlanError, match=message):
        plan.read(json.dumps(document), digits, BOARD)


def test_an_edit_that_makes_another_plan(digits, text):
    """Smaller tiles of conv2, by itself: other cycles, and it reads back as it was written."""
    document = json.loads(text)
    (group,) = document["groups"]
    group["layers"][1] |= {"tile": [2, 8], "box_rows": 2, "order": ["fold", "box", "tile", "chunk"]}
    group["side_by_side"] = []
    made = plan.read(json.dumps(document), digits, BOARD)
    (tiling,) = next(each.tilings for each in group_of(made).figures if each.layer.name == "conv2")
    assert (tiling.rows, tiling.columns, tiling.box_rows, tiling.maps_stay) == (2, 8, 2, False)
    assert made.interval != document["cycles"]["interval"]
    assert plan.write(plan.read(plan.write(made), digits, BOARD)) == plan.write(made)


def test_a_group_that_fits_no_other_way():
    """The second layer has more weights than the board holds, the first one is built as a stream."""
    first = conv(kernel=1, channels=8, maps=1024, size=(1, 1))
    second = conv(kernel=1, channels=1024, maps=1200, size=(1, 1))
    layers = replace(first, name="one"), replace(second, name="two", input=first.output)
    network = Network(name="both", layers=layers)
    made = plan.make(network, BOARD, groups="one,two")
    assert [group.template.name for group in made.groups] == ["stream", "engine"]
    assert made.interval == sum(group.frame_cycles for group in made.groups)
    assert str(made.obstacle) == "2 groups, at least one of them on an engine"
    again = plan.read(plan.write(made), network, BOARD)
    assert plan.write(again) == plan.write(made)
    assert [line.split()[0] for line in table(made).splitlines() if line.startswith("layer ")] == ["layer", "layer"]


def test_an_array_that_is_asked_for(digits):
    """Its name is enough to plan an engine; other templates have no array."""
    made = plan.make(digits, BOARD, array=(8, 7))
    assert (group_of(made).template.engine.maps, group_of(made).template.engine.pixels) == (8, 7)
    for options in ({"template": "stream"}, {"overlap": "reuse"}):
        with pytest.raises(PlanError, match=r"^array works only with the template engine, not with"):
            plan.make(digits, BOARD, array=(8, 7), **options)
    with pytest.raises(PlanError, match=r"^groups and in_turn don't work with the template engine"):
        plan.make(digits, BOARD, array=(8, 7), in_turn=True)


#: A step for each pixel group: 8 sums at a time leave 13 times as slowly.
SHALLOW = alone(conv(kernel=1, channels=4, maps=64, size=(12, 13)))
#: As many steps for each pixel group as 13 pixels have sums, and all slices at work.
DEEP = alone(conv(channels=64, maps=16, kernel=3, size=(13, 26)))


def engine_of(network, **options):
    return engine_group(plan.make(network, BOARD, template="engine", **options).groups[0])


def test_products_in_luts_fill_most_of_a_board():
    """13 pixels in slices; with 6 more 38,189 LUTs are used, and with 10 more 47,893 would be: 85 % are 45,220."""
    found = engine_of(SHALLOW, lut_pixels="auto", cores=1, array=(8, 19))
    assert (found.engine.pixels, found.engine.lut_pixels, found.engine.multipliers) == (19, 6, 608)
    assert found.resources.dsp == 13 * 16 + 8
    assert found.resources.lut <= 0.85 * BOARD.lut
    larger = {"pixels": 23, "lut_pixels": 10}
    assert EngineDesign(engine=type(found.engine)(**larger)).resources.lut > 0.85 * BOARD.lut
    with pytest.raises(PlanError, match=r"LUTs, but lut_pixels auto takes 45,220 at most$"):
        engine_of(SHALLOW, lut_pixels="auto", cores=1, array=(8, 23))


@pytest.mark.parametrize(
    ("options", "pixels", "in_luts"),
    [
        ({"lut_pixels": 4, "array": (8, 17)}, 17, 4),
        ({"lut_pixels": 4, "array": (8, 11)}, 11, 4),
        ({"lut_pixels": "auto", "dsp": 120, "array": (8, 17)}, 17, 10),
        ({"lut_pixels": "auto", "array": (8, 11)}, 11, 0),
        ({"lut_pixels": "auto", "requantisers": 16, "array": (8, 13)}, 13, 1),
    ],
)
def test_pixels_in_slices_and_in_luts(options, pixels, in_luts):
    """7 pixels take 112 of 120 slices, beside 8 requantisers; 12 take 192 of 220, beside 16."""
    engine = engine_of(SHALLOW, cores=1, **options).engine
    assert (engine.pixels, engine.lut_pixels) == (pixels, in_luts)


def test_the_fastest_shape():
    """More requantisers where the drain is the bound; a plan of given sizes says so, and the default has them."""
    board = boards.load("ultra96-v2")
    made, best = (plan.make(SHALLOW, board, **options) for options in (ONE_CORE, {"template": "engine"}))
    assert "requantisers also fits and is estimated to take" in table(made)
    assert "leave out --cores and --array and --bus-bits to let the search choose" in table(made)
    assert engine_group(best.groups[0]).engine.requantisers > 8
    assert best.interval < 0.7 * made.interval
    assert "also fits" not in table(best)


#: Options of an engine that multiplies in DSP slices only and has no map memory.
PLAIN = {"multipliers": "dsp", "map_memory": "off"}


def test_a_small_shape_is_the_fastest():
    made = plan.make(DEEP, BOARD, **ONE_CORE, **PLAIN)
    assert "also fits" not in table(made)
    assert engine_of(DEEP, **PLAIN, bus_bits=64).engine == engine_group(made.groups[0]).engine


def test_products_in_luts_by_default():
    """Twice the multipliers of the slices' engine; what is chosen is in the table."""
    made = plan.make(DEEP, BOARD, template="engine")
    found, plain = engine_group(made.groups[0]), engine_of(DEEP, **PLAIN)
    assert plain.engine.lut_pixels == 0 < found.engine.lut_pixels
    assert found.cycles < 0.7 * plain.cycles
    assert found.resources.lut <= 0.85 * BOARD.lut
    assert f"products of {found.engine.lut_pixels} pixels in LUTs" in table(made)


#: Convolutions of 3 x 3 pixels and of one: 9,584,640 and 1,064,960 multiply-adds.
TWO = Network(
    name="two",
    layers=(
        wide := replace(conv(channels=64, maps=64, kernel=3, size=(10, 26)), name="wide"),
        replace(conv(channels=64, maps=64, kernel=1, size=(10, 26)), name="narrow", input=wide.output),
    ),
)


@pytest.mark.parametrize(
    "board", ["zedboard", *(pytest.param(name, marks=pytest.mark.long) for name in ("ultra96-v2", "zc706"))]
)
def test_the_best_of_all_engines(board):
    """Every engine that fits, each by the exact schedule of its program: the default is within 2 % of the best.

    Products in LUTs and a map memory count as 2 % of the cycles each.
    """
    board = boards.load(board)
    found = engine_group(plan.make(TWO, board, template="engine").groups[0])
    assert found.task is not None
    goal = found.task.goal
    engines = fitting_engines(found.task, all_cores=True)
    groups = [EngineTemplate(engine=engine, memory=pace_of(board, engine)).grouped(TWO) for engine in engines]
    assert len(groups) > 10
    compared, *others = (sort_key(goal, each.engine, each.cycles, 0)[0] for each in (found, *groups))
    assert compared <= 1.02 * min(others)


@pytest.mark.parametrize(("pixels", "ram", "ultra_rams"), [(25, "ultra", 50), (37, "block", 0)])
def test_map_buffers_in_ultra_ram(pixels, ram, ultra_rams):
    """KV260 has 64 UltraRAMs: enough for a bank per pixel of two cores with 25 pixels, not with 37."""
    made = plan.make(TWO, boards.load("kv260"), template="engine", cores=2, array=(8, pixels))
    engine = engine_group(made.groups[0]).engine
    assert engine.map_ram == ram
    assert made.resources.uram == ultra_rams


@pytest.mark.parametrize(
    ("board", "times"),
    [
        ("ultra96-v2", 1.5),
        pytest.param("kv260", 3, marks=pytest.mark.long),
        pytest.param("zc706", 3, marks=pytest.mark.long),
        pytest.param("vc709", 5, marks=pytest.mark.long),
    ],
)
def test_a_whole_device(board, times):
    """As many slices as the network can use: so many times as fast as one core of 8 x 13."""
    board = boards.load(board)
    small, large = (plan.make(TWO, board, **options) for options in (ONE_CORE, {"template": "engine"}))
    assert small.interval >= times * large.interval


@pytest.mark.long
@pytest.mark.parametrize(("name", "board", "cycles"), [("vgg16", "vc709", 2_400_000), ("resnet18", "kv260", 1_290_000)])
def test_networks_on_a_whole_device(name, board, cycles):
    """37,600,000 and 4,560,000 cycles on one core of 8 x 13."""
    made = plan.make(hwgen.load(name).network, boards.load(board), template="engine")
    assert made.interval <= cycles


def options_that_fix(engine):
    """All options of an engine that a search chooses."""
    return {
        "cores": engine.cores,
        "array": (engine.maps, engine.pixels),
        "bus_bits": 8 * engine.bus_bytes,
        "requantisers": engine.requantisers,
        "lut_pixels": engine.lut_pixels or "off",
        **({} if engine.has_cores else {"map_memory": engine.kept_words * 8 // 1024 or "off"}),
    }


@pytest.mark.parametrize(
    "given",
    [
        {"cores": 1},
        {"cores": 2},
        {"array": (8, 5)},
        {"array": (16, 5)},
        {"bus_bits": 32},
        {"requantisers": 16},
        {"lut_pixels": 2},
        {"lut_pixels": "off"},
        {"map_memory": 64},
        {"map_memory": "off"},
    ],
)
def test_sizes_that_are_given_stay(given):
    fixed = options_that_fix(engine_of(TWO, **given).engine)
    assert {name: fixed[name] for name in given} == given


@pytest.mark.parametrize(
    ("network", "board"),
    [
        (TWO, "zedboard"),
        (SHALLOW, "zedboard"),
        *(pytest.param(name, "zedboard", marks=pytest.mark.long) for name in ("resnet8", "dscnn", "lenet5")),
        *(
            pytest.param(name, board, marks=pytest.mark.long)
            for name in (TWO, "resnet8")
            for board in ("kv260", "zc706")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_best_by_default(network, board):
    """Never slower than without products in LUTs and map memory; the options that were chosen make the same plan."""
    network, board = hwgen.load(network).network if isinstance(network, str) else network, boards.load(board)
    made, plain = (plan.make(network, board, template="engine", **options) for options in ({}, PLAIN))
    found = engine_group(made.groups[0])
    assert found.frame_cycles <= engine_group(plain.groups[0]).frame_cycles
    again = plan.make(network, board, template="engine", **options_that_fix(found.engine))
    assert plan.write(again) == plan.write(made)
    assert plan.write(plan.read(plan.write(made), network, board)) == plan.write(made)


def test_auto_is_the_default():
    assert engine_of(TWO, cores="auto", array="auto", bus_bits="auto").engine == engine_of(TWO).engine


def test_ports_of_a_bus():
    """ZedBoard has four ports of 64 bits; a bus of another width, or of a board with one port, is a single port."""
    for bits, ports in ((32, 1), (64, 1), (128, 2), (256, 4), (512, 1)):
        engine = engine_of(TWO, bus_bits=bits).engine
        assert (engine.ports, engine.bus_bytes) == (ports, bits // 8)
    single, double = (engine_of(TWO, bus_bits=bits, array=(8, 5), cores=1) for bits in (64, 128))
    assert (single.template.memory.latency, double.template.memory.latency) == (20, 24)
    assert single.resources.lut < double.resources.lut
    assert boards.load("vc709").ports_of(1024) == 1
    assert replace(boards.load("zedboard"), bus_bits=32).ports_of(64) == 1


def test_the_fewest_slices():
    """8 x 5 pixels in 80 slices, and 8 requantisers, are the smallest engine; a bound on the interval takes more."""
    smallest = engine_of(TWO, objective="dsp")
    assert smallest.resources.dsp == 88
    faster = engine_of(TWO, objective="dsp", interval=smallest.cycles // 2)
    assert 88 < faster.resources.dsp < engine_of(TWO).resources.dsp
    assert faster.cycles <= smallest.cycles // 2


def test_options_offer_the_requantisers_of_an_engine():
    """Options are read without the gateware, whose import takes longer."""
    assert REQUANTISERS == config.REQUANTISERS


@pytest.mark.long
def test_networks_on_a_zedboard_with_products_in_luts():
    """Marks of the project, by the exact schedule: 8 bytes a cycle, all 220 slices, 80 % of the LUTs."""
    vgg16, yolo = (
        engine_of(hwgen.load(name).network, bandwidth=0.8, lut_pixels="auto")
        for name in ("vgg16", "yolov3-tiny@416x416")
    )
    assert sum(layer.macs for layer in vgg16.network.layers) / vgg16.cycles >= 480
    assert yolo.cycles <= 6_200_000
    assert vgg16.resources.lut <= 0.8 * BOARD.lut
    assert vgg16.resources.dsp <= 220
