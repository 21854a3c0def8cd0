"""``bench/long.py`` on tests of known outcomes: every one is named, and a run that takes too long is ended whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import long
import pytest

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
    assert 1 <= cpu_s(done.stdout, "test_calls") < 2  # that of the process it started
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
