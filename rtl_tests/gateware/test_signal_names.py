"""Signals in users' Verilog have chosen names, not those of the variables that they are assigned to.

Variables are renamed in memory, so that results without a signal keep their names: the writer reads these in the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "renamed_locals.py"


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
def test_renamed_variables_rename_no_signal(cases, tmp_path):
    before, untouched = written(tmp_path, "as-it-is", cases)
    after, renamed = written(tmp_path, "renamed", cases)
    assert untouched == 0
    assert renamed > 2000
    assert len(before) >= 2 * len(cases)
    assert before == after
