"""Faults drawn at random in the gateware's source, to which tests or proofs must object.

Each mutant is one change in the Python of a circuit: a comparison that is turned or off by one, a constant that is
one larger or smaller, an AND that is an OR, or a statement of a domain that is left out. The tests of the default run
that execute the changed line judge it, until one objects. A mutant to which none objects survives, and is named.

First, each test runs alone on a copy of the package, for ``--slow`` seconds. The bench records its executed lines and
its time. Mutants are drawn from ``--seed``, so that a run can be repeated. Two stages judge each mutant:

1. Tests of the default run that execute the changed line, and end within that time. They run in order of their time
   times the number of the gateware's files that they execute, so that quick tests of single components come first.
2. For what survives: proofs of small designs whose Verilog the mutant changes (`mutant_proofs`), miters that compare
   the component with the sound one (`mutant_miters`), and at last slow tests and those marked ``long``.

Tests that seed faults of their own judge nothing, because they also fail where the text that they replace differs. An
interrupted run goes on from the files of ``--json`` and ``--map``. Where the source has changed since, ``--survivors``
judges the survivors of an earlier file at their lines of today::

    python bench/mutants.py --seed 33 --count 200 --json mutants.json --map tests.json --quick
    python bench/mutants.py --seed 33 --count 200 --json mutants.json --map tests.json
    python bench/mutants.py --survivors mutants.json --json survivors.json --map tests.json
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
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest
from mutant_judges import Judges, is_long
from mutant_proofs import Built, designs, objection

ROOT = Path(__file__).resolve().parents[1]
GATEWARE = Path("hwgen") / "gateware"
#: Folders and files of tests that judge mutants: those of components. Proofs have a stage of their own.
TESTS = ("rtl_tests/gateware", *(f"rtl_tests/network/test_{name}.py" for name in ("depth", "joins", "lrn", "select")))
#: Limit of processor time of a test that has no whole record.
LIMIT = 200.0
#: Guess of the processor time of such a test.
SLOW = 60.0
#: Processor time in which the executed lines of the first test of a module of long tests are recorded.
LONG_RECORD = 20.0
#: Time limit of each method of a proof, and of each miter.
PROOF_SECONDS, MITER_SECONDS = 60.0, 90.0
#: Number of tests whose components are compared by miters, and of components after which no other test follows.
JUDGES_COMPARED, COMPONENTS_COMPARED = 6, 8
#: Comparisons and the faulty one in their place.
_COMPARED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_JOINED = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
#: Verdict on a mutant by the result of a test that objects to it.
_VERDICTS = {"failed": "refuted", "crashed": "refuted", "timed out": "timed out"}
#: Rows of the table of verdicts: the verdict and the stage, and their text.
_ROWS = {
    ("refuted", 1): "a test of the default run fails",
    ("timed out", 1): "a test of the default run takes more than 4 times its time and 3 s",
    ("refuted", 2): "a slow test or a proof fails",
    ("timed out", 2): "a slow test takes more than 4 times its time and 3 s",
    ("equivalent", 2): "equal by miters of Yosys and ABC, for the components of the first tests that execute the line",
    ("same text", 2): "the same Verilog for the components of the first tests that execute the line",
    ("survived", 2): "survived",
    ("survived", 1): "survived the first stage, the second was not run",
}


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


#: Record of a test that was not recorded.
_UNKNOWN = Record("slow", 0.0, {})


@dataclass(frozen=True)
class Judged:
    """Verdict on a mutant.

    Parameters
    ----------
    file, line, column, change
        As in `Mutant`.
    verdict : str
        ``refuted``, ``timed out``, ``survived``, ``equivalent`` if miters prove so, or ``same text`` if the mutant
        changes the Verilog of no component that was compared.
    test : str
        First test or proof that objects; empty if the mutant survives.
    runs, judges : int
        Number of tests that ran, and of tests that execute the line.
    seconds : float
        Processor time of the tests.
    miters : dict of str
        Results of the miters of a mutant that no test refutes, by component.
    stage : int
        Stage that judged last.
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
    stage: int = 1

    def __str__(self) -> str:
        by_test = f" by {self.test}" if self.test else f" {self.runs} of {self.judges} tests"
        counts = ", ".join(f"{count} {result}" for result, count in Counter(self.miters.values()).items())
        miters = f", miters: {counts}" if counts else ""
        return f"{self.verdict}{by_test}{miters}: {self.file}:{self.line}: {self.change} ({self.seconds:.1f} s)"

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
    """Tests with their records, and proofs of designs, which judge mutants.

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
        self._sound: dict[str, Built] = {}

    def record(self, seconds: float) -> None:
        """Run each test of the default run that has no record, or a shorter one, on the unchanged package."""
        quick = [test for test, item in self._judges.items.items() if not is_long(item)]
        self._record([test for test in quick if self._is_missing(test, seconds)], seconds)

    def _record(self, tests: list[str], seconds: float) -> None:
        for index, test in enumerate(tests, 1):
            outcome = self._judges.record(test, seconds)
            self._records[test] = Record(outcome.result, round(outcome.seconds, 2), outcome.lines)
            if outcome.result in ("failed", "crashed"):
                print(f"{outcome.result} on the unchanged package, judges nothing: {test}", flush=True)
            if index % 50 == 0 or index == len(tests):
                print(f"{index} of {len(tests)} tests recorded", flush=True)
                self._save()

    def _is_missing(self, test: str, seconds: float) -> bool:
        record = self._records.get(test)
        return record is None or (record.result == "slow" and 2 * record.seconds < seconds)

    def judges_of(self, mutant: Mutant) -> list[str]:
        """Return the recorded tests that execute a mutant's line, in the order in which they run."""
        recorded = [test for test in self._judges.items if test in self._records]
        tests = [test for test in recorded if self._records[test].executes(mutant)]
        return sorted(tests, key=lambda test: self._records[test].cost)

    def judged(self, mutant: Mutant, seconds: float) -> Judged:
        """Return the verdict of the first stage on a mutant.

        Parameters
        ----------
        mutant : Mutant
            The mutant.
        seconds : float
            Processor time after which no other test begins.
        """
        tests = [test for test in self.judges_of(mutant) if self._is_quick(test)]
        where = (mutant.file, mutant.line, mutant.column, mutant.change)
        return self._by_tests(Judged(*where, "survived", "", 0, len(tests), 0.0), mutant, tests, seconds)

    def _is_quick(self, test: str) -> bool:
        return self._records[test].result == "passed" and not is_long(self._judges.items[test])

    def judged_again(self, verdict: Judged, mutant: Mutant, seconds: float) -> Judged:
        """Return the verdict of the second stage on a mutant that survived the first one: proofs, miters, slow tests.

        Parameters
        ----------
        verdict : Judged
            Verdict of the first stage.
        mutant : Mutant
            The mutant.
        seconds : float
            Time on the clock after which no other proof begins, and processor time after which no other test begins.
        """
        verdict = replace(verdict, stage=2)
        if name := self._refuted_by_proof(mutant, seconds):
            return replace(verdict, verdict="refuted", test=f"proof: {name}")
        verdict = self._compared(verdict, mutant)
        if verdict.verdict == "equivalent":
            return verdict
        slow = [test for test in self.judges_of(mutant) if not self._is_quick(test)]
        tests = [*slow, *self._long_judges(mutant)]
        by_tests = self._by_tests(replace(verdict, judges=verdict.judges + len(tests)), mutant, tests, seconds)
        return by_tests if by_tests.test else replace(by_tests, verdict=verdict.verdict)

    def _long_judges(self, mutant: Mutant) -> list[str]:
        """Return the tests marked ``long`` of modules whose recorded tests execute the mutant's file.

        Most take too long to be recorded. Of a module without records, the first test is. Modules whose tests execute
        few files come first.
        """
        modules: dict[str, list[str]] = {}
        for test in self._judges.items:
            modules.setdefault(_module(test), []).append(test)
        costs = {}
        for module, tests in modules.items():
            recorded = [test for test in tests if test in self._records]
            if not recorded:
                self._record(recorded := tests[:1], LONG_RECORD)
            lines = [self._records[test].lines for test in recorded]
            if any(mutant.file in files for files in lines):
                costs[module] = max(map(len, lines))
        order = sorted(costs, key=costs.__getitem__)
        return [test for module in order for test in modules[module] if is_long(self._judges.items[test])]

    def _by_tests(self, verdict: Judged, mutant: Mutant, tests: list[str], seconds: float) -> Judged:
        """Return the verdict of tests on a mutant, which run until one objects or ``seconds`` are over."""
        runs, used = verdict.runs, 0.0
        result, objects = verdict.verdict, ""
        for test in tests:
            if used > seconds or objects:
                break
            record = self._records.get(test, _UNKNOWN)
            limit = LIMIT if record.result == "slow" else 4 * record.seconds + 3
            with changed_file(self._judges.sources / mutant.file, mutant.source):
                outcome = self._judges.run(test, limit, (mutant.file, mutant.source))
            runs, used = runs + 1, used + outcome.seconds
            if outcome.result in _VERDICTS and self._passes(test, outcome.result):
                result, objects = _VERDICTS[outcome.result], test.removeprefix("rtl_tests/")
        seconds = round(verdict.seconds + used, 1)
        return replace(verdict, verdict=result, test=objects, runs=runs, seconds=seconds)

    def _passes(self, test: str, result: str) -> bool:
        """Return whether a test that objects passes on the unchanged package, within the same time.

        Tests that were recorded whole do. The others run once more.
        """
        record = self._records.get(test, _UNKNOWN)
        if record.result == "slow":
            if result == "timed out":
                return False  # so it might be without the change
            outcome = self._judges.run(test, 2 * LIMIT)
            result = "slow" if outcome.result == "timed out" else outcome.result
            self._records[test] = record = replace(record, result=result, seconds=round(outcome.seconds, 2))
            self._save()
        return record.result == "passed"

    def _save(self) -> None:
        if self._path:
            records = {test: asdict(record) for test, record in self._records.items()}
            self._path.write_text(json.dumps(records) + "\n")

    def _refuted_by_proof(self, mutant: Mutant, seconds: float) -> str:
        """Return the first obligation of a design that the mutant changes and that is refuted; empty if there is none.

        The proofs of all designs together take ``seconds``, and those that have begun by then.
        """
        deadline = time.monotonic() + seconds
        for design in designs():
            if time.monotonic() > deadline or not self._design_record(design).executes(mutant):
                continue
            sound = self._sound_design(design)
            with changed_file(self._judges.sources / mutant.file, mutant.source):
                changed = self._judges.built(design, (mutant.file, mutant.source))
            if sound and changed and (name := objection(sound, changed, PROOF_SECONDS, deadline)):
                return f"{name}, {design}"
        return ""

    def _design_record(self, name: str) -> Record:
        """Return the record of a design, made where it is missing. It is kept beside those of tests."""
        key = f"design: {name}"
        if key not in self._records:
            outcome = self._judges.record_design(name)
            self._records[key] = Record(outcome.result, round(outcome.seconds, 2), outcome.lines)
            self._save()
        return self._records[key]

    def _sound_design(self, name: str) -> Built | None:
        """Return a design of the unchanged package; None if it can't be built."""
        if name not in self._sound and (built := self._judges.built(name)):
            self._sound[name] = built
        return self._sound.get(name)

    def _compared(self, verdict: Judged, mutant: Mutant) -> Judged:
        """Return the verdict on a mutant that survives with the results of miters.

        The components are those of the tests that judge the mutant first.
        """
        miters: dict[str, str] = {}
        for test in self.judges_of(mutant)[:JUDGES_COMPARED]:
            if len(miters) < COMPONENTS_COMPARED:
                miters |= self._judges.miters(test, (mutant.file, mutant.source), MITER_SECONDS, set(miters))
        results = set(miters.values())
        result = verdict.verdict
        if results and results <= {"proved", "same text"}:
            result = "equivalent" if "proved" in results else "same text"
        return replace(verdict, verdict=result, miters=miters)


