"""Base class of templates (ways to compute a fusion group), and the fusion group, whose hardware a template configures.

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
from hwgen.devices import Device
from hwgen.fields import Entries
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.bus.shell import ends_of
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.schedule.solve import MAX_FRAMES, Cycles, steady_cycles
from hwgen.templates.layers import LayerPlan
from hwgen.templates.refusal import Refusal
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.task import Task


class Template(ABC):
    """Base class of templates: ways to compute a fusion group, that is, layers that are computed together.

    An instance has the choices for one group, and configures the group's hardware.
    """

    name: ClassVar[str]
    """Name of the template in plans, options and messages, such as ``stream`` or ``pyramid``."""
    holds_weights: ClassVar[bool] = True
    """Whether the chip stores all weights of a fusion group while the group runs."""
    multiplies_in_luts: ClassVar[bool] = False
    """Whether the template's hardware may compute products in LUTs as well as in DSP slices."""

    @classmethod
    @abstractmethod
    def search(cls, task: Task, begin: int, end: int, in_turn: bool) -> Group | Refusal:
        """Return the best fusion `Group` (by the plan's objective) of layers ``begin`` to ``end - 1``, or a `Refusal`.

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
    def read(cls, group: Entries, network: Network, layers: Sequence[LayerPlan]) -> Template:
        """Return the `Template` with its choices for one group, such as the tile size, from an entry in ``plan.json``.

        Raises
        ------
        PlanError
            If a choice is missing or out of range.
        """

    @abstractmethod
    def write(self, config: AcceleratorConfig) -> dict[str, Any]:
        """Return the template's choices, such as the tile size, as a dict of fields for a group in ``plan.json``."""

    @abstractmethod
    def configure(self, network: Network, layers: Sequence[LayerPlan], device: Device) -> AcceleratorConfig:
        """Return the `AcceleratorConfig` of a fusion group, from its network, the layers' choices and the device.

        Raises
        ------
        PlanError
            If a layer can't be built.
        ConfigError
            If the choices contradict each other.
        """

    @classmethod
    def stage(cls, op: Op, device: Device) -> Stage[Any]:
        """Return the planner's model of a layer (`Stage`), which configures and prices its hardware.

        Raises
        ------
        PlanError
            If the template has no hardware for the layer's kind.
        """
        return stage_of(op, device)

    def input_pixels(self, network: Network) -> tuple[int, ...]:
        """Return a tuple: pixels fetched per frame of each input map of a fusion group, with repeated fetches."""
        return tuple(source.height * source.width for source in network.input_maps)

    def summary(self, group: Group) -> list[str]:
        """Return a list of text lines on a fusion group, printed below the plan's table; by default empty."""
        return []

    def is_moot(self, network: Network, option: str) -> bool:
        """Return whether a template's option, such as ``overlap``, makes no difference for a fusion group."""
        return False

    exclusive_phrase: ClassVar[str] = ""
    """Phrase for messages, such as ``on an engine``, if a plan can't combine this template's groups with others;
    else empty."""

    # A template overrides the following members if its groups are not layers with streams between them.

    streams: ClassVar[bool] = True
    """Whether each layer of a fusion group has hardware of its own, with streams between layers.

    Only then a `Group` has a configuration.
    """

    def rows(self, group: Group) -> list[tuple[str, ...]] | None:
        """Return a list of a group's rows (tuples of texts) in the plan's table; ``None`` for rows of streamed layers.

        A row has a layer's name, kind and output, and then this template's columns, whose titles are in
        `hwgen.report.legend`. The default columns, for layers with streams, are unroll factors, line buffers and FIFOs.
        """
        return None

    def document(self, group: Group) -> dict[str, Any] | None:
        """Return a group's ``plan.json`` entry (a dict) without ``template``; ``None`` for the default entry.

        The default entry, for layers with streams, has the group's layers, its FIFOs, and the fields of `write`.
        """
        return None

    @classmethod
    def group(cls, group: Entries, network: Network, board: Board) -> Group | None:
        """Return a `Group` read from its ``plan.json`` entry as `document` writes it; ``None`` for default entries.

        Raises
        ------
        PlanError
            If a field is missing or out of range.
        """
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Fusion group: layers computed together in hardware, with the plan's choices for each layer.

    Parameters
    ----------
    network : Network
        Network of the group's layers.
    layers : tuple of LayerPlan
        Choices for each layer, in the network's order.
    template : Template
    device : Device
        Device family that the hardware is for.

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
    device: Device

    def __post_init__(self) -> None:
        self.config  # noqa: B018 (refuses choices that can't work)

    @cached_property
    def config(self) -> AcceleratorConfig:
        """Accelerator configuration (`AcceleratorConfig`) of the fusion group's hardware."""
        return self.template.configure(self.network, self.layers, self.device)

    @property
    def circuit(self) -> Any:
        """Circuit to synthesise: the group's `AcceleratorConfig`, or an engine's `EngineDesign`."""
        return self.config

    @property
    def engine(self) -> EngineConfig | None:
        """`EngineConfig` of the engine whose program computes the group; ``None`` if layers have their own circuits."""
        return None

    @cached_property
    def map_bytes(self) -> int:
        """Bytes of feature maps moved off chip per frame: inputs read, repeated halos included, and outputs written."""
        pixels = zip(self.network.input_maps, self.template.input_pixels(self.network), strict=True)
        read = sum(source.channels * count * source.type.dtype.itemsize for source, count in pixels)
        return read + sum(output.values * output.type.dtype.itemsize for output in self.network.output_maps)

    @cached_property
    def resources(self) -> Resources:
        """Estimated `Resources` (DSP slices, block RAMs, LUTs, flip-flops) of the fusion group on the device."""
        return self.config.resources

    @cached_property
    def steady(self) -> Cycles:
        """Latency of a frame and interval between frames, in cycles (`Cycles`), for successive frames."""
        return self.predict()

    @cached_property
    def frame_cycles(self) -> int:
        """Cycles of a single frame, from its first input transfer to its last output transfer, both included."""
        return self.predict(1).latency + 1

    def set_cycles(self, latency: int, steady: Cycles | None) -> None:
        """Set the cycles that are already computed: a frame's latency and, unless ``None``, the steady interval."""
        self.__dict__["frame_cycles"] = latency + 1
        if steady is not None:
            self.__dict__["steady"] = steady

    def copy_cycles(self, other: Group) -> None:
        """Copy latency and interval, if computed already, from another group with the same schedule."""
        self.__dict__.update(
            {name: other.__dict__[name] for name in ("frame_cycles", "steady") if name in other.__dict__}
        )

    def predict(self, frames: int | None = None) -> Cycles:
        """Return `Cycles`: latency and interval, in cycles, of ``frames`` frames in a row, by default until steady."""
        if frames is not None and frames >= MAX_FRAMES:  # a schedule has no more, and `steady` may be known
            return self.steady
        return steady_cycles(self.config, frames)

    def traffic_bytes(self, loads: bool) -> dict[str, int]:
        """Return the bytes moved off chip per frame, as a dict with the keys ``feature_maps`` and ``weights``.

        The weights have bytes if every frame loads them (``loads``).
        """
        return {"feature_maps": self.map_bytes, "weights": self.network.weight_bytes if loads else 0}

    @cached_property
    def bus_words(self) -> int:
        """Number of words per frame on the bus wrapper's AXI4-Stream with the most words; it moves one word per cycle.

        It is 0 for a group whose predicted cycles contain its bus.
        """
        ends = (*ends_of(self.config.input_ports, "s_axis"), *ends_of(self.config.output_ports, "m_axis"))
        return max(end.words.count for end in ends)

    @property
    def slowest_cycles(self) -> int:
        """Cycles per frame of the fusion group's slowest layer."""
        return max(layer.cycles for layer in self.config.layers)

    @property
    def weight_bram36(self) -> float:
        """Number of 36-kbit block RAMs, a multiple of 0.5, that store the fusion group's weights."""
        return sum(layer.compute.resources.bram36 for layer in self.config.layers)
