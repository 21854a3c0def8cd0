"""Emitted Verilog under a bench in cocotb, with models of buses that others wrote; started from pytest.

A bench is a module with cocotb's tests (``cocotb_*.py``), which the simulator imports. What it needs to know it gets as
a dictionary from `scenario`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

import pytest

_SCENARIO = "HWGEN_SCENARIO"  # names its file
_MISSING = [package for package in ("cocotb", "cocotbext.axi") if util.find_spec(package.partition(".")[0]) is None]

#: For tests that need all this.
needs_cocotb = pytest.mark.skipif(
    bool(_MISSING) or not shutil.which("iverilog"),
    reason="needs cocotb, cocotbext-axi and Icarus: pip install 'hwgen[test]', apt install iverilog",
)


def run(verilog: Mapping[str, bytes], top: str, bench: str, folder: Path, **scenario: Any) -> None:
    """Run all tests of the module ``bench`` on ``top`` in Icarus.

    Parameters
    ----------
    verilog : mapping of str to bytes
        Files by name; memory files of the design are there as well.
    folder : Path
        To work in. What was compiled there before from the same files is taken again.
    **scenario
        What `scenario` gives to the bench: anything that JSON holds.

    Raises
    ------
    AssertionError
        If a test fails, with what the simulator said last.
    """
    from cocotb_tools.runner import get_runner

    for name, content in verilog.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != content:
            (folder / name).write_bytes(content)
    runner = get_runner("icarus")
    told, said = folder / "scenario.json", folder / "said.txt"
    told.write_text(json.dumps(scenario))
    try:
        runner.build(
            sources=[folder / name for name in verilog if name.endswith(".v")],
            hdl_toplevel=top,
            build_dir=folder,
            timescale=("1ns", "1ps"),
            log_file=said,
        )
        runner.test(
            hdl_toplevel=top,
            test_module=bench,
            build_dir=folder,
            test_dir=folder,
            seed=1,
            extra_env={_SCENARIO: str(told), "COCOTB_LOG_LEVEL": "WARNING"},
            log_file=said,
        )
    except (SystemExit, RuntimeError) as error:
        raise AssertionError(f"{bench}: {said.read_text(errors='replace')[-3000:]}") from error


def scenario() -> dict[str, Any]:
    """In a bench: what was given to `run`."""
    return json.loads(Path(os.environ[_SCENARIO]).read_text())
