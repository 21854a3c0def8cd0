"""Options that choose a template, reasons of those that do not fit, budgets that no plan keeps, and interruptions."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from foreign import begun, by
from foreign import conv as foreign_conv
from onnx import numpy_helper
from onnx_models import random_graph, with_outputs
from programs import alone, conv

import hwgen
from hwgen import boards, network, plan
from hwgen.cli import main as cli
from hwgen.errors import HwgenError, PlanError
from hwgen.network.onnx.importer import to_network
from hwgen.options import REUSE, choosing, requested_template
from hwgen.plan import planner
from hwgen.plan.alternatives import without_other_template
from hwgen.plan.choose import task_of
from hwgen.plan.planner import watched
from hwgen.plan.request import Request
from hwgen.program import compile as compiler
from hwgen.templates.compose import input_formats
from hwgen.templates.mixed import surely_exceeds
from hwgen.templates.pyramid import PyramidSearch, PyramidTemplate
from hwgen.templates.search import GroupSearch, layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.unroll import factor_grid
from hwgen.templates.work import Unroll

BOARD = boards.load("zedboard")
NETWORK = alone(conv(channels=8, maps=8, kernel=3, size=(6, 6)))
#: Values that ask for nothing that a stream does not have: one array, one frame a run, no map in a map memory.
NEUTRAL = [
    {"cores": 1},
    {"cores": "auto"},
    {"array": "auto"},
    {"fuse": "off"},
    {"fuse": "auto"},
    {"batch": 1},
    {"bus_bits": 64},
    {"bus_bits": "auto"},
    {"requantisers": 8},
    {"overlap": "reuse"},
    {"weights": "constant", "multipliers": "auto", "requantise": "dsp"},
    {"weights": "auto"},
]
#: Other values, with the template that they choose.
CHOOSING = [
    ({"cores": 2}, "engine", "--cores 2"),
    ({"array": (8, 5)}, "engine", "--array 8x5"),
    ({"bus_bits": 32}, "engine", "--bus-bits 32"),
    ({"batch": 2, "cores": 1}, "engine", "--batch 2"),
    ({"tile": (2, 3)}, "pyramid", "--tile 2x3"),
]


def rate_of(made: plan.Plan) -> float:
    """Return frames per second at 100 MHz, of which the bus and the memory of these plans allow more."""
    assert made.interval is not None
    return 1e8 / made.interval


@pytest.fixture(scope="module")
def best() -> plan.Plan:
    return plan.make(NETWORK, BOARD)


@pytest.mark.parametrize("options", NEUTRAL, ids=str)
def test_values_that_change_nothing(best, options):
    made = plan.make(NETWORK, BOARD, **options)
    assert plan.write(made) == plan.write(best)
    assert made.notes == best.notes
    assert [group.template.name for group in made.groups] == ["stream"]


@pytest.mark.parametrize(("options", "template", "typed"), CHOOSING, ids=str)
def test_values_that_choose_a_template(best, options, template, typed):
    """The plan has the template, and one line with both rates."""
    made = plan.make(NETWORK, BOARD, **options)
    assert [group.template.name for group in made.groups] == [template]
    (note,) = (note for note in made.notes if "selects the template" in note)
    assert note.startswith(f"{typed} selects the template {template}: {rate_of(made):,.0f} frames per second; ")
    assert note.endswith(f"the best plan without it (template stream) has {rate_of(best):,.0f} frames per second")
    named = plan.make(NETWORK, BOARD, template=template, **options)
    assert plan.write(named) == plan.write(made)
    assert not any("selects the template" in note for note in named.notes)


@pytest.mark.parametrize("options", [*NEUTRAL[:10], *(options for options, _, _ in CHOOSING)], ids=str)
def test_another_template_by_name_is_refused(options):
    with pytest.raises(
        PlanError, match=r"^(\w+ works only with the template engine|tile and overlap work only with pyramids), not"
    ):
        plan.make(NETWORK, BOARD, template="stream", **options)


def test_the_width_of_the_board_is_a_default():
    """128 bits on kv260, at which 64 are another engine's; with --bandwidth the width follows that."""
    for board, bits, bandwidth, template in (
        ("kv260", 128, None, None),
        ("kv260", 64, None, "engine"),
        ("zedboard", 128, None, "engine"),
        ("zedboard", 128, 1.6, None),
    ):
        request = plan.Request(bus_bits=bits, bandwidth=bandwidth)
        assert request.goal(request.limited(boards.load(board))).template == template