def _module(test: str) -> str:
    """Return the path of the file of a test."""
    return test.partition("::")[0]


def drawn(arguments: argparse.Namespace) -> list[Mutant]:
    """Return the mutants that the arguments draw."""
    folder = ROOT / GATEWARE
    names = arguments.only.split(",") if arguments.only else ["."]
    if unknown := [name for name in names if not (folder / name).exists()]:
        raise SystemExit(f"--only: hwgen/gateware has no {unknown[0]}")
    paths = [
        path for name in names for path in ([folder / name] if name.endswith(".py") else (folder / name).rglob("*.py"))
    ]
    files = sorted(str(path.relative_to(folder)) for path in paths)
    every = [mutant for file in files for mutant in mutants_of(file, (folder / file).read_text(encoding="utf-8"))]
    mutants = random.Random(arguments.seed).sample(every, min(arguments.count, len(every)))
    print(f"seed {arguments.seed}: {len(mutants)} of {len(every)} mutants in {len(files)} files", flush=True)
    return mutants


def survivors(path: Path) -> list[Mutant]:
    """Return the mutants that survived in a file of verdicts on an earlier source, at their lines of today.

    Of several equal changes in a file, it is the one whose line is nearest.
    """
    mutants = []
    for entry in json.loads(path.read_text()):
        verdict = Judged(**entry)
        if verdict.verdict != "survived":
            continue
        every = mutants_of(verdict.file, (ROOT / GATEWARE / verdict.file).read_text(encoding="utf-8"))
        equal = [mutant for mutant in every if (mutant.column, mutant.change) == (verdict.column, verdict.change)]
        if equal:
            mutants.append(min(equal, key=lambda mutant: abs(mutant.line - verdict.line)))
        else:
            print(f"no longer there: {verdict.file}:{verdict.line}: {verdict.change}", flush=True)
    return mutants


