"""Plugin of pytest for bench/long.py and bench/touched.py: chooses tests, and records what happens to each.

It is imported before pytest knows the folders of modules, so that it imports nothing of this checkout.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

FOLDER = "HWGEN_LONG_FOLDER"
"""Environment variable with the folder for `EVENTS` and the other files."""
EVENTS = "events"
"""A line of JSON for each thing that happens to a test."""
CHOICE = "choice.json"
"""``fresh``: names of tests that need not run; ``ranks``: the order, by the path of a test's file or by the name of a
function in it; ``ranked_only``: whether tests without a rank are left out."""
COLLECTED = "collected.json"
"""Names of all tests before the choice, and whether each is a long one."""
BUILT = "built"
"""Lines with the path of a file of tests, and a module of the gateware that one of its tests makes an instance of."""


def processors_s() -> float:
    """Seconds that processors have worked for this process and the ended ones that it started."""
    return sum(os.times()[:4])


class Meter:
    """Part in each process that runs tests: reports say what processors worked since the last one."""

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
    """Part in the process that hears of all tests: it writes at once, so that nothing is lost when it is ended."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS

    def _write(self, **event: str | float) -> None:
        with self._path.open("a", encoding="utf-8") as file:
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


class Chooser:
    """Part in each process that collects tests: leaves out those that need not run, and orders the others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._choice = json.loads((folder / CHOICE).read_text(encoding="utf-8"))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        long_marks = ("long", "more_cases")
        self._note({item.nodeid: any(map(item.get_closest_marker, long_marks)) for item in items}, config)
        fresh = set(self._choice["fresh"])
        kept = [item for item in items if item.nodeid not in fresh]
        if self._choice["ranked_only"]:
            kept = [item for item in kept if self._rank(item.nodeid) is not None]
        left_out = set(items) - set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = sorted(kept, key=lambda item: self._rank(item.nodeid) or 0)

    def _rank(self, name: str) -> int | None:
        path, _, inner = name.partition("::")
        function = f"{path}::{inner.partition('[')[0].partition('::')[0]}"
        return self._choice["ranks"].get(function, self._choice["ranks"].get(path))

    def _note(self, names: dict[str, bool], config: pytest.Config) -> None:
        """All workers collect the same tests; the first one writes them."""
        if getattr(config, "workerinput", {}).get("workerid", "gw0") == "gw0":
            (self._folder / COLLECTED).write_text(json.dumps(names), encoding="utf-8")


class Builds:
    """Part in each process that runs tests: which modules of the gateware they make instances of."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{BUILT}-{os.getpid()}"
        self._seen: set[tuple[str, str]] = set()
        self._file = ""

    def watch(self) -> None:
        """Hear of each new instance of a class of Amaranth's that has a circuit."""
        from amaranth.hdl import Elaboratable

        seen, made = self._seen, Elaboratable.__new__

        def new(cls: Any, *arguments: Any, src_loc_at: int = 0, **named: Any) -> Any:
            if self._file and cls.__module__.startswith("hwgen.gateware."):
                seen.add((self._file, cls.__module__))
            return made(cls, *arguments, src_loc_at=src_loc_at + 1, **named)

        Elaboratable.__new__ = new  # type: ignore[method-assign]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._file = nodeid.partition("::")[0]

    def pytest_runtest_logfinish(self) -> None:
        if self._seen:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(f"{path} {module}\n" for path, module in sorted(self._seen))
            self._seen.clear()


def pytest_configure(config: pytest.Config) -> None:
    folder = Path(os.environ[FOLDER])
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):  # workers report to the process that started them
        config.pluginmanager.register(Recorder(folder))
    if (folder / CHOICE).exists():
        config.pluginmanager.register(Chooser(folder))
        builds = Builds(folder)
        builds.watch()
        config.pluginmanager.register(builds)
