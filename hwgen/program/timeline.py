"""What the array, the port and each layer of a program do in each cycle of a frame, from the exact schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.program.compile import Schedule
from hwgen.schedule.engine import FETCH, LOAD, STORE, EngineCycles

__all__ = ["ARRAY", "PORT", "Band", "bands"]

ARRAY, PORT = "array", "port"
_UNITS = {"work": LOAD, "buffer": FETCH, "room": STORE}
"""Who has the port in each state."""


@dataclass(frozen=True)
class Band:
    """Of the array, of the port, or of a layer: what it does when.

    Parameters
    ----------
    name : str
        Of a layer its name.
    kind : str
        ``array``, ``port`` or ``layer``.
    states : dict of str to array (n, 2)
        For each state its stretches: first cycle and the one after the last, both counted from ``start``. They are in
        order, and no cycle is in two of a band. The states are ``work`` (the array multiplies; the port reads maps and
        weights), ``input`` (what is to be multiplied is not loaded yet; the port has nothing to do), ``buffer`` (sums
        are not yet drained, or a job begins; the port fetches jobs) and ``room`` (results are stored). Of a layer the
        other cycles are before it begins and after it ends.
    """

    name: str
    kind: str
    states: dict[str, np.ndarray]

    @property
    def begin(self) -> int:
        """The first cycle in a state."""
        return min(int(each[0, 0]) for each in self.states.values() if len(each))

    def cycles(self, edges: np.ndarray) -> dict[str, np.ndarray]:
        """The cycles in each state between neighbouring edges."""
        return {state: np.diff(_before(stretches, edges)) for state, stretches in self.states.items()}


def bands(schedule: Schedule, run: EngineCycles) -> tuple[Band, ...]:
    """Of the array, of the port, and of each layer with passes of its own, in the order in which they begin."""
    names = [work.task.name for work in schedule.works]
    owners = np.array([names[owner] for owner in schedule.owners])
    jobs = np.repeat(np.arange(len(schedule.jobs)), [job.compute.groups for job in schedule.jobs])
    steps = START_CYCLES + run.groups + (0, 1)
    units, users, bursts = run.bursts[:, 0], run.bursts[:, 1], START_CYCLES + run.bursts[:, 2:]
    loaded, stored = START_CYCLES + run.loaded, START_CYCLES + run.stored
    end = START_CYCLES + run.cycles + DONE_CYCLES

    port = {state: bursts[units == unit] for state, unit in _UNITS.items()}
    port["input"] = _between(0, bursts, end)
    found = []
    for name in dict.fromkeys(names):
        own = np.flatnonzero(owners == name)
        first = bursts[np.isin(users, own) & (units != FETCH), 0].min()
        mine = np.isin(jobs, own)
        found.append(Band(name, "layer", _computing(first, steps[mine], loaded[jobs[mine]], stored[own].max())))
    array = Band("", ARRAY, _computing(0, steps, loaded[jobs], end))
    return (array, Band("", PORT, port), *sorted(found, key=lambda band: band.begin))


def _computing(begin: int, steps: np.ndarray, loaded: np.ndarray, end: int) -> dict[str, np.ndarray]:
    """The states from ``begin`` to ``end``, where there are pixel groups of jobs that were loaded in certain cycles."""
    if not len(steps):
        return {"input": np.array([(begin, end)])}
    waits = np.column_stack([np.append(begin, steps[:-1, 1]), steps[:, 0]])
    there = np.clip(loaded, waits[:, 0], waits[:, 1])
    return {
        "work": steps,
        "input": _some(waits[:, 0], there),
        "buffer": _some(there, waits[:, 1]),
        "room": _some(steps[-1:, 1], np.array([end])),
    }


def _between(begin: int, stretches: np.ndarray, end: int) -> np.ndarray:
    """What lies beside the stretches."""
    return _some(np.append(begin, stretches[:, 1]), np.append(stretches[:, 0], end))


def _some(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Those stretches that have a cycle."""
    return np.column_stack([begins, ends])[ends > begins]


def _before(stretches: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """Cycles of the stretches that come before each of some cycles."""
    lengths = np.append(0, np.cumsum(stretches[:, 1] - stretches[:, 0]))
    begun = np.searchsorted(stretches[:, 0], cycles)  # stretches that begin before
    last = np.maximum(begun - 1, 0)
    over = np.maximum(stretches[last, 1] - cycles, 0) if len(stretches) else 0
    return lengths[begun] - np.where(begun > 0, over, 0)
