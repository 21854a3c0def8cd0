"""Performance figures of an engine program: cycles and bytes of each layer, and states of the engine over time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.gateware.engine.job import job_bytes
from hwgen.network.ops import Op
from hwgen.program.compile import ProgramSchedule
from hwgen.program.maps import fused_layers
from hwgen.program.tiles import Tiling
from hwgen.schedule.engine import FETCH, LOAD, STORE, EngineCycles, group_steps_of, map_bytes_read


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of one layer in one run of an engine program: cycles, array steps (busy cycles), bytes.

    Parameters
    ----------
    layer : Op
    computed_with : str
        Name of the layer whose passes also compute this layer, on their output path. Empty if the layer has passes of
        its own, or nothing to compute.
    tilings : tuple of Tiling
        Tilings of the layer's passes, in order.
    cycles : int
        Cycles between the end of the layer that ended last (or ``start``) and this layer's end, summed over all frames.
        The last layer's cycles include those up to ``done``.
    steps : int
        Cycles that the array multiplies for this layer.
    read, written : int
        Bytes that the port reads and writes for this layer, its jobs included.
    maps, jobs : int
        Bytes of feature maps, and bytes of jobs, in ``read``. The rest of ``read`` is weights, parameters and tables.
    """

    layer: Op
    computed_with: str = ""
    tilings: tuple[Tiling, ...] = ()
    cycles: int = 0
    steps: int = 0
    read: int = 0
    written: int = 0
    maps: int = 0
    jobs: int = 0


def figures(schedule: ProgramSchedule, run: EngineCycles) -> tuple[Figures, ...]:
    """Return a tuple of every layer's `Figures` (cycles, array steps, bytes) in one run, in network order.

    The cycles and bytes of all layers add up to the run's.
    """
    first_op = {op.name: step.ops[0].name for step in fused_layers(schedule.network) for op in step.ops[1:]}
    values_of = _figures_by_layer(schedule, run)
    return tuple(
        replace(Figures(layer=layer, computed_with=first_op.get(layer.name, "")), **values_of.get(layer.name, {}))
        for layer in schedule.network.layers
    )


def maps_read(schedule: ProgramSchedule) -> np.ndarray:
    """Return an array with the bytes of feature maps that each engine job of a schedule reads from memory."""
    return map_bytes_read(schedule.engine, schedule.jobs)


def _figures_by_layer(schedule: ProgramSchedule, run: EngineCycles) -> dict[str, dict[str, Any]]:
    """Return a dict of the figures' fields (cycles, array steps, bytes) of every layer that has jobs, by layer name."""
    names = [tiled_pass.task.name for tiled_pass in schedule.tiled_passes]
    owners, job_frames = np.array([names[owner] for owner in schedule.owners]), np.array(schedule.job_frames)
    array = np.multiply(*group_steps_of(schedule.jobs))
    read, written, maps = run.read + job_bytes(schedule.engine), run.written, maps_read(schedule)
    ends = np.max([run.loaded, run.computed, run.stored], axis=0)
    values: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(names):
        is_own = owners == name
        values[name] = {
            "tilings": tuple(tiled_pass.tiling for tiled_pass in schedule.tiled_passes if tiled_pass.task.name == name),
            "cycles": 0,
            "steps": int(array[is_own].sum()),
            "read": int(read[is_own].sum()),
            "written": int(written[is_own].sum()),
            "maps": int(maps[is_own].sum()),
            "jobs": job_bytes(schedule.engine) * int(is_own.sum()),
        }
    layer_ends = {
        (frame, name): int(ends[(job_frames == frame) & (owners == name)].max())
        for frame, name in dict.fromkeys(zip(schedule.job_frames, owners.tolist(), strict=True))
    }
    last_end = -START_CYCLES
    for (_, name), end in sorted(layer_ends.items(), key=lambda item: (item[1], item[0][0], names.index(item[0][1]))):
        values[name]["cycles"] += end - last_end
        last_end = end
    values[name]["cycles"] += run.cycles - last_end + DONE_CYCLES
    return values


ARRAY, PORT = "array", "port"
_UNITS = {"work": LOAD, "buffer": FETCH, "room": STORE}
"""Dictionary from a state of the memory port in the timeline to the engine unit: load, fetch, store."""


