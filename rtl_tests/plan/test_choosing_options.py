"""Options of one template: which values choose it, and what a plan then says of the best plan without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import alone, conv

from hwgen import boards, plan
from hwgen.cli import main as cli
from hwgen.errors import PlanError
from hwgen.options import REUSE, choosing, requested_template

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
    (note,) = (note for note in made.notes if "chose the template" in note)
    assert note.startswith(f"{typed} chose the template {template}: {rate_of(made):,.0f} frames a second; ")
    assert note.endswith(f"the best plan without it (template stream) has {rate_of(best):,.0f} frames a second")
    named = plan.make(NETWORK, BOARD, template=template, **options)
    assert plan.write(named) == plan.write(made)
    assert not any("chose the template" in note for note in named.notes)


@pytest.mark.parametrize("options", [*NEUTRAL[:10], *(options for options, _, _ in CHOOSING)], ids=str)
def test_another_template_by_name_is_refused(options):
    with pytest.raises(PlanError, match=r"^(\w+ goes with the template engine|tile and overlap go with pyramids), not"):
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
    assert not any("chose the template" in note for note in made.notes)


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
