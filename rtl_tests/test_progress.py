"""Progress: a bar where somebody watches, lines now and then elsewhere."""

from __future__ import annotations

import io
import sys

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
    bar = runner._Bar(1000, "net")
    bar.say("compiling the simulator")
    for number in range(int(seconds / step)):
        clock[0] += step
        bar.update(0, round(1000 * (number + 1) * step / seconds))
    bar.close()


def test_a_short_run_is_silent_in_a_file(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Stream(False))
    run(clock, 9.5, 0.5)
    assert sys.stderr.getvalue() == ""


def test_a_line_every_ten_seconds_in_a_file(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Stream(False))
    run(clock, 40, 0.25)
    lines = [f"net: {done} of 1,000 beats ({percent} %)" for done, percent in ((250, 25), (500, 50), (750, 75))]
    lines += ["net: 1,000 of 1,000 beats (100 %)"]
    assert sys.stderr.getvalue().splitlines() == [line.replace(" %", "%") for line in lines]
    assert "\r" not in sys.stderr.getvalue()


def test_steps_are_told_at_once_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(True))
    bar = runner._Bar(1000, "net")
    bar.say("compiling the simulator")
    bar.update(0, 10)
    bar.close()
    assert sys.stderr.getvalue().startswith("net: compiling the simulator\n")


def test_nothing_is_said_without_stderr(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", None)
    run(clock, 40, 5)
