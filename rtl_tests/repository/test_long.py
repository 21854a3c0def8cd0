"""``bench/long.py``, the ledger of long tests, and random tests that check too few cases."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import long
import pytest
from counted import counted
from dependencies import LEDGER
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ledger import BUILT, Ledger, Line, function_of, read_built, stale, write_built
from texts import files_in

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "long.py"

TESTS = """
import os, pathlib, subprocess, sys, time
import pytest

def test_short(): pass

@pytest.mark.long
def test_good(): pass

@pytest.mark.long
def test_bad(): assert 6 * 7 == 41

@pytest.mark.long
def test_skipped(): pytest.skip("no such tool")

@pytest.fixture
def breaks():
    yield
    raise ValueError("left behind")

@pytest.mark.long
def test_teardown(breaks): pass

@pytest.mark.long
def test_sleeps(): time.sleep(1)

@pytest.mark.long
def test_calls(): subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 1: pass"])
"""
HANGS = """
@pytest.mark.long
def test_hangs():
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(__file__).with_name("child").write_text(str(child.pid))
    child.wait()
"""


@pytest.fixture
def command(tmp_path):
    """The script on those tests alone, away from this suite's settings."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\naddopts = -m 'not long'\n")
    (tmp_path / "conftest.py").write_text("from hypothesis import settings\nsettings.register_profile('random')\n")
    return [
        sys.executable,
        SCRIPT,
        "--no-ledger",
        "--jobs",
        "1",
        "-c",
        tmp_path / "pytest.ini",
        tmp_path / "test_known.py",
    ]


def outcomes(text):
    return {name: outcome for outcome, name in re.findall(r"^(\w+)[ \d.]+ s[ \d.]+ s  \S+::(\w+)$", text, re.MULTILINE)}


