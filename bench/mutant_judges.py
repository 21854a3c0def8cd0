"""Tests of pytest as judges of mutants: single tests, each in a process of its own, with one function's code changed.

pytest collects the tests once, which imports the package. Each test then runs in a fork of that process, so that no
test pays for imports, and no test sees what another one left. A fork puts the mutant's code into the functions of the
imported package. Processes that a test starts read the changed file instead.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from mutant_miters import compared, recorded_components, written
from mutant_proofs import Built, designs

#: Most components of a test that are compared by miters.
COMPONENTS = 6
#: Limit of processor time in which a design is built.
BUILD_SECONDS = 300
#: Descriptor of the pipe to the parent process, in a fork. Tests do not use numbers that high.
_PIPE = 250
#: Flag of the code of functions; class bodies lack it.
_OPTIMIZED = 1


@dataclass(frozen=True)
class Outcome:
    """Result of one test.

    Parameters
    ----------
    result : str
        ``passed``, ``skipped``, ``failed``, ``timed out``, ``slow`` (`Judges.record`), or ``crashed`` if the process
        ended without a result.
    seconds : float
        Processor time of the test and of the processes that it started.
    lines : dict of list
        Executed lines of each watched file, if they were recorded.
    """

    result: str
    seconds: float
    lines: dict[str, list[int]] = field(default_factory=dict)


class Judges:
    """Plugin of pytest that gives the collected tests to a function, in the place of running them.

    Parameters
    ----------
    sources : Path
        Folder with the Python files that mutants change.
    bench : callable
        Function that receives this object once the tests are collected.
    """

    def __init__(self, sources: Path, bench: Callable[[Judges], None]) -> None:
        self.sources = sources
        self.items: dict[str, pytest.Item] = {}
        self._bench = bench
        self._functions: dict[tuple[str, str, int], list[types.FunctionType]] = {}

    def pytest_collection(self) -> None:
        """Let random tests end at the first failing case, which they need not make smaller."""
        from hypothesis import Phase, settings  # pytest must import it first

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("first failure", settings.default, phases=phases, report_multiple_bugs=False)
        settings.load_profile("first failure")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Give the tests to the bench."""
        self.items = {item.nodeid: item for item in session.items if not seeds_faults(item)}
        gc.unfreeze()  # frozen objects aren't listed
        for function in [item for item in gc.get_objects() if isinstance(item, types.FunctionType)]:
            code = function.__code__
            if Path(code.co_filename).is_relative_to(self.sources):
                self._functions.setdefault((code.co_filename, *_key(code)), []).append(function)
        gc.freeze()
        self._bench(self)
        return True

    def run(self, test: str, seconds: float, mutant: tuple[str, str] | None = None) -> Outcome:
        """Run one test in a process of its own.

        Parameters
        ----------
        test : str
            pytest's name of the test.
        seconds : float
            Limit of processor time. The limit of time on the clock is six times as long and one minute more.
        mutant : tuple, optional
            Path of a file relative to the sources, and its changed text.
        """

        def work() -> str:
            if mutant:
                self.mutate(*mutant)
            return self._result(test)

        answer, used, is_late = forked(work, seconds)
        return Outcome(answer or ("timed out" if is_late else "crashed"), used)

    def record(self, test: str, seconds: float) -> Outcome:
        """Run one test on the unchanged package, and record the lines that it executes.

        After ``seconds`` of processor time, or twelve times as long on the clock, the test ends with the result
        ``slow`` and the lines of that time.
        """

        lines: dict[str, set[int]] = {}

        def answer_of(result: str) -> tuple[str, dict[str, list[int]]]:
            return result, {file: sorted(numbers) for file, numbers in lines.items()}

        def work() -> tuple[str, dict[str, list[int]]]:
            for timer, alarm, limit in (
                (signal.ITIMER_PROF, signal.SIGPROF, seconds),
                (signal.ITIMER_REAL, signal.SIGALRM, 12 * seconds),
            ):
                signal.signal(alarm, lambda *_: _end(answer_of("slow")))
                signal.setitimer(timer, limit)
            with recorded_lines(self.sources, lines):
                return answer_of(self._result(test))

        answer, used, _ = forked(work, 60 + 10 * seconds)
        return Outcome(answer[0], used, answer[1]) if answer else Outcome("crashed", used)

    def _result(self, test: str) -> str:
        """Run a test in this process, and return its result."""
        results = {report.outcome for report in runtestprotocol(self.items[test], log=False, nextitem=None)}
        return next((result for result in ("failed", "skipped") if result in results), "passed")

    def miters(self, test: str, mutant: tuple[str, str], seconds: float, known: Collection[str] = ()) -> dict[str, str]:
        """Compare the components that a test builds with the mutant's code to the sound ones.

        Parameters
        ----------
        test : str
            pytest's name of the test.
        mutant : tuple
            Path of a file relative to the sources, and its changed text.
        seconds : float
            Time limit of each comparison.
        known : collection of str, optional
            Components that have been compared.

        Returns
        -------
        verdicts : dict of str
            Verdict of `mutant_miters.compared` by component, for at most `COMPONENTS` components.
        """

        def work() -> dict[str, str]:
            changes = self._changes(*mutant)
            components: dict[str, Any] = {}
            with recorded_components({function.__code__ for function, _ in changes}, components, COMPONENTS):
                runtestprotocol(self.items[test], log=False, nextitem=None)
            components = {name: component for name, component in components.items() if name not in known}
            golds = {name: written(component, "gold") for name, component in components.items()}
            self.mutate(*mutant)
            gates = {name: written(component, "gate") for name, component in components.items()}
            return {name: compared(golds[name], gates[name], seconds) for name in components}

        answer, _, _ = forked(work, 600 + 5 * COMPONENTS * seconds)
        return answer or {}

    def built(self, design: str, mutant: tuple[str, str] | None = None) -> Built | None:
        """Build a design of `mutant_proofs.designs` in a process of its own; return None if that fails.

        Parameters
        ----------
        design : str
            Name of the design.
        mutant : tuple, optional
            Path of a file relative to the sources, and its changed text.
        """

        def work() -> tuple[str, list[dict[str, Any]], dict[str, str]]:
            if mutant:
                self.mutate(*mutant)
            return designs()[design]()

        answer, _, _ = forked(work, BUILD_SECONDS)
        return Built(*answer) if answer else None

    def record_design(self, design: str) -> Outcome:
        """Build a design on the unchanged package, and record the lines that this executes."""

        def work() -> dict[str, list[int]]:
            lines: dict[str, set[int]] = {}
            with recorded_lines(self.sources, lines):
                designs()[design]()
            return {file: sorted(numbers) for file, numbers in lines.items()}

        answer, used, _ = forked(work, 4 * BUILD_SECONDS)
        return Outcome("passed" if answer else "crashed", used, answer or {})

    def mutate(self, file: str, source: str) -> None:
        """Put the code of a changed file into the functions that were made from that file."""
        for function, code in self._changes(file, source):
            function.__code__ = code

    def _changes(self, file: str, source: str) -> list[tuple[types.FunctionType, types.CodeType]]:
        """Return the functions that differ in a changed file, and their changed code."""
        path = str(self.sources / file)
        changes = [
            (function, code)
            for code in outer_functions(compile(source, path, "exec"))
            for function in self._functions.get((path, *_key(code)), [])
            if function.__code__ != code
        ]
        if not changes:
            raise RuntimeError(f"no function of {file} is changed")
        return changes


