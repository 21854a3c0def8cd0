"""Signals in users' Verilog have chosen names: whoever renames a variable of hwgen's gateware changes no Verilog."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "renamed_locals.py"


def written(folder: Path, mode: str, cases: list[str]) -> tuple[dict[str, str], int]:
    """Return the Verilog of some cases by file, and the number of variables that were renamed."""
    environment = os.environ | {"HWGEN_CACHE": str(folder / f"cache of {mode}")}
    command = [sys.executable, str(SCRIPT), str(folder / mode), mode, *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    files = {str(path.relative_to(folder / mode)): path.read_text() for path in (folder / mode).rglob("*.v")}
    return files, int(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(["runtime"], id="loaded"),
        pytest.param(["stream", "pyramid", "engine", "graph"], id="all", marks=pytest.mark.long),
    ],
)
def test_renamed_variables_change_no_verilog(cases, tmp_path):
    before, untouched = written(tmp_path, "as-it-is", cases)
    after, renamed = written(tmp_path, "renamed", cases)
    assert untouched == 0
    assert renamed > 2000
    assert len(before) >= 2 * len(cases)
    assert before == after