def cpu_s(text, name):
    found = re.search(rf" s +([\d.]+) s  \S+::{name}$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


def gone(folder):
    """Whether the hanging test's own child has ended."""
    child = int((folder / "child").read_text())
    for _ in range(50):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_every_outcome_is_named(command, tmp_path):
    (tmp_path / "test_known.py").write_text(TESTS)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    expected = {"test_good": "passed", "test_bad": "failed", "test_skipped": "skipped", "test_teardown": "failed"}
    expected |= {"test_sleeps": "passed", "test_calls": "passed"}
    assert outcomes(done.stdout) == expected
    assert cpu_s(done.stdout, "test_sleeps") < 0.5
    # The process that this test starts ends at one second of its own processor time, and is counted once.
    assert 1 <= cpu_s(done.stdout, "test_calls") < 2
    assert re.search(r"^failed: \S+::test_bad: .*6 \* 7\) == 41", done.stdout, re.MULTILINE)
    assert re.search(r"^failed: \S+::test_teardown: .*left behind", done.stdout, re.MULTILINE)
    assert re.search(
        r"^3 passed, 2 failed, 1 skipped in [\d.]+ minutes .*, 0\.0 of processors\)$", done.stdout, re.MULTILINE
    )


@pytest.mark.long
def test_all_passed(command, tmp_path):
    (tmp_path / "test_known.py").write_text(TESTS)
    done = subprocess.run([*command, "-k", "good"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcomes(done.stdout) == {"test_good": "passed"}


@pytest.mark.long
def test_limit(command, tmp_path):
    (tmp_path / "test_known.py").write_text(TESTS + HANGS)
    limited = [*command[:2], "--minutes", "0.5", *command[2:]]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "not finished after 0.5 minutes" in done.stdout
    assert outcomes(done.stdout)["test_hangs"] == "unfinished"
    assert outcomes(done.stdout)["test_bad"] == "failed"
    assert gone(tmp_path)


@pytest.mark.long
def test_interrupted(command, tmp_path):
    (tmp_path / "test_known.py").write_text(TESTS + HANGS)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while not (tmp_path / "child").exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert outcomes(text)["test_hangs"] == "unfinished"
    assert "Traceback" not in text
    assert gone(tmp_path)


def test_what_fails_because_it_is_ended_did_not_finish():
    def event(name: str, when: str, outcome: str) -> str:
        return json.dumps({"test": name, "when": when, "outcome": outcome, "seconds": 1, "cpu_s": 1, "reason": outcome})

    before = [event("a", "call", "passed"), event("a", "teardown", "passed"), event("b", "call", "failed")]
    after = [event("c", "call", "failed"), event("d", "???", "failed")]
    names = [json.dumps({"test": name}) for name in "abcd"]
    found = long.gather("\n".join([*names, *before, json.dumps(long.ENDED), *after]))
    outcomes = {test.name: test.outcome for test in found}
    assert outcomes == {"a": "passed", "b": "failed", "c": "unfinished", "d": "unfinished"}
    assert long.failed(found) == 1
    assert long.failed([test for test in found if test.name != "b"]) == 0


ROOT = Path(__file__).resolve().parents[2]
NAME = "rtl_tests/gateware/test_fifo.py::test_many[4-a b]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / LEDGER).mkdir(parents=True)
    return tmp_path / LEDGER


def test_a_line_with_a_wrong_digest_is_stale(folder: Path):
    (folder / "gateware.txt").write_text(
        "0123456789abcdef 2028-11-28 ebeff402 7 gateware/test_fifo.py::test_many[4-a b]\n"
    )
    ledger = Ledger(folder.parents[1])
    assert not ledger.is_stale(NAME, "0123456789abcdef")
    assert ledger.is_stale(NAME, "0123456789abcdee")
    assert ledger.is_stale("rtl_tests/gateware/test_fifo.py::test_many[5-a b]", "0123456789abcdef")
    assert ledger.day(NAME) == "2028-11-28"


def test_lines_of_two_branches(folder: Path):
    lines = [
        f"{digest} 2028-11-{day} ebeff402 7 gateware/test_fifo.py::test_many[4-a b]\n"
        for digest, day in (("aa", 27), ("bb", 28))
    ]
    (folder / "gateware.txt").write_text("".join(lines))
    ledger = Ledger(folder.parents[1])
    assert not ledger.is_stale(NAME, "aa")
    assert not ledger.is_stale(NAME, "bb")
    assert ledger.is_stale(NAME, "cc")
    ledger.note({NAME: Line("bb", "2028-11-29", "-", 3)})
    ledger.write()
    assert (folder / "gateware.txt").read_text() == "bb 2028-11-29 - 3 gateware/test_fifo.py::test_many[4-a b]\n"


def test_git_keeps_the_lines_of_both(folder: Path):
    def git(*words: str) -> None:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@e", "-C", str(folder.parents[1]), *words]
        subprocess.run(command, check=True, capture_output=True)

    def commit(text: str) -> None:
        (folder / "gateware.txt").write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", "lines")

    git("init", "-q", "-b", "main")
    (folder.parents[1] / ".gitattributes").write_text((ROOT / ".gitattributes").read_text())
    commit("aa 2028-11-27 - 7 gateware/test_a.py::test_x\n")
    git("checkout", "-q", "-b", "other")
    commit("bb 2028-11-28 - 7 gateware/test_a.py::test_x\n")
    git("checkout", "-q", "main")
    commit("cc 2028-11-28 - 7 gateware/test_a.py::test_x\n")
    git("merge", "-q", "other", "-m", "joined")
    ledger = Ledger(folder.parents[1])
    assert [ledger.is_stale("rtl_tests/gateware/test_a.py::test_x", digest) for digest in ("bb", "cc")] == [
        False,
        False,
    ]


def test_files_are_those_of_folders_and_sorted(folder: Path):
    ledger = Ledger(folder.parents[1])
    names = [
        "rtl_tests/b/test_c.py::test_x",
        "rtl_tests/a/test_b.py::test_y",
        "rtl_tests/a/test_b.py::test_x",
        "rtl_tests/a/c/test_d.py::test_x",
    ]
    ledger.note({name: Line("aa", "2028-11-28", "ebeff402+", 1) for name in names})
    ledger.write()
    assert {path.name: path.read_text().split()[4::5] for path in folder.iterdir()} == {
        "a.txt": ["a/test_b.py::test_x", "a/test_b.py::test_y"],
        "a.c.txt": ["a/c/test_d.py::test_x"],
        "b.txt": ["b/test_c.py::test_x"],
    }
    again = Ledger(folder.parents[1])
    assert again.lines == ledger.lines
    again.drop(["rtl_tests/b/test_c.py::test_x"])
    again.write()
    assert {path.name for path in folder.iterdir()} == {"a.txt", "a.c.txt"}


def test_what_is_no_line_is_refused(folder: Path):
    (folder / "gateware.txt").write_text("<<<<<<< HEAD\n")
    with pytest.raises(SystemExit, match=r"gateware\.txt:1: a line must be: DIGEST DAY COMMIT SECONDS TEST, not '<<<"):
        Ledger(folder.parents[1])


def test_the_file_that_waits_longest_comes_first(folder: Path):
    ledger = Ledger(folder.parents[1])
    days = {
        "a/test_new.py::test_x": "2028-11-28",
        "b/test_old.py::test_x": "2028-11-02",
        "b/test_old.py::test_y": "2028-11-28",
    }
    ledger.note({f"rtl_tests/{name}": Line("aa", day, "-", 1) for name, day in days.items()})
    ledger.note({"rtl_tests/a/test_kept.py::test_x": Line("bb", "2028-11-01", "-", 1)})
    names = [*ledger.lines, "rtl_tests/z/test_never.py::test_x[1]"]
    known = {function_of(name): "bb" for name in names}
    assert stale(ledger, known, names) == [
        "rtl_tests/z/test_never.py::test_x[1]",
        "rtl_tests/b/test_old.py::test_x",
        "rtl_tests/b/test_old.py::test_y",
        "rtl_tests/a/test_new.py::test_x",
    ]


def test_functions_of_tests():
    assert function_of("rtl_tests/a/test_b.py::TestC::test_d[e::f[0]]") == "rtl_tests/a/test_b.py::TestC"
    assert function_of(NAME) == "rtl_tests/gateware/test_fifo.py::test_many"


def test_what_tests_build_is_read_back(folder: Path):
    built = {"rtl_tests/a/test_b.py": {"fifo", "engine.add"}, "rtl_tests/b/test_c.py": {"fifo"}}
    write_built(folder.parents[1], built)
    assert read_built(folder.parents[1]) == built
    assert (folder / BUILT).read_text() == "a/test_b.py engine.add fifo\nb/test_c.py fifo\n"


# The two programs on a made-up checkout

TESTS_OF_A_LEDGER = files_in("ledger_tree.txt")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in TESTS_OF_A_LEDGER.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for path in (ROOT / "bench").glob("*.py"):
        if path.stem in ("long", "touched", "ledger", "dependencies", "recording"):
            (tmp_path / "bench").mkdir(exist_ok=True)
            (tmp_path / "bench" / path.name).write_bytes(path.read_bytes())
    return tmp_path


def run(script: str, checkout: Path, *arguments: str) -> tuple[int, str, dict[str, str]]:
    """Return the exit status, the output, and the outcome of each test that ran."""
    command = [sys.executable, checkout / "bench" / script, "--jobs", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=checkout)
    found = re.findall(r"^(\w+)[ \d.]+ s[ \d.]+ s  \S+::(\S+)$", done.stdout, re.MULTILINE)
    return done.returncode, done.stdout + done.stderr, {name: outcome for outcome, name in found}


def test_only_what_is_stale_runs(checkout: Path):
    status, text, outcomes = run("long.py", checkout)
    assert (status, outcomes) == (
        0,
        {"test_f[1]": "passed", "test_f[2]": "passed", "test_g": "passed", "test_skipped": "skipped"},
    ), text
    assert "were stale: 4 of 4 long tests" in text
    assert "remain stale: 1 of 4 long tests\n     1 rtl_tests/part/test_b.py" in text
    lines = (checkout / LEDGER / "part.txt").read_text().splitlines()
    assert [line.split()[2:] for line in lines] == [
        ["-", "1", f"part/test_{name}"] for name in ("a.py::test_f[1]", "a.py::test_f[2]", "b.py::test_g")
    ]

    (checkout / "hwgen" / "a.py").write_text("def f(): return 2\n")
    status, text, outcomes = run("long.py", checkout)
    assert (status, outcomes) == (1, {"test_f[1]": "failed", "test_f[2]": "failed", "test_skipped": "skipped"}), text
    assert (checkout / LEDGER / "part.txt").read_text().splitlines() == lines  # when they last passed


@pytest.mark.long
def test_other_ways_to_run(checkout: Path):
    run("long.py", checkout)
    (checkout / "hwgen" / "b.py").write_text("def g(): return 1 + 0\n")
    status, text, outcomes = run("long.py", checkout, "--list")
    assert (status, outcomes) == (0, {}), text
    assert "stale: 2 of 4 long tests\n     2 rtl_tests/part/test_b.py" in text
    _, text, outcomes = run("long.py", checkout, "--all")
    assert set(outcomes) == {"test_f[1]", "test_f[2]", "test_g", "test_skipped"}, text
    (checkout / "rtl_tests" / "part" / "test_a.py").write_text(
        TESTS_OF_A_LEDGER["rtl_tests/part/test_a.py"].replace("[1, 2]", "[2, 3]")
    )
    _, text, outcomes = run("long.py", checkout)
    assert set(outcomes) == {"test_f[2]", "test_f[3]", "test_skipped"}, text
    assert "[1]" not in (checkout / LEDGER / "part.txt").read_text()


@pytest.mark.long
def test_what_has_never_passed_fails_no_run_of_known_tests(checkout: Path):
    (checkout / "hwgen" / "b.py").write_text("def g(): return 2\n")
    status, text, outcomes = run("long.py", checkout, "--known")
    assert (status, outcomes["test_g"]) == (0, "failed"), text
    (checkout / "hwgen" / "a.py").write_text("def f(): return 2\n")
    status, text, outcomes = run("long.py", checkout, "--known")
    assert (status, outcomes["test_f[1]"]) == (1, "failed"), text


@pytest.mark.long
def test_touched_tests_run(checkout: Path):
    subprocess.run(["git", "init", "-q"], cwd=checkout, check=True)
    subprocess.run(["git", "add", "."], cwd=checkout, check=True)
    commit = ["git", "-c", "user.name=n", "-c", "user.email=e@e", "commit", "-q", "-m", "all"]
    subprocess.run(commit, cwd=checkout, check=True)
    (checkout / "hwgen" / "a.py").write_text("def f(): return 1 + 0\n")
    status, text, outcomes = run("touched.py", checkout)
    expected = dict.fromkeys(["test_f[1]", "test_f[2]", "test_default"], "passed")
    assert (status, outcomes) == (0, expected), text
    assert len((checkout / LEDGER / "part.txt").read_text().splitlines()) == 2
    status, text, outcomes = run("touched.py", checkout, "hwgen/b.py", "--list")
    assert re.findall(r"^ +\d+ (\S+)$", text, re.MULTILINE) == [
        f"rtl_tests/part/test_b.py::{name}" for name in ("test_g",)
    ], text


NUMBERS = st.integers(0, 10**9)


@settings(max_examples=20)
@given(NUMBERS)
def check_all(number):
    assert number >= 0


@settings(max_examples=20)
@given(NUMBERS)
def check_odd(number):
    assume(number % 2)


@settings(max_examples=20)
@given(st.booleans())
def check_two(flag):
    assert flag in (False, True)


@given(NUMBERS)
def check_none(number):
    assume(number < 0)


@pytest.mark.parametrize("check", [check_all, check_odd])
def test_cases_that_are_left_out_are_drawn_anew(check):
    with counted(check, 20):
        check()


def test_too_few_cases():
    """Of a truth value there are two cases, not 10; said so they are enough."""
    with (
        pytest.raises(AssertionError, match=r"^only 2 random cases were checked, not 10 at least$"),
        counted(check_two),
    ):
        check_two()
    with counted(check_two, 2):
        check_two()


def test_nothing_but_cases_that_are_left_out():
    with pytest.raises(Exception, match=r"filter|Unable to satisfy"), counted(check_none):
        check_none()


def test_a_count_ends_with_its_context():
    """Called again, the test counts from zero; outside of a context it counts nothing."""
    for _ in range(2):
        with counted(check_all, 20):
            check_all()
    with pytest.raises(AssertionError, match=r"^only 0 random cases"), counted(check_all, 20):
        pass
    check_all()


def returns_of(node: ast.AST) -> Iterator[int]:
    """Yield the lines of the ``return`` statements of a function, without those of functions inside."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child.lineno
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from returns_of(child)


def test_no_random_test_returns():
    """A case that a random test can't check is left out by name (``assume``, ``reject``), so that it isn't counted."""
    found, tests = [], 0
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(ast.unparse(decorator).startswith("given(") for decorator in node.decorator_list):
                tests += 1
                found += [f"{path.name}:{line}: {node.name} returns" for line in returns_of(node)]
    assert found == []
    assert tests > 200
