"""However hwgen ends: no program that it started runs on, and no temporary folder stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hwgen

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")

# A tool that says that it runs, starts another that does the same, and does not end by itself.
SLEEPER = """#!/bin/sh
trap '' INT TERM HUP
touch "$TMPDIR/left-behind"
echo "$0" >> "$STARTED"
sleep 300 &
wait
sleep 300
"""


def running(mark: str) -> list[str]:
    """Command lines of the processes that have ``mark`` in their environment."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and mark.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [line for line in found if line]


class Workshop:
    """A folder for temporary files, and one for tools that take the place of the real ones."""

    def __init__(self, tmp_path):
        self.place, self.tools, self.temporary = tmp_path, tmp_path / "tools", tmp_path / "temporary"
        self.cache, self.started = tmp_path / "cache", tmp_path / "started"
        for folder in (self.tools, self.temporary, self.cache):
            folder.mkdir()

    def stand_in(self, *names, script=SLEEPER):
        for name in names:
            (self.tools / name).write_text(script)
            (self.tools / name).chmod(0o755)

    def start(self, *arguments, **options):
        environment = {
            **os.environ,
            "PATH": f"{self.tools}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(self.temporary),
            "HWGEN_CACHE": str(self.cache),
            "STARTED": str(self.started),
            "HWGEN_TEST": str(self.place),
        }
        command = [sys.executable, "-m", "hwgen.cli", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.place, env=environment, **pipes, **options)

    def stop(self, process, number):
        """Signal hwgen alone, when its tool runs; what it said."""
        end = time.monotonic() + 120
        while not self.started.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        assert self.started.exists(), process.communicate()
        time.sleep(0.2)
        process.send_signal(number)
        return process.communicate(timeout=60)[1]

    def check(self):
        # ONNX Runtime has a file of its own there, in every run.
        assert not [path for path in self.temporary.iterdir() if path.name != ".ses"]
        assert not [path for path in self.cache.rglob("*") if path.name.startswith(".build")]
        end = time.monotonic() + 10
        while running(str(self.place)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not running(str(self.place))


@pytest.fixture
def workshop(tmp_path):
    return Workshop(tmp_path)


@pytest.fixture
def frames(tmp_path):
    np.save(tmp_path / "frames.npy", np.load(DIGITS / "images.npy")[:1])
    return tmp_path / "frames.npy"


SMALL = ["decoilfnet-example", "--board", "zedboard", "--dsp", "20"]


def small(tmp_path, count=1):
    model = hwgen.load("decoilfnet-example")
    np.save(tmp_path / "small.npy", np.zeros((count, *model.input.shape), model.input.type.dtype))
    return tmp_path / "small.npy"


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, "hwgen: interrupted"),
        (signal.SIGTERM, 143, "hwgen: ended by SIGTERM"),
        (signal.SIGHUP, 129, "hwgen: ended by SIGHUP"),
    ],
)
@pytest.mark.parametrize(
    ("simulator", "tool"),
    [("verilator", "make"), ("icarus", "iverilog"), ("icarus", "vvp")],
    ids=["make", "iverilog", "vvp"],
)
def test_signals_while_a_tool_runs(workshop, tmp_path, simulator, tool, number, status, said):
    if tool == "vvp" and not shutil.which("iverilog"):
        pytest.skip("iverilog is missing")
    workshop.stand_in(tool, *(("vvp",) if tool == "iverilog" else ()), *(("g++",) if tool == "make" else ()))
    if tool == "make":
        workshop.stand_in("g++", script="#!/bin/sh\necho g++ 12\n")
    process = workshop.start("simulate", *SMALL, "--input", small(tmp_path), "--simulator", simulator)
    assert workshop.stop(process, number).splitlines()[-1] == said
    assert process.returncode == status
    workshop.check()
