"""Progress: lines at once and a bar where somebody watches, lines now and then elsewhere, and functions that listen."""

import io
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import html5lib
import numpy as np
import pytest

import hwgen
import hwgen.api
from hwgen import progress
from hwgen.cli import main as cli
from hwgen.simulate import cpp, runner


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when they are told to."""
    now = [100.0]
    monkeypatch.delenv(progress.VARIABLE)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def run(clock, seconds, step):
    """A run of so many seconds, told of every ``step``."""
    with progress.shown():
        bar = runner._Bar(1000, "net")
        bar.say("compiling the simulator")
        for number in range(int(seconds / step)):
            clock[0] += step
            bar.update(0, round(1000 * (number + 1) * step / seconds))


def test_a_short_run_is_silent_in_a_file(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Stream(False))
    run(clock, 9.5, 0.5)
    assert sys.stderr.getvalue() == ""


def test_a_line_every_ten_seconds_in_a_file(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Stream(False))
    run(clock, 40, 0.25)
    lines = [f"{done} of 1,000 beats ({percent}%)" for done, percent in ((250, 25), (500, 50), (750, 75))]
    lines += ["1,000 of 1,000 beats (100%)"]
    assert sys.stderr.getvalue().splitlines() == [f"net: simulating: {line}" for line in lines]
    assert "\r" not in sys.stderr.getvalue()


@pytest.mark.parametrize(("text", "lines"), [("off", 0), ("0", 160), ("0.5", 80), ("20", 2), ("", 4)])
def test_lines_in_a_file_as_the_environment_says(text, lines, monkeypatch, clock):
    monkeypatch.setenv(progress.VARIABLE, text)
    monkeypatch.setattr(sys, "stderr", Stream(False))
    run(clock, 40, 0.25)
    assert len(sys.stderr.getvalue().splitlines()) == lines + (text == "0")  # and the one that comes first


@pytest.mark.parametrize("text", ["on", "-1", "nan", "ten"])
def test_a_pause_that_is_no_number_is_refused(text, monkeypatch, capfd):
    monkeypatch.setenv(progress.VARIABLE, text)
    assert cli.main(["boards"]) == 2
    expected = f"hwgen: the environment variable HWGEN_PROGRESS must be a number of seconds or off, not '{text}'\n"
    assert capfd.readouterr() == ("", expected)


def test_a_process_that_a_test_starts_prints_no_progress():
    """The settings of all tests reach it, so that its first line is its first message on a slow machine, too."""
    code = "from hwgen import progress; progress.PAUSE = 0.0\nwith progress.shown(): progress.tell('planning')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert (done.stdout, done.stderr) == ("", "")


def test_steps_are_told_at_once_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(True))
    with progress.shown():
        bar = runner._Bar(1000, "net")
        bar.say("compiling the simulator")
        bar.update(0, 10)
        assert sys.stderr.getvalue() == "net: compiling the simulator\nnet: simulating\n"


def test_a_bar_comes_after_a_second_and_goes(monkeypatch):
    """With what is done and an estimate; the line of its step stays."""
    stream = Stream(True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "DELAY", 0.2)
    with progress.shown():
        progress.tell("net: searching", 0, 8, "layer")
        progress.tell("net: searching", 1, 8, "layer")
        assert stream.getvalue() == "net: searching\n"
        time.sleep(0.3)
        progress.tell("net: searching", 2, 8, "layer")
        assert re.search(r"\rnet: searching: +25%\|.*\| 2\.00/8\.00 \[00:00<00:0\d, .*layer", stream.getvalue())
    assert stream.getvalue().endswith("\r")  # and blanks where the bar was


def test_nothing_is_said_without_stderr(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", None)
    run(clock, 40, 5)


def test_nobody_listens():
    progress.tell("planning")
    assert progress.listener()(progress.Step("planning")) is None


def test_a_function_listens_in_its_block():
    steps = []
    with progress.told(steps.append):
        progress.tell("planning net")
        with progress.told(lambda step: None):
            progress.tell("aside")
        progress.tell("searching", 3, 4, "layer")
    progress.tell("behind")
    assert steps == [progress.Step("planning net"), progress.Step("searching", 3, 4, "layer")]
    assert [str(step) for step in steps] == ["planning net", "searching: 3 of 4 layers (75%)"]


def test_other_threads_tell_the_same_function():
    steps = []
    with progress.told(steps.append):
        bar = runner._Bar(10, "net")
        thread = threading.Thread(target=bar.update, args=(1, 5))
        thread.start()
        thread.join()
    assert steps == [progress.Step("net: simulating", 5, 10, "beat")]


def test_who_is_asked_for_hears_it(monkeypatch):
    """A function; stderr, unless somebody listens already."""
    stream, outer, inner = Stream(True), [], []
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.followed(True):
        progress.tell("one")
    with progress.followed(False):
        progress.tell("two")
    with progress.told(outer.append):
        with progress.followed(True):
            progress.tell("three")
        with progress.followed(inner.append):
            progress.tell("four")
    assert stream.getvalue() == "one\n"
    assert [step.what for step in outer] == ["three"]
    assert [step.what for step in inner] == ["four"]


def test_a_bar_of_the_same_step_begins_anew(monkeypatch):
    """Another search of the same kind: fewer are done, or there are others."""
    monkeypatch.setattr(sys, "stderr", Stream(True))
    monkeypatch.setattr(progress, "DELAY", 0)
    here = progress.Shown()
    for done, total in ((5, 8), (1, 8), (1, 9)):
        here(progress.Step("net: sizing buffers", done, total, "buffer"))
        assert here._bar is not None
        assert (here._bar.n, here._bar.total) == (done, total)
    here.close()


def test_steps_in_one_never_fall():
    """Three steps, two of the same kind: each takes half of what is left."""
    steps = []
    with progress.told(steps.append), progress.in_one("net: planning"):
        for what, total in (("sizing", 4), ("sizing", 4), ("grouping", 2)):
            for done in range(total + 1):
                progress.tell(what, done, total, "buffer")
        progress.tell("reading")
    assert {step.what for step in steps} == {"net: planning"}
    assert [step.done for step in steps[1:]] == [0, 12, 25, 37, 50, 50, 56, 62, 68, 75, 75, 81, 87]
    assert str(steps[-1]) == "net: planning: 87%"


DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Nothing is in the cache."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.long
def test_what_takes_long_tells_its_steps(fresh):
    """Reading, planning, the golden model, elaboration: in their order, counting up to what there is."""
    steps = []
    with progress.told(steps.append):
        design = hwgen.load(DIGITS).plan("zedboard", dsp=100, multipliers="dsp")
    design.build(fresh / "result", progress=steps.append)
    assert list(dict.fromkeys(step.what for step in steps)) == [
        f"reading {DIGITS}",
        "digits: planning for zedboard",
        "digits: golden model",
        "digits: writing the Verilog",
        "digits_axi: writing the Verilog",
    ]
    planned = [step.done for step in steps if step.what == "digits: planning for zedboard" and step.total]
    assert len(set(planned)) > 1
    written = [step.done for step in steps if step.unit == "module" and step.what == "digits: writing the Verilog"]
    assert written == list(range(len(written)))
    assert [step.done for step in steps if step.unit == "frame"] == [0, 1, 2]


def test_compiling_tells_its_files(fresh, monkeypatch):
    """One after the other as they are done, whichever thread compiles."""
    monkeypatch.setattr(cpp, "_call", lambda command, folder: (folder / command[-1]).touch())
    monkeypatch.setattr(cpp, "MAX_UNIT_BYTES", 1)  # so that no files are joined
    (fresh / "obj").mkdir()
    for name in ("Vdesign.h", "Vdesign.cpp", "Vdesign__Slow.cpp", "driver.cpp"):
        (fresh / "obj" / name).write_text("int main() {}\n")
    tools = cpp.Tools(compiler="g++", root=fresh, waves=0, versions=())
    steps = []
    with progress.told(steps.append):
        assert len(cpp.objects(tools, fresh, [], "net: compiling")) == 3
    assert steps == [progress.Step("net: compiling", done, 3, "file") for done in range(4)]


def test_the_command_line_shows_its_steps(fresh, monkeypatch):
    """On a terminal a line each, at once; nothing in a file."""
    command = ["plan", str(DIGITS), "--board", "zedboard", "--dsp", "90"]
    for terminal, expected in ((False, ""), (True, f"reading {DIGITS}\ndigits: planning for zedboard\n")):
        stream = Stream(terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("HWGEN_CACHE", str(fresh / str(terminal)))
        assert cli.main(command) == 0
        assert stream.getvalue().startswith(expected)
        assert terminal == bool(stream.getvalue())


def test_plans_and_results_in_a_notebook(fresh):
    """HTML that a parser takes: the plan's table has a row a layer, the result both figures."""
    design = hwgen.load(DIGITS).plan("zedboard", dsp=100, multipliers="dsp")
    page = html5lib.parseFragment(design._repr_html_(), namespaceHTMLElements=False)
    rows = [[cell.text for cell in row] for row in page.iter("tr")]
    assert rows[0][:4] == ["layer", "kind", "output", "Tn"]
    assert [row[0] for row in rows[1:]] == [layer.name for layer in design.network.layers]
    assert f"latency {design.latency:,} cycles" in "".join(page.itertext())
    page = html5lib.parseFragment(design.model._repr_html_(), namespaceHTMLElements=False)
    rows = [[cell.text for cell in row] for row in page.iter("tr")]
    assert rows[1] == ["conv1", "conv", "8x8x8 uint8", "72", "4,608"]
    assert sum(int(row[4].replace(",", "")) for row in rows[1:]) == design.network.macs
    images = np.load(DIGITS.parent / "images.npy")[:3]
    assert hwgen.load("decoilfnet-example").plan("zedboard", dsp=20, multipliers="dsp")._repr_html_().count("<tr>") > 1
    result = hwgen.api.Result(
        **dict.fromkeys(("outputs", "expected", "integers"), images),
        mismatches=1,
        first_mismatch="layer <conv1>, frame 0",
        latency=2199,
        interval=768,
        predicted_latency=2199,
        predicted_interval=769,
        stalled=False,
        read_bytes=1,
        written_bytes=1,
        wall_s=1.0,
        cycles=9999,
        cycles_per_s=9999.0,
        simulator="verilator",
    )
    page = html5lib.parseFragment(result._repr_html_(), namespaceHTMLElements=False)
    assert [[cell.text for cell in row] for row in page.iter("tr")] == [
        [None, "measured", "predicted"],
        ["latency", "2,199", "2,199"],
        ["interval", "768", "769"],
    ]
    assert "layer <conv1>, frame 0" in list(page.itertext())