def judge(arguments: argparse.Namespace, mutants: list[Mutant], judges: Judges) -> list[Judged]:
    """Judge all mutants, and print the verdicts as they come."""
    bench = Bench(judges, arguments.map)
    bench.record(arguments.slow)
    known = [Judged(**entry) for entry in json.loads(arguments.json.read_text())] if _exists(arguments.json) else []
    verdicts: list[Judged] = []

    def keep() -> None:
        if arguments.json:
            entries = verdicts + [verdict for verdict in known if not any(map(verdict.is_of, mutants[: len(verdicts)]))]
            arguments.json.write_text(json.dumps([asdict(verdict) for verdict in entries], indent=1) + "\n")

    for mutant in mutants:
        last = next((verdict for verdict in known if verdict.is_of(mutant)), None)
        if last is None or (arguments.again and last.verdict == "survived"):
            last = bench.judged(mutant, arguments.seconds)
            print(last, flush=True)
        verdicts.append(last)
        keep()
    for index, mutant in enumerate(mutants if not arguments.quick else []):
        if verdicts[index].verdict == "survived" and verdicts[index].stage == 1:
            verdicts[index] = bench.judged_again(verdicts[index], mutant, arguments.second)
            print(verdicts[index], flush=True)
            keep()
    return verdicts


