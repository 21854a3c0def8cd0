"""Faults drawn at random in the gateware's source, to which tests or proofs must object.

Each mutant is one change in the Python of a circuit: a comparison that is turned or off by one, a constant that is
one larger or smaller, an AND that is an OR, or a statement of a domain that is left out. The tests of the default run
that execute the changed line judge it, until one objects. A mutant to which none objects survives, and is named.

First, each test runs alone on a copy of the package, for ``--slow`` seconds. The bench records its executed lines and
its time. A mutant's tests run in order of their time times the number of the gateware's files that they execute, so
that quick tests of single components come first. Mutants are drawn from ``--seed``, so that a run can be repeated. An
interrupted run goes on from the files of ``--json`` and ``--map``. A first pass with quick tests finds most mutants; a
second pass judges again what survived, with all tests, and compares what still survives by miters::

    python bench/mutants.py --seed 33 --count 200 --json mutants.json --map tests.json --quick --seconds 4
    python bench/mutants.py --seed 33 --count 200 --json mutants.json --map tests.json --again --slow 10 --miters
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest
from mutant_judges import Judges

ROOT = Path(__file__).resolve().parents[1]
GATEWARE = Path("hwgen") / "gateware"
#: Folders of tests that judge mutants.
TESTS = ("rtl_tests/gateware", "rtl_tests/prove")
#: Limit of processor time of a test that has no whole record.
LIMIT = 15.0
#: Guess of the processor time of such a test.
SLOW = 6.0
#: Comparisons and the faulty one in their place.
_COMPARED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_JOINED = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
#: Verdict on a mutant by the result of a test that objects to it.
_VERDICTS = {"failed": "refuted", "crashed": "refuted", "timed out": "timed out"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Parameters
    ----------
    file : str
        Path of the file, relative to hwgen/gateware.
    line, end_line, column : int
        First and last line of the changed text, and the column where it begins.
    change : str
        Kind of change, and what it replaces.
    source : str
        Source of the whole file with the change.
    """

    file: str
    line: int
    end_line: int
    column: int
    change: str
    source: str


@dataclass(frozen=True)
class Record:
    """Record of a test on the unchanged package.

    Parameters
    ----------
    result : str
        As in `mutant_judges.Outcome`.
    seconds : float
        Processor time.
    lines : dict of list
        Lines that the test executes, by the path of the file relative to hwgen/gateware.
    """

    result: str
    seconds: float
    lines: dict[str, list[int]]

    @property
    def cost(self) -> float:
        """Sort key among the judges of a mutant. The time of tests that were not recorded whole is a guess."""
        return (self.seconds if self.result == "passed" else SLOW) * len(self.lines)

    def executes(self, mutant: Mutant) -> bool:
        """Return whether the test executes the mutant's line, and did not fail on the unchanged package."""
        lines = self.lines.get(mutant.file, [])
        return self.result in ("passed", "slow") and any(mutant.line <= line <= mutant.end_line for line in lines)