def test_an_engine_that_is_planned_anyway_follows_values_that_choose_none():
    """Weights of 8 Mbit beside 5 Mbit of block RAM: only the engine fits; one core is then one core."""
    wide = alone(conv(channels=1024, maps=1200, kernel=1, size=(1, 1)))
    made = plan.make(wide, BOARD, cores=1, requantisers=8)
    assert made.engine is not None
    assert (made.engine.cores, made.engine.requantisers) == (1, 8)
    assert not any("selects the template" in note for note in made.notes)


def test_names_of_options_that_choose():
    assert choosing({"cores": 1, "batch": 2, "overlap": REUSE, "dsp": 9}) == ["batch"]
    assert requested_template({"template": "pyramid", "overlap": REUSE}) == "pyramid"
    assert requested_template({"fuse": "off"}) is None


@pytest.mark.parametrize("option", [["--overlap", "reuse"], ["--cores", "1"], ["--fuse", "off"]], ids=str)
def test_on_the_command_line(tmp_path: Path, monkeypatch, capsys, option):
    monkeypatch.chdir(tmp_path)
    how = ["plan", "decoilfnet-example", "--board", "zedboard"]
    assert cli.main(how) == 0
    said = capsys.readouterr().out
    assert cli.main([*how, *option]) == 0
    assert capsys.readouterr().out == said


DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


def interrupted(monkeypatch, owner: type, name: str) -> None:
    """Send SIGINT to this process when a method is called."""
    monkeypatch.setattr(owner, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))


@pytest.fixture
def command(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))
    return ["plan", str(DIGITS), "--board", "zedboard", "--dsp", "90", "--multipliers", "dsp"]


def test_the_best_plan_so_far_is_printed(command, tmp_path, monkeypatch, capsys):
    """The group is found; it is interrupted before groups in turn are compared with it."""
    made = plan.make(network.load(DIGITS), boards.load("zedboard"), dsp=90, multipliers="dsp")
    interrupted(monkeypatch, planner.PlanSearch, "_compared")
    written = tmp_path / "plan.json"
    assert cli.main([*command, "-o", str(written)]) == 130
    out, err = capsys.readouterr()
    assert "interrupted: this is the best plan found so far; nothing was written" in out.splitlines()
    assert err.splitlines()[-1] == "hwgen: interrupted"
    assert not written.exists()
    assert f"one frame: latency {made.latency:,} cycles, interval {made.interval:,} cycles" in out.splitlines()


def test_no_plan_so_far(command, monkeypatch, capsys):
    interrupted(monkeypatch, GroupSearch, "_buffered")
    assert cli.main(command) == 130
    assert capsys.readouterr().out.splitlines()[-1] == "interrupted before any plan was found; nothing was written"


def test_plans_are_watched():
    """The best plan that is reported is the plan that is made."""
    with watched() as best:
        made = plan.make(network.load(DIGITS), boards.load("zedboard"), dsp=70, multipliers="dsp")
    assert best.plan is not None
    assert (best.plan.interval, best.plan.latency) == (made.interval, made.latency)


TIE = "lies so near a tie that the order of additions in ONNX Runtime decides"