def table(verdicts: list[Judged]) -> str:
    """Return the table of verdicts in Markdown, and the mutants that no test and no proof refutes."""
    counts = Counter((verdict.verdict, verdict.stage) for verdict in verdicts)
    lines = ["| verdict | mutants |", "|---|---:|"]
    lines += [f"| {text} | {counts[row]} |" for row, text in _ROWS.items() if counts[row]]
    silent = [verdict for verdict in verdicts if not verdict.test]
    return "\n".join([*lines, "", *map(str, silent)])


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
        os.environ["HWGEN_CACHE"] = str(folder / "cache")
        options = ["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={folder}", f"--basetemp={folder / 'temporary'}"]
        options += ["-m", ""]  # tests marked ``long`` too
        if status := pytest.main([*options, *tests], plugins=[Judges(folder / GATEWARE, work)]):
            raise SystemExit(f"pytest ended with status {status}")
        os.chdir(ROOT)


def main() -> int:
    """Run the bench; the exit status is 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", metavar="PATH[,PATH]", help="files or folders of hwgen/gateware (default: all)")
    parser.add_argument("--tests", nargs="+", default=TESTS, help=f"files or folders (default: {' '.join(TESTS)})")
    parser.add_argument("--seconds", type=float, default=150, help="processor time for a mutant (default: 150)")
    parser.add_argument("--second", type=float, default=900, help="the same in the second stage (default: 900)")
    parser.add_argument("--slow", type=float, default=4, help="time of a test's record at most (default: 4)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="verdicts; those that it has are not judged again")
    parser.add_argument("--map", metavar="FILE", type=Path, help="lines and times of the tests; made where missing")
    parser.add_argument("--survivors", metavar="FILE", type=Path, help="verdicts whose survivors are judged: no draw")
    parser.add_argument("--quick", action="store_true", help="leave the second stage out")
    parser.add_argument("--again", action="store_true", help="judge again what survived")
    arguments = parser.parse_args()
    for option in ("json", "map", "survivors"):
        if getattr(arguments, option):
            setattr(arguments, option, getattr(arguments, option).resolve())
    mutants = survivors(arguments.survivors) if arguments.survivors else drawn(arguments)
    verdicts: list[Judged] = []
    on_a_copy(arguments.tests, lambda judges: verdicts.extend(judge(arguments, mutants, judges)))
    print(table(verdicts))
    return int(any(verdict.verdict == "survived" for verdict in verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
