"""Performance figures of an engine program per layer: cycles, array steps, bytes over the memory port."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.gateware.engine.job import job_bytes
from hwgen.network.ops import Op
from hwgen.program.compile import ProgramSchedule
from hwgen.program.maps import steps
from hwgen.program.tiles import Tiling
from hwgen.schedule.engine import EngineCycles, map_bytes_read
from hwgen.schedule.engine_core import group_steps_of


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Cycles, array steps and memory bytes of one layer in one run of an engine program.

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
        Cycles in which the array multiplies for this layer.
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
    """Return the cycles, array steps and memory bytes of every layer in a run, in the network's order.

    The layers' cycles and bytes add up to those of the run.
    """
    first_op = {op.name: step.ops[0].name for step in steps(schedule.network) for op in step.ops[1:]}
    values_of = _figures_by_layer(schedule, run)
    return tuple(
        replace(Figures(layer=layer, computed_with=first_op.get(layer.name, "")), **values_of.get(layer.name, {}))
        for layer in schedule.network.layers
    )


def maps_read(schedule: ProgramSchedule) -> np.ndarray:
    """Return, for each job of a schedule, the bytes of feature maps that the job reads from memory."""
    return map_bytes_read(schedule.engine, schedule.jobs)


def _figures_by_layer(schedule: ProgramSchedule, run: EngineCycles) -> dict[str, dict[str, Any]]:
    """Return the cycles, array steps and memory bytes of every layer that has jobs, by the layer's name."""
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
