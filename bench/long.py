"""Runs the long tests, those that the default run leaves out, and prints how each went and the time it took.

Random tests of which the default run draws fewer cases run as well, with all of their cases.

Beside the time on the clock stands the processors' time, which other work on the machine hardly changes: its own and
that of the tools that it called.

Usage: python bench/long.py [--minutes M] [--jobs N] [PYTEST ARGUMENT ...]     (such as -k pyramid; default: all)

At the limit, and when interrupted, what is at work is ended and named. Exit status 0 if nothing failed, 1 if something
did, or did not finish, or no test was found, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 40.0
EVENTS = "HWGEN_LONG_EVENTS"
"""Environment variable with the file into which the tests' process writes what happens."""
OUTCOMES = ("passed", "failed", "skipped", "unfinished")
GRACE_S = 10
"""Given to processes to end by themselves."""


def processors_s() -> float:
    """Seconds that processors have worked for this process and the ended ones that it started."""
    return sum(os.times()[:4])


class Meter:
    """A plugin of pytest, in each process that runs tests: reports say what processors worked since the last one."""

    def __init__(self) -> None:
        self._last = processors_s()

    @pytest.hookimpl
    def pytest_runtest_logstart(self) -> None:
        self._last = processors_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = processors_s()
        report.cpu_s, self._last = now - self._last, now
        return report


class Recorder:
    """A plugin of pytest that writes a line of JSON for each thing that happens to a test, so that nothing is lost
    when the run is ended from outside."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _write(self, **event: str | float) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        for name in ids:
            self._write(test=name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash is not None else report.longreprtext
        skipped = report.longrepr if isinstance(report.longrepr, tuple) else None
        self._write(
            test=report.nodeid,
            when=report.when or "",
            outcome=report.outcome,
            seconds=report.duration,
            cpu_s=getattr(report, "cpu_s", 0.0),
            reason=" ".join((skipped[2] if skipped else reason).split())[:300],
        )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):  # workers report to the process that started them
        config.pluginmanager.register(Recorder(os.environ[EVENTS]))


@dataclass
class Test:
    """Result of one test; ``outcome`` is one of `OUTCOMES`."""

    name: str
    outcome: str = "unfinished"
    seconds: float = 0.0
    cpu_s: float = 0.0
    reason: str = ""


def gather(events: str) -> list[Test]:
    """Return the tests of a recorded run, the longest first."""
    tests: dict[str, Test] = {}
    for line in events.splitlines():
        event = json.loads(line)
        test = tests.setdefault(event["test"], Test(event["test"]))
        if "outcome" not in event:
            continue
        test.seconds += event["seconds"]
        test.cpu_s += event["cpu_s"]
        if event["outcome"] == "failed" or (event["outcome"] == "skipped" and test.outcome != "failed"):
            test.outcome, test.reason = event["outcome"], test.reason or event["reason"]
        elif event["when"] == "teardown" and test.outcome == "unfinished":
            test.outcome = "passed"
    return sorted(tests.values(), key=lambda test: (-test.seconds, test.name))


def table(tests: Sequence[Test], wall_s: float) -> str:
    """Every test, then the reasons of those that failed or were skipped, then the sum."""
    lines = [f"{test.outcome:<10} {test.seconds:9.1f} s {test.cpu_s:9.1f} s  {test.name}" for test in tests]
    lines = [f"{'':<10} {'clock':>11} {'processor':>11}", *lines] if tests else []
    others = [test for test in tests if test.reason]
    if others:
        lines += ["", *(f"{test.outcome}: {test.name}: {test.reason}" for test in others)]
    counts = Counter(test.outcome for test in tests)
    told = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name]) or "no tests"
    work, cpu = (sum(times) / 60 for times in ([test.seconds for test in tests], [test.cpu_s for test in tests]))
    total = f"{told} in {wall_s / 60:.1f} minutes ({work:.1f} minutes of tests, {cpu:.1f} of processors)"
    return "\n".join([*lines, "", total])


def end(process: subprocess.Popen[bytes]) -> None:
    """End the tests' process and all that it started: asked first, so that pytest still prints the failures."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
    process.wait()


def run(arguments: Sequence[str], jobs: int, limit_s: float, events: Path) -> int:
    """Run the tests for at most ``limit_s`` seconds; returns the exit status, 0, 1 or 130."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "bench.long",
        "-m",
        "long or more_cases",
        "-n",
        str(jobs),
        "--dist",
        "worksteal",
    ]
    command += ["--hypothesis-profile=random"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, EVENTS: str(events), "PYTHONPATH": path}
    process = subprocess.Popen([*command, *arguments], env=environment, cwd=ROOT, start_new_session=True)
    try:
        status = process.wait(limit_s)
        if status not in (0, 1):
            print(f"\npytest ended with status {status}", flush=True)
        return 1 if status else 0
    except subprocess.TimeoutExpired:
        status, reason = 1, f"not finished after {limit_s / 60:g} minutes"
    except KeyboardInterrupt:
        status, reason = 130, "interrupted"
    end(process)
    print(f"\n{reason}", flush=True)
    return status


def main() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog="Whatever else is given goes to pytest."
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"limit of the whole run (default {MINUTES:g})")
    parser.add_argument("--jobs", type=int, default=cores, metavar="N", help="tests at once (default: the cores there)")
    arguments, others = parser.parse_known_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events"
        events.touch()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        status = run(others, arguments.jobs, arguments.minutes * 60, events)
        tests = gather(events.read_text(encoding="utf-8"))
    print(table(tests, time.monotonic() - begin))
    return status


if __name__ == "__main__":
    sys.exit(main())
