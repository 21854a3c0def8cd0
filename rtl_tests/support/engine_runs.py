"""Runs of engine programs in Verilator, held against the golden model and the schedule."""

from __future__ import annotations

import numpy as np
from programs import image

from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.gateware.engine.port import Error
from hwgen.network import golden
from hwgen.program.compile import ProgramSchedule
from hwgen.program.layout import unpack_map
from hwgen.schedule.engine import EngineSchedule
from hwgen.simulate import engine
from hwgen.simulate.engine import EngineMemory, EngineRun


def check(circuit, found: ProgramSchedule, memory: EngineMemory | None = None, seed: int = 0, **options) -> EngineRun:
    """Values are those of the golden model; cycles and bytes those of the schedule, if memory makes no gaps."""
    memory = memory or EngineMemory()
    content, frames = image(found, seed)
    program = found.program
    run = engine.run(circuit, content, memory=memory, limit=5_000_000, **options)
    assert run.error == Error.NONE
    for place, wanted in zip(program.outputs, golden.outputs(found.network, frames), strict=True):
        for number in range(found.frames):
            np.testing.assert_array_equal(unpack_map(run.image[place.at(number)], place.map), wanted[number])
    counted = EngineSchedule(found.engine, found.jobs, memory.timing).run()
    if not memory.gap:
        assert set(run.cycles) == {START_CYCLES + counted.cycles + DONE_CYCLES}
    assert run.read == options.get("runs", 1) * (sum(counted.read) + counted.fetched)
    assert run.written == options.get("runs", 1) * sum(counted.written)
    return run
