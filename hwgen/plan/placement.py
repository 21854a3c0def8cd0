"""Placements of a plan's groups on a board: each on hardware of its own, or in turn on shared slices and memory.

A placement states the resources that the groups need together, the cycles of a frame, and whether it can be built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from hwgen.boards import Board
from hwgen.gateware.cost import Resources
from hwgen.schedule.solve import Cycles
from hwgen.templates.base import Group
from hwgen.templates.budget import shortage


@dataclass(frozen=True)
class Placement(ABC):
    """Base class of placements of a plan's groups on a board: resources and cycles of all groups together."""

    groups: tuple[Group, ...]
    """Groups of the plan, in the network's order."""
    board: Board
    """Board of the plan."""

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """Resources that all groups need together."""

    @property
    def obstacle(self) -> str | None:
        """Reason why the placement can't be built yet, as a noun phrase; ``None`` if it can be built."""
        return None

    @property
    def loads_weights(self) -> bool:
        """Whether every frame loads the weights, because those of all groups don't fit on the chip together."""
        return False

    @cached_property
    def cycles(self) -> Cycles:
        """Latency of a frame and interval between frames, in cycles, with off-chip transfers at the peak rate."""
        board = self.board
        runs = [max(group.frame_cycles, board.transfer_cycles(group.map_bytes)) for group in self.groups]
        loads = [board.transfer_cycles(group.network.weight_bytes) * self.loads_weights for group in self.groups]
        return Cycles(latency=sum(runs) + sum(loads[1:]) - 1, interval=sum(runs) + sum(loads), steady=True)

    @cached_property
    def bounds(self) -> dict[str, int]:
        """Lower bounds of the interval between frames in cycles, by the part that sets each; empty without an interval.

        The largest is the interval that a design reaches with its bus wrapper and off-chip memory, if software keeps
        up. The cycles of groups that run in turn contain their transfers.
        """
        return {} if self.cycles.interval is None else {"circuit": self.cycles.interval}

    def predict(self, frames: int) -> Cycles:
        """Predict latency and interval of ``frames`` frames back to back, with a memory that never stalls.

        The interval of a short run can differ from the steady interval.
        """
        cycles = sum(group.frame_cycles for group in self.groups)
        return Cycles(latency=cycles - 1, interval=cycles if frames >= 3 else None, steady=True)


class SingleGroup(Placement):
    """Placement of a single group. Its frames overlap, and only the group's input and output cross the chip's border.

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
    """Placement of several groups, each on hardware of its own. A frame passes through one group after the other."""

    @cached_property
    def resources(self) -> Resources:
        return sum((group.resources for group in self.groups), Resources())


class SharedHardware(Placement):
    """Placement of several groups that take turns on the same DSP slices and block RAM. It can't be built yet.

    It needs the slices and the block RAM of the largest group, block RAM for the weights of all groups, and the LUTs
    and flip-flops of every group. If the weights don't all fit on the chip at once, each run of a group loads its
    weights first, and the groups share the block RAM for weights, too.
    """

    @property
    def obstacle(self) -> str:
        return f"{len(self.groups)} groups that have to share the board, which all together don't fit"

    @cached_property
    def loads_weights(self) -> bool:
        return self._resident_bram36 > self.board.bram36

    @cached_property
    def _resident_bram36(self) -> float:
        """Number of 36-kbit block RAMs that hold the weights of all groups, and the largest buffers of a group."""
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
    """Return the placement of groups: each on its own hardware if the board and ``dsp`` slices permit, else in turn."""
    if len(groups) == 1:
        return SingleGroup(groups, board)
    separate = SeparateGroups(groups, board)
    return separate if shortage(separate.resources, board, dsp) is None else SharedHardware(groups, board)
