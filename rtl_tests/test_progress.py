"""Progress: lines at once and a bar where somebody watches, lines now and then elsewhere, and functions that listen."""

from __future__ import annotations

import io
import re
import sys
import threading
import time

import pytest

from hwgen import progress
from hwgen.simulate import runner


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