def average(folder: Path, scale: float, *, wide: bool = False) -> str:
    """Write a model whose average pool has one scale for input and output, so that some sums are ties.

    Its windows have 16 values, more than the engine adds in float32.

    With ``wide`` it has 1.6 million weights of 6 bits, more than the ZedBoard's 8.6 million bits of memory.

    ONNX Runtime adds floats. Products of whole numbers and a power of two are not rounded, those with 0.1 are.
    """
    writer = begun(frame=(1024, 4, 4)) if wide else begun()
    writer.constants[0].CopyFrom(numpy_helper.from_array(np.float32(scale), writer.scale))
    writer.layer(
        lambda writer, tensor: writer.conv(tensor, outputs=1600, kernel=1) if wide else foreign_conv(writer, tensor)
    )
    writer.layer(by("AveragePool", kernel_shape=[4, 4], strides=[4, 4]))
    onnx.save(writer.model(), folder / "model.onnx")
    return str(folder / "model.onnx")


def test_the_default_plan_gives_the_reason_of_each_template(tmp_path: Path) -> None:
    """The engine's reason is not hidden, and does not send the user back to the template that has just refused."""
    model = hwgen.load(average(tmp_path, 0.1, wide=True))
    with pytest.raises(PlanError) as error:
        model.plan("zedboard")
    (line,) = error.value.lines
    stream, engine = line.split("; the template engine does not compute it either: ")
    assert "BRAM36" in stream
    assert TIE in engine
    assert "--template stream" not in engine
    assert "a scale of the output that is not the input's would work" in engine


def test_a_stream_without_room_for_weights_names_the_engine(tmp_path: Path) -> None:
    model = hwgen.load(average(tmp_path, 0.125, wide=True))
    with pytest.raises(PlanError, match=r"BRAM36, but zedboard ") as error:
        model.plan("zedboard", template="stream")
    way, _, rate = str(error.value).rpartition("; template engine reads weights from off-chip memory, about ")
    assert way
    assert "weights auto" not in way  # the device has no UltraRAM
    of_engine = model.plan("zedboard", template="engine", cores=1, array=(8, 5)).plan.frame_rate
    assert of_engine < float(rate.removesuffix(" frames per second").replace(",", "")) < 5 * of_engine


def test_a_stream_without_room_for_weights_names_ultra_ram() -> None:
    """294,912 weights of 8 bits fill 64 block RAMs; UltraRAM stores them, if they are loaded at run time."""
    board = replace(boards.load("kv260"), bram36=20, lut=25_000, dsp=300)
    wide = alone(conv(channels=64, maps=512, kernel=3, size=(8, 8)))
    loaded = plan.make(wide, board, weights="auto")
    assert [layer.weights_in for layer in loaded.layers] == ["ultra"]
    assert 2_359_296 / 294_912 <= loaded.resources.uram <= board.uram
    way = f"; weights auto can store weights in UltraRAM, about {loaded.frame_rate:,.0f} frames per second"
    for template in ("stream", None):
        with pytest.raises(PlanError, match="weights need 64 BRAM36, but kv260 ") as error:
            plan.make(wide, board, template=template)
        assert way in str(error.value)
    with pytest.raises(PlanError, match=r"weights need 64 BRAM36, .* has 20, and UltraRAM in place of 8 more"):
        plan.make(wide, replace(board, uram=1, lut=20_000), weights="runtime")


@pytest.mark.parametrize(("scale", "refused"), [(0.1, True), (0.125, False)])
def test_the_check_tests_the_engine(scale: float, refused: bool, tmp_path: Path) -> None:
    found = hwgen.check(average(tmp_path, scale), board="zedboard")
    assert found.template == "stream"
    assert bool(found.engine_refusals) == refused
    assert found.to_json()["engine_refusals"] == list(found.engine_refusals)
    assert ("an engine could compute the network" in found.table()) != refused
    assert (
        f"the engine can't compute the network: {found.engine_refusals[0] if refused else '-'}" in found.table()
    ) == refused


