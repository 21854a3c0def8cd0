"""Runs the long tests, those that the default run leaves out, and prints how each went and the time it took.

Random tests of which the default run draws fewer cases run as well, with all of their cases. A test runs if a source
that it depends on has changed since it last passed (`ledger`), the file that waits longest first; ``--all`` runs all of
them. What passes is noted in the ledger.

Beside the time on the clock stands the processors' time, which other work on the machine hardly changes: its own and
that of the tools that it called.

Usage: python bench/long.py [--all] [--list] [--minutes M] [--jobs N] [PYTEST ARGUMENT ...]     (such as -k pyramid)

At the limit, and when interrupted, what is at work is ended and named, and what remains stale is listed. Exit status
0 if nothing failed, 1 if something did or no test was found, or with ``--all`` if one did not finish, 130 if
interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dependencies import Graph
from ledger import Ledger, Line, digests, function_of, read_built, stale, summary, today, write_built
from recording import BUILT, CHOICE, COLLECTED, EVENTS, FOLDER

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 40.0
OUTCOMES = ("passed", "failed", "skipped", "unfinished")
ENDED = {"ended": True}
"""Event of a run that is ended from outside: a test that fails after it was at work, and is not at fault."""
GRACE_S = 10
"""Given to processes to end by themselves."""
NO_TESTS = 5
"""Exit status of pytest that ran nothing."""
LIMIT = 2
"""Status of `run` at its limit."""
LONG = "long or more_cases"
"""Marks of the tests that the ledger lists."""


@dataclass
class Test:
    """Result of one test; ``outcome`` is one of `OUTCOMES`."""

    name: str
    outcome: str = "unfinished"
    seconds: float = 0.0
    cpu_s: float = 0.0
    reason: str = ""


def gather(events: str) -> list[Test]:
    """Return the tests of a recorded run, the longest first. What is reported after `ENDED` did not finish."""
    tests: dict[str, Test] = {}
    for line in events.splitlines():
        event = json.loads(line)
        if event == ENDED:
            break
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


def run(
    arguments: Sequence[str], jobs: int, limit_s: float, folder: Path, marks: str = LONG, *, quiet: bool = False
) -> int:
    """Run tests for at most ``limit_s`` seconds.

    Parameters
    ----------
    arguments : sequence of str
        Arguments of pytest.
    jobs : int
        Number of tests at once.
    limit_s : float
        Time on the clock.
    folder : Path
        Folder that `recording` reads the choice of tests from, if there is one, and writes what happens to.
    marks : str, optional
        Which tests: pytest's ``-m``.
    quiet : bool, optional
        Whether what pytest prints is dropped.

    Returns
    -------
    status : int
        0, 1 if a test failed or none was found, `LIMIT` at the limit, 130 if interrupted.
    """
    command = [sys.executable, "-m", "pytest", "-p", "bench.recording", "-m", marks, "-n", str(jobs)]
    in_order = ["--dist", "load", "--maxschedchunk", "4"]
    command += in_order if (folder / CHOICE).exists() else ["--dist", "worksteal"]
    command += ["--hypothesis-profile=random"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, FOLDER: str(folder), "PYTHONPATH": path}
    output = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen([*command, *arguments], env=environment, cwd=ROOT, start_new_session=True, stdout=output)
    try:
        status = process.wait(limit_s)
        if status == NO_TESTS and read_collected(folder):
            return 0  # all that were found are fresh
        if status not in (0, 1):
            print(f"\npytest ended with status {status}", flush=True)
        return 1 if status else 0
    except subprocess.TimeoutExpired:
        status, reason = LIMIT, f"not finished after {limit_s / 60:g} minutes"
    except KeyboardInterrupt:
        status, reason = 130, "interrupted"
    with (folder / EVENTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(ENDED) + "\n")
    end(process)
    print(f"\n{reason}", flush=True)
    return status


class Checkout:
    """The sources of today with the ledger: which tests are stale, and what is noted of a run.

    Parameters
    ----------
    root : Path
        Top of the checkout.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.graph = Graph(root)
        self.ledger = Ledger(root)
        self._state = self._sources()

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digest of each test function."""
        return digests(self.graph)

    @property
    def functions(self) -> set[str]:
        """Names of all test functions."""
        return {f"{path}::{name}" for path, names in self.graph.tests.items() for name in names}

    def _sources(self) -> str:
        """Return a digest of all files as they are now."""
        whole = hashlib.sha256()
        for name, path in self.graph.files.items():
            whole.update(name.encode())
            whole.update(path.read_bytes() if path.exists() else b"")
        return whole.hexdigest()

    def choose(
        self, folder: Path, ranks: Mapping[str, int], *, fresh: Sequence[str], ranked_only: bool = False
    ) -> None:
        """Write the choice of tests for `recording`."""
        choice = {"fresh": fresh, "ranks": ranks, "ranked_only": ranked_only}
        (folder / CHOICE).write_text(json.dumps(choice), encoding="utf-8")

    def fresh(self) -> list[str]:
        """Return the tests of the ledger that have passed with the sources of today."""
        known = [(name, self.digests.get(function_of(name), "")) for name in self.ledger.lines]
        return [name for name, digest in known if not self.ledger.is_stale(name, digest)]

    def ages(self) -> dict[str, int]:
        """Return the order of the files of tests, from 1: the one that waits longest first. Unknown files have none."""
        order = stale(self.ledger, self.digests, self.ledger.lines)
        return {path: rank for rank, path in enumerate(dict.fromkeys(name.partition("::")[0] for name in order), 1)}

    def note(self, folder: Path, tests: Sequence[Test], collected: Sequence[str], *, is_whole: bool) -> None:
        """Note in the ledger what passed, and what the tests built.

        Parameters
        ----------
        folder : Path
            Folder of `recording`.
        tests : sequence of Test
            Results.
        collected : sequence of str
            Long tests that there are.
        is_whole : bool
            Whether no others are, so that the ledger forgets any other test of the same files.
        """
        if self._sources() != self._state:
            before, self.graph = self.digests, Graph(self._root)
            now = digests(self.graph)
            self.digests = {name: digest for name, digest in now.items() if before.get(name) == digest}
            print("sources changed during the run: only tests that depend on none of them are noted", flush=True)
        day, commit = today(self._root)
        named = [(test, self.digests.get(function_of(test.name))) for test in tests if test.name in set(collected)]
        passed = {
            test.name: Line(digest, day, commit, max(1, round(test.seconds)))
            for test, digest in named
            if digest and test.outcome == "passed"
        }
        self.ledger.note(passed)
        paths = {name.partition("::")[0] for name in collected} if is_whole else set()
        gone = {name for name in self.ledger.lines if name.partition("::")[0] in paths} - set(collected)
        self.ledger.drop(gone | {name for name in self.ledger.lines if function_of(name) not in self.functions})
        self.ledger.write()
        self._note_built(folder)

    def _note_built(self, folder: Path) -> None:
        built = {path: modules for path, modules in read_built(self._root).items() if path in self.graph.files}
        for path in sorted(folder.glob(f"{BUILT}-*")):
            for text in path.read_text(encoding="utf-8").splitlines():
                file, module = text.split()
                if file in self.graph.files:
                    built.setdefault(file, set()).add(module.removeprefix("hwgen.gateware."))
        write_built(self._root, built)


def read_collected(folder: Path, *, long_only: bool = False) -> list[str]:
    """Return the names of the tests that pytest found, or of the long ones; none if it did not get so far."""
    path = folder / COLLECTED
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return [name for name, is_long in found.items() if is_long or not long_only]


def listed(title: str, names: Sequence[str], whole: int) -> str:
    """Return a title with a number, and a line for each file with some of the tests ``names``."""
    return "\n".join([f"{title}: {len(names):,} of {whole:,} long tests", *summary(names)])


def run_stale(arguments: argparse.Namespace, others: Sequence[str], folder: Path) -> tuple[int, list[Test]]:
    """Run the tests that are stale, or all; note what passed, and say what remains."""
    checkout = Checkout(ROOT)
    checkout.choose(folder, checkout.ages(), fresh=[] if arguments.all else checkout.fresh())
    if arguments.list:
        status = run(["--collect-only", "-q", *others], 0, arguments.minutes * 60, folder, quiet=True)
        names = read_collected(folder)
        print(listed("stale", stale(checkout.ledger, checkout.digests, names), len(names)))
        return status, []
    before = [name for name in checkout.ledger.lines if name not in set(checkout.fresh())]
    status = run(others, arguments.jobs, arguments.minutes * 60, folder)
    tests, names = gather((folder / EVENTS).read_text(encoding="utf-8")), read_collected(folder)
    known = set(checkout.ledger.lines)
    unknown = [name for name in names if name not in known]
    print("\n" + listed("were stale", stale(checkout.ledger, checkout.digests, names), len(names)))
    print(f"({len(unknown):,} had never passed, {len(set(before) & set(names)):,} with other sources)")
    checkout.note(folder, tests, names, is_whole=not others)
    remaining = stale(checkout.ledger, checkout.digests, names)
    print(listed("remain stale", remaining, len(names)), flush=True)
    if arguments.known and status in (1, LIMIT):
        status = failed([test for test in tests if test.name in known])
    return (status if arguments.all or status != LIMIT else failed(tests)), tests


def failed(tests: Sequence[Test]) -> int:
    """Return 1 if a test failed, else 0."""
    return int(any(test.outcome == "failed" for test in tests))


def main() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog="Whatever else is given goes to pytest."
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"limit of the whole run (default {MINUTES:g})")
    parser.add_argument("--jobs", type=int, default=cores, metavar="N", help="tests at once (default: the cores there)")
    parser.add_argument("--all", action="store_true", help="run those too whose sources have not changed")
    parser.add_argument(
        "--known", action="store_true", help="exit status 1 only if a test fails that has passed before"
    )
    parser.add_argument("--list", action="store_true", help="list what is stale, and run nothing")
    parser.add_argument(
        "--no-ledger", action="store_true", help="run all, and note nothing: for tests of other folders"
    )
    arguments, others = parser.parse_known_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / EVENTS).touch()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if arguments.no_ledger:
            status = run(others, arguments.jobs, arguments.minutes * 60, folder)
            tests = gather((folder / EVENTS).read_text(encoding="utf-8"))
        else:
            status, tests = run_stale(arguments, others, folder)
    if not arguments.list:
        print(table(tests, time.monotonic() - begin))
    return 1 if status == LIMIT else status


if __name__ == "__main__":
    sys.exit(main())
