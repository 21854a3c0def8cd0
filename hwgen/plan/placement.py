"""Where the groups of a plan run: on hardware of their own each, or in turn on the same slices and memory.

A placement says what the groups take together, how long a frame takes, and whether that can be built.
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
    """Groups on a board, one after the other."""

    groups: tuple[Group, ...]
    board: Board

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """What they take together."""

    @property
    def obstacle(self) -> str | None:
        """Why it can't be built yet; ``None`` if it can."""
        return None

    @property
    def loads_weights(self) -> bool:
        """Whether weights are loaded every frame, because those of all groups don't fit on the chip together."""
        return False

    @cached_property
    def cycles(self) -> Cycles:
        """Of frames that follow each other, with transfers at the memory's peak rate."""
        board = self.board
        runs = [max(group.frame_cycles, board.transfer_cycles(group.map_bytes)) for group in self.groups]
        loads = [board.transfer_cycles(group.network.weight_bytes) * self.loads_weights for group in self.groups]
        return Cycles(latency=sum(runs) + sum(loads[1:]) - 1, interval=sum(runs) + sum(loads), steady=True)

    def predict(self, frames: int) -> Cycles:
        """Cycles of a run of so many frames, back to back, with a memory that never stalls.

        The interval of a short run may not be the steady one.
        """
        cycles = sum(group.frame_cycles for group in self.groups)
        return Cycles(latency=cycles - 1, interval=cycles if frames >= 3 else None, steady=True)


class Alone(Placement):
    """One group. Its frames overlap, and nothing but its input and output leaves the chip."""

    @property
    def resources(self) -> Resources:
        return self.groups[0].resources

    @property
    def cycles(self) -> Cycles:
        return self.groups[0].steady

    def predict(self, frames: int) -> Cycles:
        return self.groups[0].predict(frames)


class Apart(Placement):
    """Several groups with hardware of their own each, which all fits; a frame goes through one after the other."""

    @cached_property
    def resources(self) -> Resources:
        return sum((group.resources for group in self.groups), Resources())


class Shared(Placement):
    """Several groups that take turns on the same DSP slices and block RAM.

    Of slices and block RAM the largest group's count, and block RAM for the weights of all. LUTs and flip-flops are
    every group's own. Weights that don't all fit on the chip at once are loaded before each run of their group; then
    the block RAM for them is shared too.
    """

    @property
    def obstacle(self) -> str:
        return f"{len(self.groups)} groups that have to share the board, which all together don't fit"

    @cached_property
    def loads_weights(self) -> bool:
        return self._resident_bram36 > self.board.bram36

    @cached_property
    def _resident_bram36(self) -> float:
        """Block RAM with the weights of all groups and the buffers of the largest."""
        weights = [group.weight_bram36 for group in self.groups]
        return sum(weights) + max(
            group.resources.bram36 - held for group, held in zip(self.groups, weights, strict=True)
        )

    @cached_property
    def resources(self) -> Resources:
        each = [group.resources for group in self.groups]
        largest = max(used.bram36 for used in each)
        return Resources(
            dsp=max(used.dsp for used in each),
            bram36=largest if self.loads_weights else self._resident_bram36,
            lut=sum(used.lut for used in each),
            ff=sum(used.ff for used in each),
        )


def place(groups: tuple[Group, ...], board: Board, dsp: int) -> Placement:
    """Hardware of their own for all groups, if that fits the board and ``dsp`` slices; otherwise they share it."""
    if len(groups) == 1:
        return Alone(groups, board)
    apart = Apart(groups, board)
    return apart if shortage(apart.resources, board, dsp) is None else Shared(groups, board)