def seeds_faults(item: Any) -> bool:
    """Return whether a test seeds a fault of its own in the Verilog. It fails as well where the text differs."""
    fault = getattr(item, "callspec", None) and item.callspec.params.get("fault")
    return bool(fault) or "refuted" in item.name or "faults" in item.name


def is_long(item: Any) -> bool:
    """Return whether a test is left out of the default run."""
    return item.get_closest_marker("long") is not None


def outer_functions(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of the functions of a module or class body, without functions inside functions."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_flags & _OPTIMIZED:
                yield constant
            else:
                yield from outer_functions(constant)


def _key(code: types.CodeType) -> tuple[str, int]:
    """Return the name and the first line of a function."""
    return code.co_qualname, code.co_firstlineno


@contextmanager
def recorded_lines(sources: Path, lines: dict[str, set[int]]) -> Iterator[None]:
    """Record in ``lines`` which lines of the files in ``sources`` run, by the file's path relative to the folder."""
    numbers_of: dict[str, set[int] | None] = {}

    def numbers(file: str) -> set[int] | None:
        if file not in numbers_of:
            path = Path(file)
            is_inside = path.is_relative_to(sources)
            numbers_of[file] = lines.setdefault(str(path.relative_to(sources)), set()) if is_inside else None
        return numbers_of[file]

    def of_call(frame: types.FrameType, event: str, value: Any) -> Any:
        executed = numbers(frame.f_code.co_filename)
        if executed is None:
            return None
        executed.add(frame.f_lineno)

        def of_line(frame: types.FrameType, event: str, value: Any) -> Any:
            executed.add(frame.f_lineno)
            return of_line

        return of_line

    sys.settrace(of_call)
    try:
        yield
    finally:
        sys.settrace(None)


def forked(work: Callable[[], Any], seconds: float) -> tuple[Any, float, bool]:
    """Call ``work`` in a fork of this process.

    Returns
    -------
    answer
        Value that ``work`` returns, by way of JSON; None if the process ended without it.
    used : float
        Processor time of the process and of those that it waited for.
    is_late : bool
        Whether the process was ended because it took more than ``seconds`` of processor time, or six times as long and
        a minute on the clock.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _answer(work, writer, seconds)
    os.close(writer)
    deadline = time.monotonic() + 6 * seconds + 60
    text, is_late = b"", False
    while not is_late:
        ready, _, _ = select.select([reader], [], [], max(deadline - time.monotonic(), 0))
        part = os.read(reader, 1 << 16) if ready else b""
        is_late = not ready
        text += part
        if not part or text.endswith(b"\n"):
            break
    os.close(reader)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # and whatever the test started
    _, status, usage = os.wait4(pid, 0)
    is_late |= os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    answer = json.loads(text) if text.endswith(b"\n") else None
    return answer, usage.ru_utime + usage.ru_stime, is_late


def _answer(work: Callable[[], Any], writer: int, seconds: float) -> None:
    """Send what ``work`` returns through a pipe, and end this process.

    The descriptor `_PIPE` becomes the end of the pipe that is written.
    """
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(quiet, descriptor)
        os.dup2(writer, _PIPE, inheritable=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
        _end(work())
    finally:
        os._exit(1)


def _end(answer: Any) -> None:
    """Send an answer as a line of JSON through the pipe, and end this process."""
    text = json.dumps(answer).encode() + b"\n"
    while text:
        text = text[os.write(_PIPE, text) :]
    os._exit(0)
