"""Signals and results in users' Verilog have chosen names, not those of the variables that they are assigned to.

Variables are renamed in memory: in the code that runs, and in the source that Python's `linecache` gives.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth import Signal

from hwgen.gateware.naming import chosen_name, named

SCRIPT = Path(__file__).parents[1] / "support" / "renamed_locals.py"


def written(folder: Path, mode: str, cases: list[str]) -> tuple[dict[str, str], int]:
    """Return the Verilog of some cases by file, and the number of variables that were renamed."""
    environment = os.environ | {"HWGEN_CACHE": str(folder / f"cache of {mode}")}
    command = [sys.executable, str(SCRIPT), str(folder / mode), mode, *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    files = {str(path.relative_to(folder / mode)): path.read_text() for path in (folder / mode).rglob("*.v")}
    return files, int(done.stdout.splitlines()[-1])


@pytest.mark.long
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


def test_a_result_keeps_its_first_name():
    a, b = Signal(4, name="a"), Signal(4, name="b")
    total = named((a + b)[:4].as_signed(), "first_sum")
    assert named(total, "second_sum") is total
    assert chosen_name(":".join(map(str, total.operands[0].value.src_loc))) == "first_sum"
    assert chosen_name("line_buffer.py:12") == ""
    assert named(a, "other").name == "a"
    assert named(3, "integer") == 3
