"""What a template is: a way to make hardware of the layers of a fusion group.

A template is a frozen dataclass that holds its own choices for one group, such as the tile of its pyramids. It finds
these choices, makes the hardware's configuration of them, and writes and reads its part of ``plan.json``. Everything
above asks a `Group` or its template, and never which template it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from hwgen.boards import Board
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.schedule.solve import Cycles, steady_cycles
from hwgen.templates.layers import LayerPlan
from hwgen.templates.refusal import Refusal
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.task import Task


class Template(ABC):
    """A way to make hardware of a group, with its own choices for one group."""

    name: ClassVar[str]
    """In plans, options and messages."""
    holds_weights: ClassVar[bool] = True
    """Whether all weights of a group lie on the chip while it runs."""

    @classmethod
    @abstractmethod
    def search(cls, task: Task, begin: int, end: int, in_turn: bool) -> Group | Refusal:
        """Return the best group of the layers ``begin`` to ``end`` of the task's network, or why none fits.

        Parameters
        ----------
        in_turn : bool
            Other groups run before and after it: its time is one frame's.

        Raises
        ------
        PlanError
            If a layer, tile or schedule refuses itself (see `hwgen.templates.refusal.attempt`).
        """

    @classmethod
    @abstractmethod
    def read(cls, document: dict[str, Any], network: Network, layers: Sequence[LayerPlan]) -> Template:
        """The choices that a group of ``plan.json`` holds.

        Raises
        ------
        PlanError
            If they make no sense.
        """

    @abstractmethod
    def write(self, config: AcceleratorConfig) -> dict[str, Any]:
        """What `read` reads."""

    @abstractmethod
    def configure(self, network: Network, layers: Sequence[LayerPlan]) -> AcceleratorConfig:
        """The hardware of a group's layers.

        Raises
        ------
        PlanError
            If a layer can't be built.
        ConfigError
            If the choices contradict each other.
        """

    @classmethod
    def stage(cls, op: Op) -> Stage[Any]:
        """What becomes of a layer.

        Raises
        ------
        PlanError
            If its kind has no hardware here.
        """
        return stage_of(op)

    def input_pixels(self, network: Network) -> tuple[int, ...]:
        """Pixels of each of the group's inputs that are fetched in a frame, those fetched again counted again."""
        return tuple(source.height * source.width for source in network.input_maps)

    def summary(self, group: Group) -> list[str]:
        """Lines under a plan's table, for people."""
        return []

    def is_moot(self, network: Network, option: str) -> bool:
        """Whether one of this template's options makes no difference to a group of these layers."""
        return False

    alone: ClassVar[str] = ""
    """Why a plan with other groups beside one of these can't be built yet, as a clause; empty if it can."""

    # What a template overrides whose groups are not layers with streams in between.

    streams: ClassVar[bool] = True
    """Whether its groups are: only then has a `Group` a configuration."""

    def rows(self, group: Group) -> list[tuple[str, ...]] | None:
        """Of a plan's table, one a layer: name, kind, output, and the columns that `hwgen.report.legend` has for it.

        ``None``: unroll factors, line buffers and FIFOs.
        """
        return None

    def document(self, group: Group) -> dict[str, Any] | None:
        """The group in ``plan.json``, but for the template's name; ``None``: its layers, its FIFOs, and `write`."""
        return None

    @classmethod
    def group(cls, document: dict[str, Any], network: Network, board: Board) -> Group | None:
        """The group of what `document` wrote; ``None``: of layers, FIFOs, and what `read` reads.

        Raises
        ------
        PlanError
            If it makes no sense.
        """
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Layers that are fused, with streams in between.

    Parameters
    ----------
    network : Network
        The group's layers.
    layers : tuple of LayerPlan
        One for each of them, in order.
    template : Template

    Raises
    ------
    PlanError
        If a layer can't be built.
    ConfigError
        If the choices contradict each other.
    """

    network: Network
    layers: tuple[LayerPlan, ...]
    template: Template

    def __post_init__(self) -> None:
        self.config  # noqa: B018 (choices that can't work are refused here)

    @cached_property
    def config(self) -> AcceleratorConfig:
        """The hardware."""
        return self.template.configure(self.network, self.layers)

    @property
    def circuit(self) -> Any:
        """Configuration of the circuit, as synthesis takes it."""
        return self.config

    @property
    def engine(self) -> EngineConfig | None:
        """Engine whose program computes the group; ``None`` if the layers have circuits of their own."""
        return None

    @cached_property
    def map_bytes(self) -> int:
        """Feature maps over the boundary in a frame: inputs read, halos as often as they are, and outputs written."""
        pixels = zip(self.network.input_maps, self.template.input_pixels(self.network), strict=True)
        read = sum(source.channels * count * source.type.dtype.itemsize for source, count in pixels)
        return read + sum(each.values * each.type.dtype.itemsize for each in self.network.output_maps)

    @cached_property
    def resources(self) -> Resources:
        return self.config.resources

    @cached_property
    def steady(self) -> Cycles:
        """Cycles when frames follow each other."""
        return self.predict()

    @cached_property
    def frame_cycles(self) -> int:
        """Cycles of one frame alone, from its first input transfer to its last output transfer, both counted."""
        return self.predict(1).latency + 1

    def predict(self, frames: int | None = None) -> Cycles:
        """Cycles of so many frames that follow each other; until the interval is steady if not given."""
        return steady_cycles(self.config) if frames is None else steady_cycles(self.config, frames)

    def traffic_bytes(self, loads: bool) -> dict[str, int]:
        """Off-chip traffic of a frame; ``loads``: weights are loaded every frame."""
        return {"feature_maps": self.map_bytes, "weights": self.network.weight_bytes if loads else 0}

    @property
    def slowest(self) -> int:
        """Cycles a frame of the slowest layer."""
        return max(layer.cycles for layer in self.config.layers)

    @property
    def weight_bram36(self) -> float:
        """The part of its block RAM that holds weights."""
        return sum(layer.compute.resources.bram36 for layer in self.config.layers)
