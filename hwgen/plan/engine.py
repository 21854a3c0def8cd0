"""Plans for an engine that exists."""

from __future__ import annotations

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.network.graph import Network
from hwgen.plan import document
from hwgen.plan.plan import Plan
from hwgen.schedule.engine import MemoryTiming
from hwgen.templates.tile import Tile, TileGroup


def group_of(plan: Plan) -> TileGroup | None:
    """Return the only group of a plan if an engine computes it."""
    (group, *others) = plan.groups
    return group if isinstance(group, TileGroup) and not others else None


def on_engine(
    network: Network,
    board: Board,
    engine: EngineConfig,
    memory: MemoryTiming,
    text: str | None = None,
    batch: int | None = None,
) -> Plan:
    """A network on this engine, cut as a ``plan.json`` says, or as the search finds it for runs of ``batch`` frames.

    Raises
    ------
    PlanError
        If it can't compute a layer or has no room for it; if the plan can't work or is of another engine.
    """
    if text is None:
        group = Tile(engine=engine, memory=memory, batch=1 if batch is None else batch).grouped(network)
        return Plan(network=network, board=board, groups=(group,), dsp=board.dsp)
    if batch is not None:
        raise PlanError("a given plan has its own batch: give batch or plan, not both")
    plan = document.read(text, network, board)
    if (found := group_of(plan)) is None:
        raise PlanError("plan is not on an engine: it has no group of the template 'tile' alone")
    if found.template.engine != engine:
        raise PlanError(
            f"plan is of another engine, {digest(found.template.engine)}, this one is {digest(engine)}: leave it out, "
            "and it is planned for this one"
        )
    return plan