@dataclass(frozen=True)
class Judged:
    """Verdict on a mutant.

    Parameters
    ----------
    file, line, column, change
        As in `Mutant`.
    verdict : str
        ``refuted``, ``timed out``, ``survived``, or ``equivalent`` if miters prove so.
    test : str
        First test that objects; empty if the mutant survives.
    runs, judges : int
        Number of tests that ran, and of tests that execute the line.
    seconds : float
        Processor time of the tests.
    miters : dict of str
        Results of the miters of a mutant that no test refutes, by component.
    """

    file: str
    line: int
    column: int
    change: str
    verdict: str
    test: str
    runs: int
    judges: int
    seconds: float
    miters: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        by_test = f" by {self.test}" if self.test else f" {self.runs} of {self.judges} tests"
        return f"{self.verdict}{by_test}: {self.file}:{self.line}: {self.change} ({self.seconds:.1f} s)"

    def is_of(self, mutant: Mutant) -> bool:
        """Return whether this is the verdict on a mutant."""
        return all(getattr(self, name) == getattr(mutant, name) for name in ("file", "line", "column", "change"))


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield all mutants of the circuits in a file, each once: of each function that adds statements to a domain.

    A nested function is walked with the function around it, too.
    """
    drawn = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and ".d." in (ast.get_source_segment(source, function) or ""):
            for node in ast.walk(function):
                for old, new, change in _changes(node):
                    end = old.end_lineno or old.lineno
                    text = _replaced(source, old, new)
                    mutant = Mutant(file, old.lineno, end, old.col_offset, change, text)
                    if mutant not in drawn:
                        drawn.add(mutant)
                        yield mutant


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Yield the changes of one node: the node that is replaced, its new text, and the change in words."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        turned = ast.Compare(node.left, [_COMPARED[type(node.ops[0])]()], node.comparators)
        yield node, f"({ast.unparse(turned)})", f"{ast.unparse(node)} -> {ast.unparse(turned)}"
    elif isinstance(node, ast.BinOp) and type(node.op) in _JOINED:
        joined = ast.BinOp(node.left, _JOINED[type(node.op)](), node.right)
        yield node, f"({ast.unparse(joined)})", f"{ast.unparse(node)} -> {ast.unparse(joined)}"
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        for operand in (node.left, node.right):
            if isinstance(operand, ast.Constant) and type(operand.value) is int:
                for value in (operand.value + 1, operand.value - 1):
                    yield operand, f"({value})", f"{operand.value} -> {value} in {ast.unparse(node)}"
    elif isinstance(node, ast.AugAssign) and ".d." in ast.unparse(node.target):
        yield node, "pass", f"left out: {ast.unparse(node)[:80]}"


def _replaced(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """Return ``source`` with ``text`` in the place of a node."""
    lines = source.splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    before = "".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + "".join(lines[node.end_lineno :])
    return before + text + after


@contextmanager
def changed_file(path: Path, text: str) -> Iterator[None]:
    """Change a file for the time of a test, because processes that the test starts read it."""
    sound = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(sound, encoding="utf-8")


class Bench:
    """Tests with their records, which judge mutants.

    Parameters
    ----------
    judges : Judges
        The collected tests.
    path : Path, optional
        File of the records. Records that it has are not made again.
    """

    def __init__(self, judges: Judges, path: Path | None) -> None:
        self._judges = judges
        self._path = path
        texts = json.loads(path.read_text()) if path and path.exists() else {}
        self._records = {test: Record(**record) for test, record in texts.items()}

    def record(self, seconds: float) -> None:
        """Run each test that has no record, or a shorter one, for ``seconds`` on the unchanged package."""
        missing = [test for test in self._judges.items if self._is_missing(test, seconds)]
        for index, test in enumerate(missing, 1):
            outcome = self._judges.record(test, seconds)
            self._records[test] = Record(outcome.result, round(outcome.seconds, 2), outcome.lines)
            if outcome.result in ("failed", "crashed"):
                print(f"{outcome.result} on the unchanged package, judges nothing: {test}", flush=True)
            if index % 50 == 0 or index == len(missing):
                print(f"{index} of {len(missing)} tests recorded", flush=True)
                self._save()

    def _is_missing(self, test: str, seconds: float) -> bool:
        record = self._records.get(test)
        return record is None or (record.result == "slow" and 2 * record.seconds < seconds)

    def judges_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute a mutant's line, in the order in which they run."""
        tests = [test for test in self._judges.items if self._records[test].executes(mutant)]
        return sorted(tests, key=lambda test: self._records[test].cost)

    def judged(self, mutant: Mutant, seconds: float, *, quick: bool) -> Judged:
        """Return the verdict on a mutant.

        Parameters
        ----------
        mutant : Mutant
            The mutant.
        seconds : float
            Processor time after which no other test begins.
        quick : bool
            Whether only tests with a whole record judge.
        """
        tests = self.judges_of(mutant)
        num_judges = len(tests)
        tests = [test for test in tests if not quick or self._records[test].result == "passed"]
        verdict, objects, runs, used = "survived", "", 0, 0.0
        for test in tests:
            if used > seconds or objects:
                break
            limit = LIMIT if self._records[test].result == "slow" else 4 * self._records[test].seconds + 3
            with changed_file(self._judges.sources / mutant.file, mutant.source):
                outcome = self._judges.run(test, limit, (mutant.file, mutant.source))
            runs, used = runs + 1, used + outcome.seconds
            if outcome.result in _VERDICTS and self._passes(test, outcome.result):
                verdict, objects = _VERDICTS[outcome.result], test
        where = (mutant.file, mutant.line, mutant.column, mutant.change)
        return Judged(*where, verdict, objects.removeprefix("rtl_tests/"), runs, num_judges, round(used, 1))

    def _passes(self, test: str, result: str) -> bool:
        """Return whether a test that objects passes on the unchanged package, within the same time.

        Tests that were recorded whole do. The others run once more, and get a whole record.
        """
        record = self._records[test]
        if record.result == "slow":
            if result == "timed out":
                return False  # so it might be without the change
            outcome = self._judges.record(test, 5 * LIMIT)
            self._records[test] = record = Record(outcome.result, round(outcome.seconds, 2), outcome.lines)
            self._save()
        return record.result == "passed"

    def _save(self) -> None:
        if self._path:
            records = {test: asdict(record) for test, record in self._records.items()}
            self._path.write_text(json.dumps(records) + "\n")

    def compared(self, verdict: Judged, mutant: Mutant) -> Judged:
        """Return the verdict on a mutant that survives with the results of miters.

        The components are those of the three tests that judge the mutant first.
        """
        miters: dict[str, str] = {}
        for test in self.judges_of(mutant)[:3]:
            miters |= self._judges.miters(test, (mutant.file, mutant.source), seconds=60)
        results = set(miters.values())
        is_equivalent = "proved" in results and results <= {"proved", "same text"}
        return replace(verdict, verdict="equivalent" if is_equivalent else verdict.verdict, miters=miters)


