"""The fusion plan: which hardware each layer gets, group by group, and what that takes and costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import Network
from hwgen.plan.placement import Placement, place
from hwgen.schedule.solve import Cycles
from hwgen.templates.base import Group
from hwgen.templates.budget import check_budget
from hwgen.templates.layers import LayerPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A fusion plan: one group, or several that run one after the other, their maps in off-chip memory.

    Where the groups run, on hardware of their own each or sharing it, is its `placement`.

    Parameters
    ----------
    network : Network
    board : Board
    groups : tuple of Group
        All layers of the network, in order.
    dsp : int
        DSP slices it may use.
    notes : tuple of str
        What the planner has to say about its choices.

    Raises
    ------
    OverBudgetError
        If it needs more than there is.
    """

    network: Network
    board: Board
    groups: tuple[Group, ...]
    dsp: int
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_budget(self.resources, self.board, self.dsp)

    @property
    def layers(self) -> tuple[LayerPlan, ...]:
        return tuple(layer for group in self.groups for layer in group.layers)

    @property
    def name(self) -> str:
        return f"{self.network.name}-{self.board.name}"

    @cached_property
    def placement(self) -> Placement:
        """Where the groups run."""
        return place(self.groups, self.board, self.dsp)

    @property
    def engine(self) -> EngineConfig | None:
        """Engine whose program computes the whole network; ``None`` for an accelerator of its layers."""
        return self.groups[0].engine if len(self.groups) == 1 else None

    @property
    def obstacle(self) -> str | None:
        """Why the plan can't be built yet; ``None`` if it can."""
        alone = next((group.template.alone for group in self.groups if group.template.alone), "")
        if alone and len(self.groups) > 1:
            return f"{len(self.groups)} groups, some of which {alone}"
        return self.placement.obstacle

    def configure(self) -> AcceleratorConfig:
        """The hardware of a plan with one group.

        Raises
        ------
        PlanError
            If there are several, or it is not buildable yet.
        """
        configs = self.configs()
        if len(configs) > 1:
            raise PlanError(f"plan of {self.network.name} for {self.board.name} has {len(configs)} groups, not one")
        return configs[0]

    def circuits(self) -> list[Any]:
        """Return the circuits that the plan describes, group by group, as `hwgen.emit.synthesis` takes them.

        Raises
        ------
        PlanError
            If it is not buildable yet.
        """
        self._check_buildable()
        return [group.circuit for group in self.groups]

    def configs(self) -> list[AcceleratorConfig]:
        """The hardware that the plan describes, group by group.

        Raises
        ------
        PlanError
            If it is not buildable yet.
        """
        self._check_buildable()
        return [group.config for group in self.groups]

    def _check_buildable(self) -> None:
        if self.obstacle is not None:
            raise PlanError(
                f"plan of {self.network.name} for {self.board.name} is not buildable yet: it has {self.obstacle}; "
                "fewer layers, fewer groups or a larger board might do"
            )

    @property
    def resources(self) -> Resources:
        """What all groups take together."""
        return self.placement.resources

    @property
    def cycles(self) -> Cycles:
        """What the exact schedule says; of groups in turn, with transfers at the memory's peak rate."""
        return self.placement.cycles

    @property
    def latency(self) -> int:
        """Cycles from the first input transfer of one frame to its last output transfer."""
        return self.cycles.latency

    @property
    def interval(self) -> int | None:
        """Cycles between frames that follow each other."""
        return self.cycles.interval

    @property
    def traffic_bytes(self) -> dict[str, int]:
        """Off-chip traffic of one frame: every group's input and output once, and weights that don't stay on chip."""
        found: Counter[str] = Counter()
        for group in self.groups:
            found.update(group.traffic_bytes(self.placement.loads_weights))
        return dict(found)
