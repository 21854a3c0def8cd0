"""Plan of a network on a board: fusion groups (layers run overlapped on chip), hardware per layer, resources, cycles.

The placement of the groups, each on hardware of its own or in turn on shared slices and memory, states their total
resources, the cycles per frame, and whether it can be built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from hwgen.schedule.solve import Cycles
from hwgen.templates.base import Group, check_budget, shortage
from hwgen.templates.layers import LayerPlan


@dataclass(frozen=True)
class Placement(ABC):
    """Base class of a plan's groups placed on a board, on separate or shared hardware: resources, cycles per frame."""

    groups: tuple[Group, ...]
    """Tuple of each fusion `Group` (layers run overlapped on chip) of the plan, in the network's order."""
    board: Board
    """`Board` that the plan is for."""

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """Total `Resources` (DSP slices, block RAMs, LUTs ..) of the plan's groups; shared parts count only once."""

    @property
    def obstacle(self) -> str | None:
        """Reason why the placement can't be built yet, as a noun phrase; ``None`` if it can be built."""
        return None

    @property
    def loads_weights(self) -> bool:
        """Whether each frame reads the weights from off-chip memory, as the chip can't hold all groups' weights."""
        return False

    @cached_property
    def cycles(self) -> Cycles:
        """`Cycles` of latency per frame and interval between frames, if off-chip memory works at its peak rate."""
        board = self.board
        runs = [max(group.frame_cycles, board.transfer_cycles(group.map_bytes)) for group in self.groups]
        loads = [board.transfer_cycles(group.network.weight_bytes) * self.loads_weights for group in self.groups]
        return Cycles(latency=sum(runs) + sum(loads[1:]) - 1, interval=sum(runs) + sum(loads), steady=True)

    @cached_property
    def bounds(self) -> dict[str, int]:
        """Dictionary of lower bounds of the interval in cycles: ``circuit``, ``words on the bus``, ``memory``.

        It is empty without an interval. The largest bound is the interval that a design reaches with its bus wrapper
        and off-chip memory, if software keeps up. The cycles of groups that run in turn contain their transfers.
        """
        return {} if self.cycles.interval is None else {"circuit": self.cycles.interval}

    def predict(self, frames: int) -> Cycles:
        """Return `Cycles`: latency and interval of ``frames`` frames back to back, if memory never stalls.

        The interval of a short run can differ from the steady interval.
        """
        cycles = sum(group.frame_cycles for group in self.groups)
        return Cycles(latency=cycles - 1, interval=cycles if frames >= 3 else None, steady=True)


class SingleGroup(Placement):
    """Placement of a single fusion group, whose frames overlap; of maps, only its input and output leave the chip.

    A group that keeps weights in off-chip memory also moves these (`Group.traffic_bytes`).
    """

    @property
    def resources(self) -> Resources:
        return self.groups[0].resources

    @property
    def cycles(self) -> Cycles:
        return self.groups[0].steady

    @cached_property
    def bounds(self) -> dict[str, int]:
        (group,) = self.groups
        if not (bounds := super().bounds):
            return {}
        bus = {"words on the bus": group.bus_words} if group.bus_words else {}
        return {**bounds, **bus, "memory": self.board.transfer_cycles(sum(group.traffic_bytes(False).values()))}

    def predict(self, frames: int) -> Cycles:
        return self.groups[0].predict(frames)


class SeparateGroups(Placement):
    """Placement of several groups, each on hardware of its own; a frame passes through them one after the other."""

    @cached_property
    def resources(self) -> Resources:
        return sum((group.resources for group in self.groups), Resources())


class SharedHardware(Placement):
    """Placement of several groups that take turns on the same DSP slices and block RAM; it can't be built yet.

    It needs the slices and the block RAM of the largest group, block RAM for the weights of all groups, and the LUTs
    and flip-flops of every group. If the weights don't all fit on the chip at once, each run of a group loads its
    weights first, and the groups share the block RAM for weights, too.
    """

    @property
    def obstacle(self) -> str:
        return f"{len(self.groups)} groups that have to share the board but do not fit it together"

    @cached_property
    def loads_weights(self) -> bool:
        return self._resident_bram36 > self.board.bram36

    @cached_property
    def _resident_bram36(self) -> float:
        """Number of 36-kbit block RAMs for the weights of all groups together and the largest group's buffers."""
        weights = [group.weight_bram36 for group in self.groups]
        return sum(weights) + max(
            group.resources.bram36 - held for group, held in zip(self.groups, weights, strict=True)
        )

    @cached_property
    def resources(self) -> Resources:
        used = [group.resources for group in self.groups]
        largest = max(resources.bram36 for resources in used)
        return Resources(
            dsp=max(resources.dsp for resources in used),
            bram36=largest if self.loads_weights else self._resident_bram36,
            lut=sum(resources.lut for resources in used),
            ff=sum(resources.ff for resources in used),
            uram=max(resources.uram for resources in used),
        )


