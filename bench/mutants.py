"""Faults drawn at random in the gateware's source, to which tests or proofs must object.

Each mutant is one change in the Python of a component: a comparison that is turned or off by one, a constant that is
one larger or smaller, an AND that is an OR, or a statement of a domain that is left out. The component's own tests of
the default run judge it, and then the proofs of small components. A mutant to which none objects survives, and is
named. Mutants with which tests take too long, or can't be collected, are counted apart from those that a test refutes.

The tests run on a copy of the package with one changed file. First they run on the unchanged copy, and the bench stops
if one objects to it. Mutants are drawn from ``--seed``, so that a run can be repeated::

    python bench/mutants.py --seed 1 --count 30 --json mutants.json
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Tests that judge a file of hwgen/gateware, in order.
JUDGES = {
    "fifo.py": ("gateware/test_fifo.py", "prove/test_proofs.py"),
    "guard.py": ("gateware/test_guard.py", "prove/test_proofs.py"),
    "regroup.py": ("gateware/test_regroup.py", "prove/test_proofs.py"),
    "unload.py": ("gateware/test_unload.py", "prove/test_proofs.py"),
    "line_buffer.py": ("gateware/test_line_buffer.py", "prove/test_windows.py"),
    "requantise.py": ("gateware/test_requantise.py",),
    "average.py": ("gateware/test_average.py",),
    "threshold.py": ("gateware/test_threshold.py",),
    "credits.py": ("gateware/test_layer.py",),
    "join.py": ("gateware/test_graphs.py", "prove/test_proofs.py"),
    "multiply.py": ("gateware/test_multiply.py", "gateware/test_load.py"),
    "bus/lite.py": ("gateware/test_lite.py",),
    "serial/uart.py": ("gateware/test_uart.py",),
}
#: Comparisons and the faulty one in their place.
_COMPARED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_JOINED = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
#: Verdicts by pytest's exit status; empty if no test objects.
_VERDICTS = {0: "", 1: "refuted", 2: "not collected"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Parameters
    ----------
    file : str
        Path of the file, relative to hwgen/gateware.
    line : int
        Line of the change.
    change : str
        Kind of change, and what it replaces.
    source : str
        Source of the whole file with the change.
    """

    file: str
    line: int
    change: str
    source: str


@dataclass(frozen=True)
class Judged:
    """Verdict on a mutant.

    Parameters
    ----------
    file, line, change
        As in `Mutant`.
    verdict : str
        ``refuted``, ``timed out``, ``not collected`` (pytest's status 2) or ``survived``.
    test : str
        First test file that objects; empty if the mutant survives.
    seconds : float
        Seconds that the tests took.
    """

    file: str
    line: int
    change: str
    verdict: str
    test: str
    seconds: float


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield all mutants of the circuits in a file, each once: of each function that adds statements to a domain.

    A nested function is walked with the function around it, too.
    """
    drawn = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and ".d." in (ast.get_source_segment(source, function) or ""):
            for node in ast.walk(function):
                for old, new, change in _changes(node):
                    mutant = Mutant(file, old.lineno, change, _replaced(source, old, new))
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


def judged(mutant: Mutant, folder: Path, seconds: float) -> Judged:
    """Return the verdict on a mutant, with the package in ``folder`` changed for the time of the tests."""
    path = folder / "hwgen" / "gateware" / mutant.file
    sound = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    begin, verdict, objects = time.perf_counter(), "survived", ""
    try:
        for test in JUDGES[mutant.file]:
            if verdict_of_test := _verdict(test, folder, seconds):
                verdict, objects = verdict_of_test, test
                break
    finally:
        path.write_text(sound, encoding="utf-8")
    return Judged(mutant.file, mutant.line, mutant.change, verdict, objects, round(time.perf_counter() - begin, 1))


def _verdict(test: str, folder: Path, seconds: float) -> str:
    """Return how a file of tests objects to the package in ``folder``; empty if it does not."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"rtl_tests/{test}"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "HWGEN_CACHE": str(folder / "cache")}
    try:
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "timed out"
    if run.returncode not in _VERDICTS:
        raise SystemExit(f"{test}: pytest ended with status {run.returncode}: {run.stdout.decode()[-500:]}")
    return _VERDICTS[run.returncode]


def _check_judges(files: list[str], folder: Path, seconds: float) -> None:
    """Stop if a test file that judges one of ``files`` objects to the unchanged package in ``folder``."""
    for test in dict.fromkeys(test for file in files for test in JUDGES[file]):
        if verdict := _verdict(test, folder, seconds):
            raise SystemExit(f"{test} objects to the unchanged package ({verdict}): mend it first")


def main() -> int:
    """Run the bench; the exit status is 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", metavar="FILE[,FILE]", help=f"of {', '.join(JUDGES)}")
    parser.add_argument("--seconds", type=float, default=900, help="time limit of a test file (default: 900)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    files = arguments.only.split(",") if arguments.only else list(JUDGES)
    if unknown := [file for file in files if file not in JUDGES]:
        parser.error(f"--only must be of {', '.join(JUDGES)}, not {unknown[0]!r}")
    sources = {file: (ROOT / "hwgen" / "gateware" / file).read_text(encoding="utf-8") for file in files}
    every = [mutant for file, source in sources.items() for mutant in mutants_of(file, source)]
    drawn = random.Random(arguments.seed).sample(every, min(arguments.count, len(every)))
    print(f"seed {arguments.seed}: {len(drawn)} of {len(every)} mutants", flush=True)
    verdicts = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("hwgen", "rtl_tests", "boards", "examples", "bench"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        _check_judges(sorted({mutant.file for mutant in drawn}), folder, arguments.seconds)
        for mutant in drawn:
            last = judged(mutant, folder, arguments.seconds)
            verdicts.append(last)
            by_test = f" by {last.test}" if last.test else ""
            print(f"{last.verdict}{by_test}: {last.file}:{last.line}: {last.change} ({last.seconds} s)", flush=True)
            if arguments.json:
                Path(arguments.json).write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    counts = Counter(verdict.verdict for verdict in verdicts)
    numbers = [f"{counts[verdict]} {verdict}" for verdict in ("refuted", "timed out", "not collected", "survived")]
    print(f"{len(verdicts)} mutants: {', '.join(numbers)}")
    return int(counts["survived"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