def drawn(arguments: argparse.Namespace) -> list[Mutant]:
    """Return the mutants that the arguments draw."""
    folder = ROOT / GATEWARE
    files = (
        arguments.only.split(",")
        if arguments.only
        else sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
    )
    if unknown := [file for file in files if not (folder / file).is_file()]:
        raise SystemExit(f"--only: hwgen/gateware has no {unknown[0]}")
    every = [mutant for file in files for mutant in mutants_of(file, (folder / file).read_text(encoding="utf-8"))]
    mutants = random.Random(arguments.seed).sample(every, min(arguments.count, len(every)))
    print(f"seed {arguments.seed}: {len(mutants)} of {len(every)} mutants in {len(files)} files", flush=True)
    return mutants


def judge(arguments: argparse.Namespace, mutants: list[Mutant], judges: Judges) -> list[Judged]:
    """Judge all mutants, and print the verdicts as they come."""
    bench = Bench(judges, arguments.map)
    bench.record(arguments.slow)
    known = [Judged(**entry) for entry in json.loads(arguments.json.read_text())] if _exists(arguments.json) else []
    verdicts: list[Judged] = []
    for mutant in mutants:
        last = next((verdict for verdict in known if verdict.is_of(mutant)), None)
        if last is None or (arguments.again and last.verdict == "survived"):
            last = bench.judged(mutant, arguments.seconds, quick=arguments.quick)
            print(last, flush=True)
        if arguments.miters and last.verdict == "survived" and not last.miters:
            last = bench.compared(last, mutant)
            print(last, Counter(last.miters.values()), flush=True)
        verdicts.append(last)
        if arguments.json:
            entries = verdicts + [verdict for verdict in known if not any(map(verdict.is_of, mutants[: len(verdicts)]))]
            arguments.json.write_text(json.dumps([asdict(verdict) for verdict in entries], indent=1) + "\n")
    return verdicts


def _exists(path: Path | None) -> bool:
    return path is not None and path.exists()


def on_a_copy(tests: list[str], work: Callable[[Judges], None]) -> None:
    """Collect tests in a copy of the checkout, and give them to ``work``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for part in ("hwgen", "rtl_tests", "boards", "examples", "bench"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)  # of processes that tests start
        sys.path.insert(0, str(folder))
        options = ["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={folder}", f"--basetemp={folder / 'temporary'}"]
        if status := pytest.main([*options, *tests], plugins=[Judges(folder / GATEWARE, work)]):
            raise SystemExit(f"pytest ended with status {status}")
        os.chdir(ROOT)


def main() -> int:
    """Run the bench; the exit status is 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", metavar="FILE[,FILE]", help="files of hwgen/gateware (default: all)")
    parser.add_argument("--tests", nargs="+", default=TESTS, help=f"files or folders (default: {' '.join(TESTS)})")
    parser.add_argument("--seconds", type=float, default=150, help="processor time for a mutant (default: 150)")
    parser.add_argument("--slow", type=float, default=1, help="time of a test's record at most (default: 1)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="verdicts; those that it has are not judged again")
    parser.add_argument("--map", metavar="FILE", type=Path, help="lines and times of the tests; made where missing")
    parser.add_argument("--quick", action="store_true", help="leave slow tests out: a first pass, before --again")
    parser.add_argument("--again", action="store_true", help="judge again what survived")
    parser.add_argument("--miters", action="store_true", help="compare the circuits of what survives")
    arguments = parser.parse_args()
    for option in ("json", "map"):
        if getattr(arguments, option):
            setattr(arguments, option, getattr(arguments, option).resolve())
    mutants = drawn(arguments)
    verdicts: list[Judged] = []
    on_a_copy(arguments.tests, lambda judges: verdicts.extend(judge(arguments, mutants, judges)))
    counts = Counter(verdict.verdict for verdict in verdicts)
    print(f"{len(verdicts)} mutants: {', '.join(f'{count} {verdict}' for verdict, count in sorted(counts.items()))}")
    return int(counts["survived"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
