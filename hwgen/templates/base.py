"""Base class of templates, and the fusion group whose hardware a template builds.

A template is a frozen dataclass with its own choices for one group, such as the tile of its pyramids. It searches for
these choices, makes the hardware's configuration from them, and writes and reads its part of ``plan.json``. Callers
use a `Group` or its template, and never test which template it is.
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
    """Generator of the hardware of a fusion group, with its own choices for one group."""

    name: ClassVar[str]
    """Name of the template in plans, options and messages."""
    holds_weights: ClassVar[bool] = True
    """Whether the chip stores all weights of a group while the group runs."""

    @classmethod
    @abstractmethod
    def search(cls, task: Task, begin: int, end: int, in_turn: bool) -> Group | Refusal:
        """Return the best group of the layers ``begin`` to ``end`` of the task's network, or why none fits.

        Parameters
        ----------
        in_turn : bool
            Whether other groups run before and after this group. Its time is then the latency of one frame.

        Raises
        ------
        PlanError
            If a layer, tile or schedule is refused (see `hwgen.templates.refusal.attempt`).
        """

    @classmethod
    @abstractmethod
    def read(cls, document: dict[str, Any], network: Network, layers: Sequence[LayerPlan]) -> Template:
        """Return the template with the choices of a group of ``plan.json``.

        Raises
        ------
        PlanError
            If a choice is missing or out of range.
        """

    @abstractmethod
    def write(self, config: AcceleratorConfig) -> dict[str, Any]:
        """Return the fields of ``plan.json`` that `read` reads."""

    @abstractmethod
    def configure(self, network: Network, layers: Sequence[LayerPlan]) -> AcceleratorConfig:
        """Return the configuration of the hardware of a group's layers.

        Raises
        ------
        PlanError
            If a layer can't be built.
        ConfigError
            If the choices contradict each other.
        """

    @classmethod
    def stage(cls, op: Op) -> Stage[Any]:
        """Return the stage that builds a layer.

        Raises
        ------
        PlanError
            If the template has no hardware for the layer's kind.
        """
        return stage_of(op)

    def input_pixels(self, network: Network) -> tuple[int, ...]:
        """Return the number of pixels of each group input that a frame fetches, repeated fetches included."""
        return tuple(source.height * source.width for source in network.input_maps)

    def summary(self, group: Group) -> list[str]:
        """Return the lines below a plan's table, for people."""
        return []

    def is_moot(self, network: Network, option: str) -> bool:
        """Whether one of this template's options has no effect on a group of these layers."""
        return False

    alone: ClassVar[str] = ""
    """Reason, as a clause, for which a plan can't combine this template's groups with others; empty if it can."""

    # A template overrides the following members if its groups are not layers with streams between them.

    streams: ClassVar[bool] = True
    """Whether groups are layers with streams between them. Only then a `Group` has a configuration."""

    def rows(self, group: Group) -> list[tuple[str, ...]] | None:
        """Return the rows of a plan's table: a layer's name, kind, output, and this template's columns.

        `hwgen.report.legend` has the columns' titles. ``None`` stands for the columns of streams: unroll factors, line
        buffers and FIFOs.
        """
        return None

    def document(self, group: Group) -> dict[str, Any] | None:
        """Return the group's fields in ``plan.json``, without the template's name.

        ``None`` stands for the group's layers, its FIFOs, and the fields of `write`.
        """
        return None

    @classmethod
    def group(cls, document: dict[str, Any], network: Network, board: Board) -> Group | None:
        """Return the group that `document` wrote; ``None`` if layers, FIFOs and the fields of `read` describe it.

        Raises
        ------
        PlanError
            If a field is missing or out of range.
        """
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Fusion group: layers that run at the same time, with streams between them.

    Parameters
    ----------
    network : Network
        Network of the group's layers.
    layers : tuple of LayerPlan
        Choices for each layer, in the network's order.
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
        self.config  # noqa: B018 (refuses choices that can't work)

    @cached_property
    def config(self) -> AcceleratorConfig:
        """Configuration of the group's hardware."""
        return self.template.configure(self.network, self.layers)

    @property
    def circuit(self) -> Any:
        """Configuration of the circuit that synthesis receives."""
        return self.config

    @property
    def engine(self) -> EngineConfig | None:
        """Engine whose program computes the group; ``None`` if the layers have circuits of their own."""
        return None

    @cached_property
    def map_bytes(self) -> int:
        """Bytes of feature maps per frame off chip: inputs read, repeated halos included, and outputs written."""
        pixels = zip(self.network.input_maps, self.template.input_pixels(self.network), strict=True)
        read = sum(source.channels * count * source.type.dtype.itemsize for source, count in pixels)
        return read + sum(output.values * output.type.dtype.itemsize for output in self.network.output_maps)

    @cached_property
    def resources(self) -> Resources:
        """Resources of the group's hardware on the device, as estimated."""
        return self.config.resources

    @cached_property
    def steady(self) -> Cycles:
        """Cycles of frames that follow each other, in the steady state."""
        return self.predict()

    @cached_property
    def frame_cycles(self) -> int:
        """Cycles of a single frame, from its first input transfer to its last output transfer, both included."""
        return self.predict(1).latency + 1

    def predict(self, frames: int | None = None) -> Cycles:
        """Return the cycles of ``frames`` frames that follow each other; by default until the interval is steady."""
        return steady_cycles(self.config) if frames is None else steady_cycles(self.config, frames)

    def traffic_bytes(self, loads: bool) -> dict[str, int]:
        """Return the off-chip bytes of a frame; with ``loads``, every frame loads the weights."""
        return {"feature_maps": self.map_bytes, "weights": self.network.weight_bytes if loads else 0}

    @property
    def slowest(self) -> int:
        """Cycles per frame of the slowest layer."""
        return max(layer.cycles for layer in self.config.layers)

    @property
    def weight_bram36(self) -> float:
        """Number of 36-kbit block RAMs that store weights."""
        return sum(layer.compute.resources.bram36 for layer in self.config.layers)
