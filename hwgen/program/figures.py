"""What a program does for each layer of its network: cycles, steps of the array, bytes over the port."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.gateware.engine.job import Job
from hwgen.network.ops import Op
from hwgen.program.compile import Schedule
from hwgen.program.maps import steps
from hwgen.program.tiles import Tiling
from hwgen.schedule.engine import EngineCycles, map_bytes_read
from hwgen.schedule.engine_core import group_steps_of


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of a layer.

    Parameters
    ----------
    layer : Op
    computed_with : str
        The layer on whose way out it is computed; empty if it has passes of its own, or nothing to compute.
    tilings : tuple of Tiling
        Of its passes.
    cycles : int
        From the end of the layer that ended before it (or from ``start``) to its own, the last one's to ``done``; of
        several frames added up.
    steps : int
        Cycles in which the array multiplies.
    read, written : int
        Bytes, jobs included.
    maps, jobs : int
        Bytes of feature maps, and of jobs, among those that are read; the rest are weights, parameters and tables.
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


def figures(schedule: Schedule, run: EngineCycles) -> tuple[Figures, ...]:
    """Of each layer of the network, in order; cycles and bytes add up to those of a run."""
    behind = {op.name: step.ops[0].name for step in steps(schedule.network) for op in step.ops[1:]}
    own = _own(schedule, run)
    found = [Figures(layer=layer, computed_with=behind.get(layer.name, "")) for layer in schedule.network.layers]
    return tuple(replace(each, **own.get(each.layer.name, {})) for each in found)


def maps_read(schedule: Schedule) -> np.ndarray:
    """Return the bytes of feature maps that each job reads."""
    return map_bytes_read(schedule.engine, schedule.jobs)


def _own(schedule: Schedule, run: EngineCycles) -> dict[str, dict[str, Any]]:
    """Of each layer with passes."""
    names = [work.task.name for work in schedule.works]
    owners, turns = np.array([names[owner] for owner in schedule.owners]), np.array(schedule.turns)
    array = np.multiply(*group_steps_of(schedule.jobs))
    read, written, maps = run.read + Job.BYTES, run.written, maps_read(schedule)
    ends = np.max([run.loaded, run.computed, run.stored], axis=0)
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(names):
        those = owners == name
        found[name] = {
            "tilings": tuple(work.tiling for work in schedule.works if work.task.name == name),
            "cycles": 0,
            "steps": int(array[those].sum()),
            "read": int(read[those].sum()),
            "written": int(written[those].sum()),
            "maps": int(maps[those].sum()),
            "jobs": Job.BYTES * int(those.sum()),
        }
    last = {
        (turn, name): int(ends[(turns == turn) & (owners == name)].max())
        for turn, name in dict.fromkeys(zip(schedule.turns, owners.tolist(), strict=True))
    }
    before = -START_CYCLES
    for (_, name), end in sorted(last.items(), key=lambda each: (each[1], each[0][0], names.index(each[0][1]))):
        found[name]["cycles"] += end - before
        before = end
    found[name]["cycles"] += run.cycles - before + DONE_CYCLES
    return found
