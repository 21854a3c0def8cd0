"""Plans with products in DSP slices, LUTs or both, and buffers in LUT RAM and UltraRAM: budgets and documents."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from math import ceil
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from low_bits import four_convolutions
from refusals import refusals_in

import hwgen
from hwgen import boards, network, plan
from hwgen.errors import PlanError
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.options import LUT_SHARE
from hwgen.plan import document
from hwgen.report import plan as report
from hwgen.templates.moves import Move, cheapest_moves, fewest_ultra_moves
from hwgen.tools import synthesis

BOARD = boards.load("zedboard")
LUTS = int(LUT_SHARE * BOARD.lut)


@pytest.fixture(scope="module")
def four() -> Network:
    """Four convolutions of 4 bits on 256 pixels: 432 products for a pixel of the first, 2,304 for the others."""
    return to_network(four_convolutions(4), "four")


@pytest.fixture(scope="module")
def lenet() -> Network:
    return network.load("lenet5")


@pytest.fixture(scope="module")
def mixed(four) -> plan.Plan:
    return plan.make(four, BOARD, multipliers="auto")


def test_slices_alone(four):
    """By hand: 256 * (432 + 3 * 2304) products, four in each of 220 slices, take 2,137 cycles.

    With whole folds a pixel takes 9 cycles, and 36 with one product in a slice.
    """
    assert plan.make(four, BOARD, multipliers="dsp", macs_per_dsp="auto").interval == 2304
    assert plan.make(four, BOARD, multipliers="dsp").interval == 9216


def test_both(mixed):
    """LUTs beyond the slices reach a third of the interval, within both budgets."""
    assert mixed.interval is not None
    assert mixed.interval <= 768
    assert mixed.resources.dsp <= BOARD.dsp
    assert 0.5 * LUTS < mixed.resources.lut <= LUTS
    assert any(layer.lut_lanes for layer in mixed.layers)


def test_document(mixed, four):
    """A plan that is read again has the same hardware."""
    again = plan.read(plan.write(mixed), four, BOARD)
    assert again.layers == mixed.layers
    assert again.resources == mixed.resources
    assert [layer.cycles for layer in again.configs()[0].layers] == [
        layer.cycles for layer in mixed.configs()[0].layers
    ]


def test_text(mixed):
    text = report.table(mixed)
    assert "products in LUTs: " in text
    assert (
        f"LUT use is capped at {LUTS:,} of {BOARD.lut:,} (80%) to keep the design routable; "
        f"raise it with --lut {BOARD.lut}" in text
    )
    for name, layer in zip(mixed.layers, mixed.configs()[0].layers, strict=True):
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name.name} "))
        assert f" {layer.resources.lut:,} " in line


@pytest.mark.parametrize("lut", [12_000, pytest.param(25_000, marks=pytest.mark.long), 53_200])
def test_budget_of_luts(four, lut):
    """``--lut`` replaces the share; composed LUTs are within it, and not far below."""
    limited = plan.make(four, BOARD, multipliers="auto", lut=lut)
    assert limited.resources.lut <= lut
    faster = plan.make(four, BOARD, multipliers="auto", lut=min(2 * lut, BOARD.lut))
    assert faster.interval is not None
    assert limited.interval is not None
    assert faster.interval <= limited.interval


def test_luts_alone(four):
    """Only requantisers take slices."""
    alone = plan.make(four, BOARD, multipliers="lut")
    assert all(layer.lut_lanes == layer.tm for layer in alone.layers)
    assert alone.resources.dsp == sum(layer.finish.multipliers for layer in alone.configs()[0].layers)
    assert alone.interval is not None
    assert alone.interval <= 1024


def test_fewest_slices(four, mixed):
    """At an interval that slices alone reach, LUTs save nearly all of them."""
    slices = plan.make(four, BOARD, multipliers="dsp", macs_per_dsp="auto", objective="dsp", interval=2304)
    fewest = plan.make(four, BOARD, multipliers="auto", objective="dsp", interval=2304)
    assert fewest.interval is not None
    assert fewest.interval <= 2304
    assert fewest.resources.dsp < slices.resources.dsp / 10
    assert fewest.resources.lut <= LUTS


def test_latency(four, mixed):
    soon = plan.make(four, BOARD, multipliers="auto", objective="latency")
    assert soon.latency <= mixed.latency
    assert soon.resources.lut <= LUTS


@pytest.mark.long
def test_too_few_luts(four):
    """What slices alone need is refused for its LUTs, in either way."""
    with pytest.raises(PlanError, match=r"LUTs"):
        plan.make(four, BOARD, multipliers="lut", lut=1000)
    with pytest.raises(PlanError, match=r"LUTs"):
        plan.make(four, BOARD, multipliers="auto", lut=1000)


@pytest.mark.parametrize(
    "options",
    [
        {"template": "pyramid"},
        {"template": "engine", "cores": 1, "array": (8, 13)},
        {"groups": "conv1-pool1,conv2-fc3"},
        {"groups": "conv1-pool1,conv2-fc3", "in_turn": True, "macs_per_dsp": "auto"},
        {"weights": "runtime"},
    ],
)
def test_what_multiplies_in_slices_alone(lenet, options):
    """Where LUTs can't multiply, ``auto`` plans as ``dsp`` does, with its default of one product in a slice."""
    by_resource = [plan.make(lenet, BOARD, multipliers=name, **options) for name in ("dsp", "auto")]
    assert plan.write(by_resource[0]) == plan.write(by_resource[1])
    assert not any(layer.lut_lanes for layer in by_resource[1].layers)
    assert not any("LUTs" in note for note in by_resource[1].notes)