def test_rounded_averages_suit_the_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal names the option as it is typed; with it the check says how far results are from ONNX Runtime's."""
    path = average(tmp_path, 0.1)
    assert cli.main(["check", path, "--board", "zedboard"]) == 0
    assert "; --averages rounded would work, with averages that differ from ONNX" in capsys.readouterr().out
    assert cli.main(["check", path, "--board", "zedboard", "--averages", "rounded"]) == 0
    text = capsys.readouterr().out
    assert "an engine could compute the network" in text
    assert "ONNX Runtime computes 1 of 2 layers in float32 (" in text
    assert "): from equal inputs its values differ by at most 1, and only where" in text
    assert cli.main(["check", path, "--averages", "half"]) == 2
    assert "--averages: invalid choice: 'half' (choose from 'exact', 'rounded')" in capsys.readouterr().err
    model = hwgen.load(path, averages="rounded")
    assert model.plan("zedboard", template="engine", cores=1, array=(8, 13)).plan.engine is not None
    with pytest.raises(PlanError, match="--averages rounded would work"):
        hwgen.load(path, averages="exact").plan("zedboard", template="engine", cores=1)


def test_what_the_check_says_of_an_engine_is_so(tmp_path: Path) -> None:
    """Of both models the planner says the same."""
    for scale in (0.1, 0.125):
        path = average(tmp_path, scale)
        model = hwgen.load(path)
        if hwgen.check(path, board="zedboard").engine_refusals:
            with pytest.raises(PlanError, match=TIE):
                model.plan("zedboard", template="engine", cores=1)
        else:
            assert model.plan("zedboard", template="engine", cores=1, array=(8, 13)).plan.engine is not None


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("why; use --template stream", "why"),
        ("why; a smaller alpha, or --template stream, would work", "why; a smaller alpha would work"),
        ("why; another scale would do", "why; another scale would do"),
    ],
)
def test_advice_of_the_other_template_is_left_out(reason: str, expected: str) -> None:
    assert without_other_template(reason) == expected


@pytest.fixture(scope="module")
def digits():
    return hwgen.load(DIGITS).network


@pytest.fixture
def no_search(monkeypatch):
    """No group of a stream or pyramids is searched, and nothing compiled for an engine."""

    def searched(*_, **__):
        raise AssertionError("searched")

    monkeypatch.setattr(GroupSearch, "best", searched)
    monkeypatch.setattr(compiler, "schedule", searched)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"template": "stream"},
        {"template": "pyramid"},
        {"groups": "conv1-pool1,conv3-fc"},
        {"in_turn": True},
        {"objective": "latency"},
        {"multipliers": "dsp"},
    ],
    ids=str,
)
@pytest.mark.parametrize("luts", [500, 1200])
def test_few_luts(digits, no_search, luts, options):
    """Six layers by themselves take 1,473 LUTs with the smallest unroll factors, and 1,321 as one group."""
    with pytest.raises(PlanError, match=rf"^--lut {luts:,} is too few: .* needs about 1,321; raise --lut"):
        plan.make(digits, BOARD, lut=luts, **options)


@pytest.mark.parametrize(
    ("model", "options", "together"),
    [
        ("lenet5", {"lut": 1400}, "1,559"),
        ("resnet8", {"lut": 3000}, "3,905"),
        ("resnet8", {"lut": 3600, "multipliers": "dsp"}, "3,905"),
        (DIGITS, {"lut": 1400, "multipliers": "lut"}, "1,495"),
    ],
)
def test_few_luts_of_other_networks(no_search, model, options, together):
    """Products in LUTs take more than the 1,321 LUTs of digits with DSP slices."""
    with pytest.raises(PlanError, match=rf" is too few: .* needs about {together}; raise --lut"):
        plan.make(hwgen.load(model).network, BOARD, **options)