@dataclass(frozen=True)
class Band:
    """Row of an engine's timeline (array, memory port or layer): intervals of cycles by state.

    Parameters
    ----------
    name : str
        Name of the layer; empty for the array and the port.
    kind : str
        ``array``, ``port`` or ``layer``.
    states : dict of str to array (n, 2)
        Stretches of each state, in order: first cycle and the cycle after the last, counted from ``start``. No cycle is
        in two states. In ``work`` the array multiplies, or the port reads maps and weights. In ``input`` operands are
        not loaded yet, or the port is idle. In ``buffer`` sums are not yet drained or a job begins, or the port
        fetches jobs. In ``room`` results are stored, and the port reads nothing. A layer has no state before it begins
        and after it ends.
    """

    name: str
    kind: str
    states: dict[str, np.ndarray]

    @property
    def begin(self) -> int:
        """First cycle (integer), from ``start``, with a state of the array, port or layer of this timeline row."""
        return min(int(stretches[0, 0]) for stretches in self.states.values() if len(stretches))

    def cycles(self, edges: np.ndarray) -> dict[str, np.ndarray]:
        """Return a dictionary: for each state, an array of its numbers of cycles between neighbouring ``edges``."""
        return {state: np.diff(_cycles_before(stretches, edges)) for state, stretches in self.states.items()}


def bands(schedule: ProgramSchedule, run: EngineCycles) -> tuple[Band, ...]:
    """Return a tuple of timeline rows (`Band`): the engine's array, memory port and each layer, by first cycle."""
    names = [tiled_pass.task.name for tiled_pass in schedule.tiled_passes]
    owners = np.array([names[owner] for owner in schedule.owners])
    jobs = np.repeat(np.arange(len(schedule.jobs)), [job.compute.groups * job.compute.folds for job in schedule.jobs])
    steps = START_CYCLES + run.groups + (0, 1)
    units, users, bursts = run.bursts[:, 0], run.bursts[:, 1], START_CYCLES + run.bursts[:, 2:]
    loaded, stored = START_CYCLES + run.loaded, START_CYCLES + run.stored
    end = START_CYCLES + run.cycles + DONE_CYCLES

    port = {state: bursts[units == unit] for state, unit in _UNITS.items()}
    reads = bursts[units != STORE]
    port["room"] = _subtract_intervals(port["room"], reads)
    port["input"] = _subtract_intervals(_gaps_between(0, reads, end), port["room"])
    layer_bands = []
    for name in dict.fromkeys(names):
        own = np.flatnonzero(owners == name)
        first = bursts[np.isin(users, own) & (units != FETCH), 0].min()
        mine = np.isin(jobs, own)
        layer_bands.append(Band(name, "layer", _intervals(first, steps[mine], loaded[jobs[mine]], stored[own].max())))
    array = Band("", ARRAY, _intervals(0, steps, loaded[jobs], end))
    return (array, Band("", PORT, port), *sorted(layer_bands, key=lambda band: band.begin))


def _intervals(begin: int, steps: np.ndarray, loaded: np.ndarray, end: int) -> dict[str, np.ndarray]:
    """Return a dict of arrays of (begin, end) cycles by state of the MAC array: multiplying, or waiting for what."""
    if not len(steps):
        return {"input": np.array([(begin, end)])}
    waits = np.column_stack([np.append(begin, steps[:-1, 1]), steps[:, 0]])
    ready = np.clip(loaded, waits[:, 0], waits[:, 1])
    return {
        "work": steps,
        "input": _non_empty_intervals(waits[:, 0], ready),
        "buffer": _non_empty_intervals(ready, waits[:, 1]),
        "room": _non_empty_intervals(steps[-1:, 1], np.array([end])),
    }


def _gaps_between(begin: int, stretches: np.ndarray, end: int) -> np.ndarray:
    """Return an array of the gaps, as (begin, end) rows, between disjoint intervals of cycles."""
    return _non_empty_intervals(np.append(begin, stretches[:, 1]), np.append(stretches[:, 0], end))


def _subtract_intervals(stretches: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return an array of (begin, end) rows: cycles that lie in disjoint intervals, but not in certain others."""
    gaps = _gaps_between(int(stretches[:, 0].min(initial=0)), others, int(stretches[:, 1].max(initial=0)))
    edges = np.unique(np.concatenate([stretches.ravel(), gaps.ravel()]))
    covered = [np.diff(_cycles_before(intervals, edges)) > 0 for intervals in (stretches, gaps)]
    return np.column_stack([edges[:-1], edges[1:]])[covered[0] & covered[1]]


def _non_empty_intervals(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return an array of the non-empty intervals of cycles from ``begins`` to ``ends``, one per row."""
    return np.column_stack([begins, ends])[ends > begins]


def _cycles_before(stretches: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """Return an array: for each entry of ``cycles``, how many cycles before it lie in the given intervals."""
    lengths = np.append(0, np.cumsum(stretches[:, 1] - stretches[:, 0]))
    begun = np.searchsorted(stretches[:, 0], cycles)  # stretches that begin before
    last = np.maximum(begun - 1, 0)
    over = np.maximum(stretches[last, 1] - cycles, 0) if len(stretches) else 0
    return lengths[begun] - np.where(begun > 0, over, 0)