def placement_of(groups: tuple[Group, ...], board: Board, dsp: int) -> Placement:
    """Return the `Placement` of fusion groups: separate hardware if it fits (or a single group), or else shared."""
    if len(groups) == 1:
        return SingleGroup(groups, board)
    separate = SeparateGroups(groups, board)
    return separate if shortage(separate.resources, board, dsp) is None else SharedHardware(groups, board)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """Plan of a network on a board: one fusion group, or several that run one after the other.

    The maps between groups are in off-chip memory. `placement` states whether each group has hardware of its own.

    Parameters
    ----------
    network : Network
        Network that the plan is for.
    board : Board
        Board that the plan is for.
    groups : tuple of Group
        Fusion groups, which hold all layers of the network in order.
    dsp : int
        Number of DSP slices that the plan may use.
    notes : tuple of str
        Notes of the planner on its choices, for users.

    Raises
    ------
    OverBudgetError
        If the plan needs more of a resource than the board has, or more than ``dsp`` slices.
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
        """Tuple of the `LayerPlan` (unroll factors, memories, buffers) of each layer of all groups, in order."""
        return tuple(layer for group in self.groups for layer in group.layers)

    @property
    def name(self) -> str:
        """Name of the plan, ``NETWORK-BOARD``."""
        return f"{self.network.name}-{self.board.name}"

    @cached_property
    def placement(self) -> Placement:
        """Placement of the groups on the board: each on its own hardware, or in turn on shared DSP slices and RAM."""
        return placement_of(self.groups, self.board, self.dsp)

    @property
    def engine(self) -> EngineConfig | None:
        """`EngineConfig` of the engine that computes the whole network; ``None`` if layers have their own circuits."""
        return self.groups[0].engine if len(self.groups) == 1 else None

    @property
    def obstacle(self) -> str | None:
        """Reason why the plan can't be built yet, as a noun phrase; ``None`` if it can be built."""
        phrase = next(filter(None, (group.template.exclusive_phrase for group in self.groups)), "")
        if phrase and len(self.groups) > 1:
            return f"{len(self.groups)} groups, at least one of them {phrase}"
        return self.placement.obstacle

    def configure(self) -> AcceleratorConfig:
        """Return the `AcceleratorConfig` of a plan's only fusion group; several groups raise `PlanError`.

        Raises
        ------
        PlanError
            If the plan has several groups, or can't be built yet.
        """
        configs = self.configs()
        if len(configs) > 1:
            raise PlanError(f"plan of {self.network.name} for {self.board.name} has {len(configs)} groups, not one")
        return configs[0]

    def circuits(self) -> list[Any]:
        """Return each fusion group's circuit configuration as a list, the input of `hwgen.tools.synthesis`.

        Raises
        ------
        PlanError
            If the plan can't be built yet.
        """
        self._check_buildable()
        return [group.circuit for group in self.groups]

    def configs(self) -> list[AcceleratorConfig]:
        """Return a list of each group's `AcceleratorConfig`; raise `PlanError` if the plan can't be built yet.

        Raises
        ------
        PlanError
            If the plan can't be built yet.
        """
        self._check_buildable()
        return [group.config for group in self.groups]

    def _check_buildable(self) -> None:
        """Raise PlanError if the plan can't be built yet."""
        if self.obstacle is not None:
            raise PlanError(
                f"the plan of {self.network.name} for {self.board.name} cannot be built yet: it has {self.obstacle}; "
                "try fewer layers, fewer groups or a larger board"
            )

    @property
    def resources(self) -> Resources:
        """Total `Resources` (DSP slices, block RAMs, LUTs ..) of the plan's groups; shared parts count only once."""
        return self.placement.resources

    @property
    def cycles(self) -> Cycles:
        """`Cycles` of latency per frame and interval between frames, by the exact schedule.

        With several groups, off-chip transfers take place at the memory's peak rate.
        """
        return self.placement.cycles

    @property
    def latency(self) -> int:
        """Cycles from the first input transfer of one frame to its last output transfer."""
        return self.cycles.latency

    @property
    def interval(self) -> int | None:
        """Cycles between the ends of back-to-back frames in the steady state; ``None`` if not computed."""
        return self.cycles.interval

    @property
    def bounds(self) -> dict[str, int]:
        """Dict of lower bounds of the interval in cycles, by name: ``circuit``, ``words on the bus`` and ``memory``.

        It is empty if there is no interval. The memory moves bytes at its peak rate.
        """
        return self.placement.bounds

    @property
    def frame_rate(self) -> float | None:
        """Frames per second at the board's clock, by the largest of the `bounds` (cycles); ``None`` if none known."""
        return self.board.clock_mhz * 1e6 / max(self.bounds.values()) if self.bounds else None

    @property
    def traffic_bytes(self) -> dict[str, int]:
        """Dictionary by name (``feature_maps``, ``weights``, ``jobs``): bytes moved off chip per frame."""
        total: Counter[str] = Counter()
        for group in self.groups:
            total.update(group.traffic_bytes(self.placement.loads_weights))
        return dict(total)


def rate_text(rate: float) -> str:
    """Return a number of frames per second as text: whole if at least 100, otherwise with three digits."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