def all_choices(task, layer, work):
    """All unroll factors of up to two pixels, with products in slices, in LUTs and in both, as the goal allows."""
    in_luts = layer.weight_count and task.goal.multipliers != "dsp"
    for tn, tm, tk in zip(*(axis.tolist() for axis in factor_grid(work)), strict=True):
        for lanes in {0, tm // 2, tm} if in_luts else {0}:
            if lanes == tm or not (layer.weight_count and task.goal.needs_luts):
                yield from (Unroll(tn, tm, tk, tp, lanes) for tp in range(1, 1 + min(2, layer.output.width)))


def fewest_of(task, layer, unrolls):
    """The fewest LUTs of a layer by some unroll factors, with any rows of the line buffer."""
    stage, counts = stage_of(layer, task.board.family), []
    for unroll in unrolls:
        plan = layer_plan(stage, unroll, unroll.tp, task.multipliers[layer.name])
        for rows in range(stage.min_rows, plan.line_rows + 1) if stage.has_line_buffer else [0]:
            with suppress(HwgenError):
                chosen = replace(plan, line_rows=rows)
                sources = input_formats(stage, chosen, [unroll.tp] * len(layer.inputs))
                counts.append(stage.layer(chosen, sources, [None]).resources.lut)
    return min(counts)


@pytest.mark.parametrize("multipliers", ["dsp", "auto", "lut"])
@pytest.mark.parametrize(
    ("seed", "most"), [(1, 40), *(pytest.param(seed, 10**9, marks=pytest.mark.long) for seed in range(8))]
)
def test_the_bound_refuses_nothing_that_fits(seed, most, multipliers):
    """It is not above the LUTs of the layers of a random network, each with its best factors of all or of many.

    It is at most 8 % below: of the factors with few products, all are tried.
    """
    network = to_network(with_outputs(random_graph(seed), 1 + seed % 3), "random", "random")
    task = task_of(network, BOARD, Request(multipliers=multipliers, objective="interval").goal(BOARD), None)
    fewest = 0
    for layer, work in zip(network.layers, task.works, strict=True):
        choices = sorted(
            all_choices(task, layer, work), key=lambda unroll: unroll.tn * unroll.tm * unroll.tk * unroll.tp
        )
        few, others = choices[: most // 2], choices[most // 2 :]
        fewest += fewest_of(task, layer, few + Random(seed).sample(others, min(len(others), most // 2)))
    assert not surely_exceeds(task, fewest)
    assert surely_exceeds(task, int(0.92 * fewest))


@pytest.mark.parametrize("overlap", ["reuse", "recompute"])
@pytest.mark.parametrize("tile", [(1, 1), (1, 2), (2, 2)])
def test_pyramids_take_more_luts(digits, tile, overlap):
    """The bound, of layers row by row, holds for pyramids: of digits up to its last pool, with the smallest factors."""
    task = task_of(digits.part(0, 5), BOARD, Request(multipliers="dsp", objective="interval").goal(BOARD), None)
    group = PyramidSearch(task, 0, 5, False, PyramidTemplate(tile=tile, overlap=overlap))
    assert not surely_exceeds(task, group._smallest_group(group.search.cheapest_of_all).resources.lut)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lut": 500},
            r"[\d,]+ LUTs, but 500 may be used on zedboard \(--lut\): .*, or allow more \(--lut\)$",
        ),
        (
            {"bram": 1},
            r"61 BRAM36, but 1 may be used on zedboard \(--bram\): .*, or allow more \(--bram\)$",
        ),
        ({"dsp": 1}, r"plan needs 8 DSP slices, but 1 may be used on zedboard: .* or allow more \(--dsp\)$"),
    ],
)
def test_engines(digits, no_search, options, message):
    with pytest.raises(PlanError, match=message):
        plan.make(digits, BOARD, template="engine", **options)


def test_a_budget_that_is_kept(digits):
    """The bound refuses nothing that fits: 2,000 LUTs are enough for one group."""
    made = plan.make(digits, BOARD, lut=2000)
    assert len(made.groups) == 1
    assert made.resources.lut <= 2000