#: With few slices its line buffers and weights are deeper than 64 words.
MODEL = str(Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx")
BOARD_OF_BUFFERS, SLICES = "zedboard", 40


@pytest.fixture(scope="module")
def model() -> hwgen.Model:
    return hwgen.load(MODEL)


@pytest.fixture(scope="module")
def written(model) -> dict:
    """Its plan, as ``plan.json`` has it."""
    return json.loads(model.plan(BOARD_OF_BUFFERS, dsp=SLICES, multipliers="dsp").to_json())


def changed(written: dict, folder, *, rows: dict, fifos: dict):
    """A file with that plan, its line buffers and FIFOs (by layer) changed: where they lie, and other entries."""
    text = json.loads(json.dumps(written))
    (group,) = text["groups"]
    for layer in group["layers"]:
        layer |= rows.get(layer["name"], {})
    for fifo in group["fifos"]:
        fifo |= fifos.get(fifo["from"], {})
    path = folder / "changed.json"
    path.write_text(json.dumps(text))
    return path


def test_plans_say_where_buffers_lie(model, written, tmp_path):
    """A plan says it where it isn't as their depths would have it, and is written again as it was read."""
    assert "memory" not in json.dumps(written)
    plain = model.plan(BOARD_OF_BUFFERS, dsp=SLICES, multipliers="dsp")
    rows = {layer.name: {"line_memory": "lut"} for layer in plain.config.layers if layer.window.banks.memory == "block"}
    assert len(rows) > 2
    fifos = {"conv1": {"depth": 80, "memory": "lut"}, "conv2": {"memory": "block"}}
    moved = model.plan(BOARD_OF_BUFFERS, plan=changed(written, tmp_path, rows=rows, fifos=fifos))
    for layer in moved.config.layers:
        assert layer.window.banks.memory == "lut"
        assert layer.fifos[0].memory == ("block" if layer.name == "conv2" else "lut")
    again = tmp_path / "again.json"
    again.write_text(moved.to_json())
    assert model.plan(BOARD_OF_BUFFERS, plan=again).to_json() == moved.to_json()
    said = f"in LUTs instead of block RAM: line buffers {', '.join(rows)}; output FIFOs conv1"
    assert said in moved.table()


@pytest.fixture
def in_ultra_ram(model, written, tmp_path):
    """The plan on a board with UltraRAM, with all deep line buffers and two FIFOs there."""
    plain = model.plan(BOARD_OF_BUFFERS, dsp=SLICES, multipliers="dsp")
    rows = {
        layer.name: {"line_memory": "ultra"} for layer in plain.config.layers if layer.window.banks.memory == "block"
    }
    fifos = {"conv1": {"depth": 80, "memory": "ultra"}, "conv2": {"memory": "ultra"}}
    design = model.plan("kv260", plan=changed(written, tmp_path, rows=rows, fifos=fifos))
    assert [layer.window.banks.memory for layer in design.config.layers].count("ultra") == len(rows) > 2
    return design


def test_plans_say_what_ultra_ram_holds(model, in_ultra_ram, tmp_path):
    again = tmp_path / "again.json"
    again.write_text(in_ultra_ram.to_json())
    assert model.plan("kv260", plan=again).to_json() == in_ultra_ram.to_json()
    used = in_ultra_ram.resources["uram"]
    layers = in_ultra_ram.config.layers
    banks = sum(
        layer.window.banks.rows * layer.window.banks.columns for layer in layers if layer.window.banks.memory == "ultra"
    )
    assert used == banks + 2  # no bank or FIFO is wider than 72 bits or deeper than 4,096 words
    assert re.search(
        r"^in UltraRAM instead of block RAM: line buffers .*; output FIFOs conv1, conv2$", in_ultra_ram.table(), re.M
    )
    assert f"URAM {used} of 64, " in in_ultra_ram.table()


@pytest.mark.long
def test_buffers_in_ultra_ram(model, in_ultra_ram):
    """Values are those of the golden model, cycles those of the plan, and memories those that Yosys finds."""
    result = in_ultra_ram.simulate(model.random_frames(3, seed=4), simulator="verilator")
    assert (result.mismatches, result.as_predicted) == (0, True)
    components = [part for layer in in_ultra_ram.config.layers for part in layer.components.values()]
    stored = [part for part in components if part.resources.uram]
    distinct = list(dict.fromkeys(stored))
    measured = dict(zip(distinct, synthesis.measure(distinct, in_ultra_ram.board.family), strict=True))
    assert [measured[part].uram for part in stored] == [part.resources.uram for part in stored]
    assert sum(measured[part].uram for part in stored) == in_ultra_ram.resources["uram"]
    assert sum(measured[part].bram36 for part in stored) == 0


@pytest.mark.long
def test_the_planner_moves_buffers_to_ultra_ram():
    """Deep line buffers move to UltraRAM where block RAM lacks: exact in hardware."""
    model = hwgen.load("vgg16:2@8x96")
    design = model.plan("kv260", dsp=100, multipliers="dsp", bram=2)
    assert design.resources["uram"] > 0
    assert "in UltraRAM instead of block RAM: line buffers conv1_2" in design.table()
    result = design.simulate(model.random_frames(2, seed=4), simulator="verilator")
    assert (result.mismatches, result.as_predicted) == (0, True)


@pytest.mark.long
def test_deep_fifo_in_lut_ram(model, written, tmp_path):
    """A FIFO in LUT RAM, deeper than it need be, and one in block RAM that is shallow: values and cycles."""
    fifos = {"pool1": {"depth": 80, "memory": "lut"}, "conv3": {"memory": "block"}}
    design = model.plan(BOARD_OF_BUFFERS, plan=changed(written, tmp_path, rows={}, fifos=fifos))
    result = design.simulate(model.random_frames(3, seed=4), simulator="verilator")
    assert (result.mismatches, result.as_predicted) == (0, True)


@pytest.mark.parametrize(("rows", "fifos", "message"), refusals_in("multipliers_plans_that_say_nonsense.txt"))
def test_plans_that_say_nonsense(model, written, tmp_path, rows, fifos, message):
    plan = changed(written, tmp_path, rows=rows, fifos=fifos)
    with pytest.raises(PlanError, match=f"^{re.escape(f'{plan}: {message}')}$"):
        model.plan(BOARD_OF_BUFFERS, plan=plan)


def brute_force(moves: list[Move], halves: int) -> tuple[int, int] | None:
    """Fewest LUTs, then fewest moves, that free so many halves: of all subsets."""
    choices = (choice for count in range(len(moves) + 1) for choice in combinations(moves, count))
    choices = (choice for choice in choices if len({(move.layer, move.fifo) for move in choice}) == len(choice))
    fits = [choice for choice in choices if sum(move.halves for move in choice) >= halves]
    return min(((sum(move.luts for move in choice), len(choice)) for choice in fits), default=None)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(-20, 400), st.booleans()), max_size=9),
    halves=st.integers(1, 30),
)
def test_the_cheapest_moves(sizes, halves):
    """The choice is the best of all, whatever memories take."""
    moves, layer = [], 0
    for freed, luts, same in sizes:  # some are of the same memory as the one before
        layer += not same
        moves.append(Move(layer, "weights_joined" if same else "weights_in", 0, freed, luts, is_ram=True))
    moves = [replace(move, luts=max(move.luts, 0) if move.halves == 0 else move.luts) for move in moves]
    found = cheapest_moves(moves, halves)
    best = brute_force(moves, halves)
    assert (found is None) == (best is None)
    assume(found is not None)
    assert len(set(found)) == len(found)
    assert sum(move.halves for move in found) >= halves
    assert (sum(move.luts for move in found), len(found)) == best


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=8),
    halves=st.integers(1, 30),
    ultra_rams=st.integers(0, 12),
    paired=st.booleans(),
)
def test_moves_to_ultra_ram(sizes, halves, ultra_rams, paired):
    """The fewest UltraRAMs free what is wanted, or those that there are free the most, as of all subsets."""
    moves = [
        Move(index // 2 if paired else index, "weights_joined" if paired and index % 2 else "weights_in", 0, freed, 0,
             False, count)
        for index, (freed, count) in enumerate(sizes)
    ]  # fmt: skip
    chosen = fewest_ultra_moves(moves, halves, ultra_rams)
    subsets = (choice for count in range(len(moves) + 1) for choice in combinations(moves, count))
    choices = [choice for choice in subsets if len({move.layer for move in choice}) == len(choice)]
    sums = [(sum(m.ultra_rams for m in choice), sum(m.halves for m in choice)) for choice in choices]
    enough = [used for used, freed in sums if freed >= halves and used <= ultra_rams]
    assert len(set(chosen)) == len(chosen)
    used, freed = sum(m.ultra_rams for m in chosen), sum(m.halves for m in chosen)
    if enough:
        assert freed >= halves
        assert used == min(enough)
    else:
        assert used <= ultra_rams
        assert freed == max(freed for used, freed in sums if used <= ultra_rams)


