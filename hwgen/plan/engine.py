"""Planning of a network for an engine (programmable array of MACs) whose circuit already exists."""

from __future__ import annotations

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.network.graph import Network
from hwgen.options import AUTO, OFF, called
from hwgen.plan import document
from hwgen.plan.plan import Plan
from hwgen.schedule.engine import MemoryTiming
from hwgen.templates.engine import EngineTemplate, kept_options, narrow_slices


def on_engine(
    network: Network,
    board: Board,
    engine: EngineConfig,
    memory: MemoryTiming,
    text: str | None = None,
    batch: int | None = None,
    fuse: str | None = None,
) -> Plan:
    """Return a network's `Plan` for an existing engine (programmable MAC array), searched or read from a ``plan.json``.

    Parameters
    ----------
    memory : MemoryTiming
        Timing of the off-chip memory that a search assumes.
    text : str, optional
        Text of a ``plan.json``. The plan is searched if the text is not given.
    batch : int, optional
        Number of frames that one run of a searched plan computes; 1 if not given.
    fuse : str, optional
        Whether a searched plan keeps maps in the engine's map memory: ``auto`` (the default) or ``off``.

    Raises
    ------
    PlanError
        If the engine can't compute a layer or has no room for it. If the given plan can't work or is for another
        engine. If both ``text`` and ``batch`` are given.
    """
    if fuse not in (None, AUTO, OFF):
        raise PlanError(f"{called('fuse')} must be {AUTO} or {OFF}, not {fuse!r}")
    if narrow := narrow_slices(board):
        raise narrow.error
    if text is None:
        group = EngineTemplate(engine=engine, memory=memory, batch=1 if batch is None else batch).grouped(
            network, **kept_options(fuse)
        )
        return Plan(network=network, board=board, groups=(group,), dsp=board.dsp)
    if batch is not None:
        raise PlanError(f"a given plan states its batch: give {called('batch')} or {called('plan')}, not both")
    if fuse is not None:
        raise PlanError(
            f"a given plan states the maps in the map memory: give {called('fuse')} or {called('plan')}, not both"
        )
    plan = document.read(text, network, board)
    if plan.engine is None:
        raise PlanError("plan: it is not for an engine: its only group must have the template 'engine'")
    if plan.engine != engine:
        raise PlanError(
            f"the plan is for another engine ({digest(plan.engine)}) than this one ({digest(engine)}): leave "
            f"{called('plan')} out to plan for this one"
        )
    return plan
