"""Ledger of long tests: the digest of the sources of each when it last passed.

rtl_tests/ledger/ has a file for each folder of tests, with a line for each test: the digest, the day, the commit, the
seconds on the clock, and the name of the test. A test is stale if no line of it has the digest of today's sources
(`dependencies.Graph.digest`). Day, commit and seconds are information and do not count. A ``+`` after the commit says
that the checkout had changes that were not committed.

Lines are sorted by name, and Git joins two branches by keeping the lines of both (.gitattributes). A test with several
lines has passed with each of their digests. The next pass replaces them.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dependencies import LEDGER, Graph

TESTS = "rtl_tests"
#: Modules of the gateware that the tests of each file build, as seen when they ran.
BUILT = "built.txt"


@dataclass(frozen=True)
class Line:
    """Pass of a long test.

    Parameters
    ----------
    digest : str
        Digest of the sources that the test depends on.
    day : str
        Date of the pass, for example 2028-11-28.
    commit : str
        Commit that was checked out; ``-`` if there was none.
    seconds : int
        Time on the clock that the test took, at least 1.
    """

    digest: str
    day: str
    commit: str
    seconds: int

    def __str__(self) -> str:
        return f"{self.digest} {self.day} {self.commit} {self.seconds}"


class Ledger:
    """Lines of all long tests of a checkout, by the test's name in pytest.

    Parameters
    ----------
    root : Path
        Top of the checkout.
    """

    def __init__(self, root: Path) -> None:
        self._folder = root / LEDGER
        self.lines: dict[str, list[Line]] = {}
        for path in sorted(self._folder.glob("*.txt")):
            if path.name != BUILT:
                self._read(path)

    def _read(self, path: Path) -> None:
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            fields = text.split(" ", 4)
            if len(fields) != 5 or not fields[3].isdigit():
                raise SystemExit(f"{path}:{number}: a line must be: DIGEST DAY COMMIT SECONDS TEST, not {text!r}")
            name = f"{TESTS}/{fields[4]}"
            self.lines.setdefault(name, []).append(Line(fields[0], fields[1], fields[2], int(fields[3])))

    def is_stale(self, name: str, digest: str) -> bool:
        """Return whether a test has not passed with the sources that have a digest."""
        return all(line.digest != digest for line in self.lines.get(name, ()))

    def day(self, name: str) -> str:
        """Return the day when a test last passed; empty if it never did."""
        return max((line.day for line in self.lines.get(name, ())), default="")

    def note(self, passed: Mapping[str, Line]) -> None:
        """Replace the lines of tests that passed."""
        self.lines.update({name: [line] for name, line in passed.items()})

    def drop(self, names: Iterable[str]) -> None:
        """Leave out tests that are no more."""
        for name in names:
            self.lines.pop(name, None)

    def write(self) -> None:
        """Write the files whose contents changed."""
        texts: dict[str, list[str]] = {path.stem: [] for path in self._folder.glob("*.txt") if path.name != BUILT}
        for name in sorted(self.lines):
            test = name.removeprefix(f"{TESTS}/")
            folder = test.partition("::")[0].rpartition("/")[0].replace("/", ".") or TESTS
            texts.setdefault(folder, []).extend(f"{line} {test}\n" for line in self.lines[name])
        self._folder.mkdir(exist_ok=True)
        for folder, lines in texts.items():
            _write(self._folder / f"{folder}.txt", "".join(lines))


def _write(path: Path, text: str) -> None:
    """Write a file whose text differs, and remove one without text."""
    if not text:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def function_of(name: str) -> str:
    """Return the name of a test's function in its file, without its class and case."""
    path, _, inner = name.partition("::")
    return f"{path}::{inner.partition('[')[0].partition('::')[0]}"


def digests(graph: Graph) -> dict[str, str]:
    """Return the digest of every test function."""
    return {f"{path}::{name}": graph.digest(path, name) for path, names in graph.tests.items() for name in names}


def stale(ledger: Ledger, known: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return the stale ones of ``names``: the file that waits longest first, its tests together."""
    found = [name for name in names if ledger.is_stale(name, known.get(function_of(name), ""))]
    since: dict[str, str] = {}
    for name in found:
        path = name.partition("::")[0]
        since[path] = min(since.get(path, "9"), ledger.day(name))
    return sorted(found, key=lambda name: (since[name.partition("::")[0]], name.partition("::")[0]))


def today(root: Path) -> tuple[str, str]:
    """Return the date and the commit that is checked out."""
    return time.strftime("%Y-%m-%d"), _commit(root)


def _commit(root: Path) -> str:
    try:
        head, changed = (
            subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
            for words in (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except FileNotFoundError:
        return "-"
    return head.stdout.strip() + "+" * bool(changed.stdout.strip()) if head.returncode == 0 else "-"


def read_built(root: Path) -> dict[str, set[str]]:
    """Return the modules of the gateware that the tests of each file build, by the file's path."""
    path = root / LEDGER / BUILT
    built: dict[str, set[str]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        file, *modules = text.split()
        built.setdefault(f"{TESTS}/{file}", set()).update(modules)
    return built


def write_built(root: Path, built: Mapping[str, Collection[str]]) -> None:
    """Write what `read_built` reads."""
    (root / LEDGER).mkdir(exist_ok=True)
    lines = [f"{path.removeprefix(f'{TESTS}/')} {' '.join(sorted(built[path]))}\n" for path in sorted(built)]
    _write(root / LEDGER / BUILT, "".join(lines))


def summary(names: Collection[str]) -> list[str]:
    """Return a line for each file with some of the tests ``names``."""
    counts: dict[str, int] = {}
    for name in names:
        path = name.partition("::")[0]
        counts[path] = counts.get(path, 0) + 1
    return [f"{count:6} {path}" for path, count in counts.items()]