@pytest.mark.parametrize("objective", ["interval", "dsp", pytest.param("latency", marks=pytest.mark.long)])
def test_only_what_lacks_is_moved(model, objective):
    """A plan that fits is what it was; one that lacks block RAM is as good, with no more of it than there is."""
    aim = {"interval": 6000} if objective == "dsp" else {"dsp": 40}
    options = {"objective": objective, "multipliers": "dsp", **aim}
    free = model.plan(BOARD_OF_BUFFERS, **options)
    needed = free.resources["bram36"]
    assert needed > 4
    assert model.plan(BOARD_OF_BUFFERS, bram=ceil(needed), **options).to_json() == free.to_json()
    before = free.resources["lut"]
    for budget in range(ceil(needed) - 1, 1, -2):
        tight = model.plan(BOARD_OF_BUFFERS, bram=budget, **options)
        assert tight.resources["bram36"] <= budget
        assert tight.interval is not None
        assert (tight.interval, tight.resources["dsp"]) == (free.interval, free.resources["dsp"])
        assert tight.latency <= free.latency
        assert tight.resources["lut"] >= before
        before = tight.resources["lut"]
        assert re.search(
            "^(in LUTs instead of block RAM|weights of several lanes in each word of one memory): ", tight.table(), re.M
        )


@pytest.mark.long
def test_moved_memories_in_hardware(model):
    """All that may be moved, moved by the planner, is simulated: values of the golden model, cycles of the plan."""
    design = model.plan(BOARD_OF_BUFFERS, dsp=SLICES, multipliers="dsp", bram=1)
    assert document.read(design.to_json(), model.network, design.board).layers == design.plan.layers
    assert {plan.line_in for plan in design.plan.layers} == {None, "lut"}
    assert {plan.weights_in for plan in design.plan.layers} == {None, "lut"}
    result = design.simulate(model.random_frames(3, seed=4), simulator="verilator")
    assert (result.mismatches, result.as_predicted) == (0, True)
