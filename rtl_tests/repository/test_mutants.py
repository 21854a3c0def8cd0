"""`bench/mutants.py`: changes of a source, their code in functions that exist, and tests in processes of their own."""

from __future__ import annotations

import importlib.util
import os
import time
from types import SimpleNamespace

import pytest
from mutant_judges import Judges, forked, outer_functions, recorded_lines
from mutants import Record, mutants_of

SOURCE = '''\
class Counter:
    def elaborate(self, m, count, ready):
        """Adds statements to a domain."""
        m.d.sync += count.eq(count + 1)
        return count < 3 if ready & 1 else 0

    def limit(self, count):
        return count + 1
'''


def test_changes_of_a_circuit():
    mutants = [*mutants_of("counter.py", SOURCE)]
    assert sorted(mutant.change for mutant in mutants) == [
        "1 -> 0 in count + 1",
        "1 -> 2 in count + 1",
        "count < 3 -> count <= 3",
        "left out: m.d.sync += count.eq(count + 1)",
        "ready & 1 -> ready | 1",
    ]
    assert {mutant.line for mutant in mutants} == {4, 5}
    [left_out] = [mutant for mutant in mutants if mutant.change.startswith("left out")]
    assert left_out.source == SOURCE.replace("m.d.sync += count.eq(count + 1)", "pass")


def test_tests_that_execute_a_line_judge():
    mutant = next(mutant for mutant in mutants_of("counter.py", SOURCE) if mutant.line == 5)
    assert Record("passed", 1.0, {"counter.py": [4, 5]}).executes(mutant)
    assert not Record("failed", 1.0, {"counter.py": [4, 5]}).executes(mutant)
    assert not Record("passed", 1.0, {"counter.py": [4, 6], "other.py": [5]}).executes(mutant)


@pytest.fixture
def counter(tmp_path):
    path = tmp_path / "counter.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("counter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_code_of_a_mutant_is_put_into_functions_that_exist(counter, tmp_path):
    judges = Judges(tmp_path, lambda judges: None)
    assert judges.pytest_runtestloop(SimpleNamespace(items=[]))
    limit = counter.Counter().limit
    judges.mutate("counter.py", SOURCE.replace("return count + 1", "return count + 2"))
    assert limit(5) == 7
    with pytest.raises(RuntimeError, match=r"no function of counter\.py is changed"):
        judges.mutate("counter.py", SOURCE.replace("return count + 1", "return count + 2"))


def test_outer_functions_are_methods_too():
    code = compile(SOURCE + "\ndef alone():\n    return lambda: 1\n", "counter.py", "exec")
    assert [function.co_qualname for function in outer_functions(code)] == [
        "Counter.elaborate",
        "Counter.limit",
        "alone",
    ]


def test_lines_of_the_sources_are_recorded(counter, tmp_path):
    lines = {}
    with recorded_lines(tmp_path, lines):
        counter.Counter().limit(1)
    assert lines == {"counter.py": {7, 8}}


def test_fork_answers_is_late_or_crashes():
    answer, seconds, is_late = forked(lambda: {"pid": os.getpid()}, 5)
    assert answer["pid"] != os.getpid()
    assert 0 <= seconds < 5
    assert not is_late
    assert forked(lambda: os._exit(3), 5)[::2] == (None, False)
    begin = time.process_time()
    assert forked(_loop, 0)[::2] == (None, True)
    assert time.process_time() - begin < 1


def _loop():
    while True:
        pass
