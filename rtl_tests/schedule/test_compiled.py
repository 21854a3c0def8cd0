"""Functions that are interpreted until compiling them pays."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import numpy as np
import pytest

from hwgen.schedule import compiled

SOURCE = """
from hwgen.schedule.compiled import compiled_later

@compiled_later
def later(times, steps):
    for step in range(steps):
        advance(times, step)
    return times.sum()

@compiled_later
def advance(times, step):
    times[step % times.size] += step
"""

FEW, MANY = 100, compiled.MAX_INTERPRETED_EVENTS + 1


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Function that loads a module of two functions, as a new process does."""
    monkeypatch.setattr(compiled._CompiledLater, "interpreted_s", 0.0)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    path = tmp_path / "loops.py"
    path.write_text(SOURCE)

    def loaded() -> ModuleType:
        spec = importlib.util.spec_from_file_location("loops", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded


def total(module: ModuleType, events: int) -> int:
    """Return the sum of 0 to 4, as a loop adds it to ``events`` times."""
    return module.later(np.zeros(events, np.int64), 5)


def is_compiled(function: compiled._Compiled) -> bool:
    return "machine_code" in vars(function)


def test_few_events_are_interpreted_until_many_come(load):
    module = load()
    assert total(module, FEW) == 10
    assert not is_compiled(module.later)
    assert total(module, MANY) == 10
    assert is_compiled(module.later)
    assert is_compiled(module.advance)


def test_interpretation_ends_when_it_takes_too_long(load, monkeypatch):
    module = load()
    monkeypatch.setattr(compiled, "MAX_INTERPRETED_S", 0.0)
    assert total(module, FEW) == 10
    assert is_compiled(module.later)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_machine_code_on_disk_is_taken_at_once(load, monkeypatch, tmp_path, elsewhere):
    if elsewhere:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
        monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "kept"))
    total(load(), MANY)
    module = load()
    assert total(module, FEW) == 10
    assert is_compiled(module.later)
    assert module.later.machine_code.stats.cache_hits


def test_the_time_of_interpreted_calls_adds_up(load, monkeypatch):
    clock = iter([1.0, 1.5, 4.0, 4.25])
    monkeypatch.setattr(compiled.time, "process_time", lambda: next(clock))
    module = load()
    for _ in range(2):
        total(module, FEW)
    assert compiled._CompiledLater.interpreted_s == 0.75
