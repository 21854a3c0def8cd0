"""Base classes of templates (ways to compute a fusion group) and of groups, with the planning task that they share.

A template is a frozen dataclass with its own choices for one group, such as the tile of its pyramids. It searches for
these choices, makes the hardware's configuration from them, and writes and reads its part of ``plan.json``. Callers
use a `Group` or its template, and never test which template it is. A search returns what fits the board, or a `Refusal`
with the reason why nothing does; the caller at the user's request turns it into an exception.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, ParamSpec, TypeVar

from hwgen.boards import Board
from hwgen.devices import Device
from hwgen.errors import PlanError
from hwgen.fields import Entries
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.bus.shell import ends_of
from hwgen.gateware.convolution.parameters import CHAIN
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.multipliers import MULTIPLIERS, Multiplier, multiplier_for, multiplier_of
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.options import AUTO, LUT, Steering
from hwgen.schedule.solve import MAX_FRAMES, Cycles, steady_cycles
from hwgen.templates.factor_paths import Budget
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.two_prices import StagePrices, best_packing, by_prices
from hwgen.templates.unroll import Search, by_cost
from hwgen.templates.work import LayerWork, Unroll, lanes_out

Fit = TypeVar("Fit")
"""Type variable of a search's result if something fits the board: an `Unrolling`, a `Group` or a `Plan`."""

Parameters = ParamSpec("Parameters")


class OverBudgetError(PlanError):
    """Error: a plan needs more of a board's ``resource`` than there is; ``needed`` is the amount."""

    def __init__(self, message: str, resource: str, needed: float):
        super().__init__(message)
        self.resource, self.needed = resource, needed


@dataclass(frozen=True)
class Refusal:
    """Result of a planner's search that finds nothing that fits: the reason, and the board's resource that runs out.

    Parameters
    ----------
    reason : str
        One sentence for people. It names what would fit where that is known.
    resource : str
        Resource of the board that runs out: ``DSP slices``, ``BRAM36``, ``LUTs`` or ``flip-flops``. Empty if the layers
        can't be built with more of any resource either.
    needed : float
        Amount of the resource that would suffice for the attempted plan.
    """

    reason: str
    resource: str = ""
    needed: float = 0

    def __str__(self) -> str:
        return str(self.error)  # the error removes control characters that names can contain

    @property
    def over_budget(self) -> bool:
        """Whether a resource of the board runs out, so that a plan would fit a board with more of it."""
        return bool(self.resource)

    @property
    def error(self) -> PlanError:
        """Exception to raise for this refusal: an `OverBudgetError` if a resource runs out, else a `PlanError`."""
        if self.over_budget:
            return OverBudgetError(self.reason, self.resource, self.needed)
        return PlanError(self.reason)


def fitting(outcome: Fit | Refusal) -> Fit:
    """Return a search's outcome, or raise its refusal's exception.

    Raises
    ------
    PlanError
        If the outcome is a refusal; an `OverBudgetError` names the resource that runs out.
    """
    if isinstance(outcome, Refusal):
        raise outcome.error
    return outcome


def attempt(
    search: Callable[Parameters, Fit | Refusal], *args: Parameters.args, **options: Parameters.kwargs
) -> Fit | Refusal:
    """Return a search's outcome; a `PlanError` that it raises becomes a `Refusal`."""
    try:
        return search(*args, **options)
    except PlanError as error:
        return Refusal(error.args[0])


#: Maximum share of the block RAM that constant weights need if other layers' weights are loaded to UltraRAM.
CONSTANT_SHARE = 0.5


def shortage(used: Resources, board: Board, dsp: int) -> Refusal | None:
    """Return a `Refusal` that names the first resource that exceeds the board's; ``None`` if the board has enough.

    Parameters
    ----------
    dsp : int
        Number of DSP slices that may be used.
    """
    if used.dsp > dsp:
        return Refusal(
            f"plan needs {used.dsp} DSP slices, but {dsp} may be used on {board.name}: lower the unroll"
            + (" or allow more (--dsp)" if dsp < board.dsp else ""),
            "DSP slices",
            used.dsp,
        )
    for name, field, needed in (
        ("BRAM36", "bram36", used.bram36),
        ("UltraRAMs", "uram", used.uram),
        ("LUTs", "lut", used.lut),
        ("flip-flops", "ff", used.ff),
    ):
        if needed > getattr(board, field):
            option = board.limiting_option(field)
            advice = (
                f" or fewer DSP slices, or allow more ({option})" if option else ", fewer DSP slices or a larger board"
            )
            message = f"plan needs {needed:,.12g} {name}, but {board.supply(field)}: take fewer layers{advice}"
            return Refusal(message, name, needed)
    return None


def check_budget(used: Resources, board: Board, dsp: int) -> None:
    """Raise OverBudgetError if a plan's resources exceed the board's, or ``dsp`` DSP slices.

    Raises
    ------
    OverBudgetError
        If a resource runs out; the error names the resource.
    """
    fitting(shortage(used, board, dsp))


def memory_bits(board: Board, loaded: bool = False) -> int:
    """Return the number of bits that a device can store in block RAM and in LUTs used as memory, together.

    If weights are loaded at run time (``loaded``), UltraRAM can store them as well.
    """
    memories = board.family.memories
    return board.bram36 * memories.block_bits + board.lut * memories.lut_bits + loaded * ultra_bits(board)


def ultra_bits(board: Board) -> int:
    """Return the number of bits that a board's UltraRAM can store; 0 without UltraRAM."""
    ultra_ram = board.ultra_ram
    return 0 if ultra_ram is None else board.uram * ultra_ram.bits * ultra_ram.words


def sure_shortage(layers: Sequence[Op], board: Board) -> Refusal | None:
    """Return a `Refusal` if no unroll factors can fit the device (too many weights or LUTs), else ``None``.

    ``None`` if neither shortage is certain.
    """
    loaded = any(layer.loaded for layer in layers)
    return weight_shortage(layer_weight_bits(layers), board, loaded) or _arithmetic_shortage(layers, board)


def layer_weight_bits(layers: Sequence[Op]) -> list[tuple[str, int]]:
    """Return a list of (layer name, total bits of its weights) for the layers with weights."""
    return [(layer.name, layer.weight_count * layer.weight_bits) for layer in layers if layer.weight_count]


def layers_for_ultra_ram(network: Network, board: Board) -> frozenset[str]:
    """Return the names of the layers to load weights for, to UltraRAM: the largest, until the others fit block RAM.

    The weights of the others need at most `CONSTANT_SHARE` of the board's block RAM.
    """
    left, names = CONSTANT_SHARE * board.bram36 * board.family.memories.block_bits, set()
    for name, bits in sorted(layer_weight_bits(network.layers), key=lambda layer: layer[1]):
        left -= bits
        if left < 0:
            names.add(name)
    return frozenset(names)


def weight_shortage(weights: Sequence[tuple[str, int]], board: Board, loaded: bool = False) -> Refusal | None:
    """Return a `Refusal` if the weights of a layer, or of all, exceed the device's memory; else ``None``.

    ``None`` if the device's memory holds all weights.

    Parameters
    ----------
    weights : sequence of (str, int)
        Name and bits of all weights, per layer that has weights.
    loaded : bool
        Whether the weights are loaded at run time, so that UltraRAM can store them as well.
    """
    ultra = loaded * ultra_bits(board) // board.family.memories.block_bits
    supply = board.supply("bram36") + (f", and UltraRAM in place of {ultra:,} more" if ultra else "")
    for group in (*([layer] for layer in weights), weights):
        names, bits = [name for name, _ in group], sum(count for _, count in group)
        needed = -(-bits // board.family.memories.block_bits)
        if bits > memory_bits(board, loaded):
            return Refusal(
                f"{names[0] if len(names) == 1 else f'{names[0]} to {names[-1]}'}: weights need {needed:,} BRAM36, but "
                f"{supply}",
                "BRAM36",
                needed,
            )
    return None


def _arithmetic_shortage(layers: Sequence[Op], board: Board) -> Refusal | None:
    """Return a `Refusal` for the first layer whose arithmetic exceeds the board's LUTs; ``None`` if none does."""
    for layer in layers:
        if (needed := stage_of(layer, board.family).min_luts) > board.lut:
            return Refusal(
                f"{layer.name}: {layer.taps} taps that are added up at once in float32 need {needed:,} LUTs, but "
                f"{board.supply('lut')}: GlobalAveragePool, or an input scale that is a power of two, takes few",
                "LUTs",
                needed,
            )
    return None


#: Candidate prices of a block RAM, in DSP slices, if a search runs out of block RAM.
BRAM_PRICES = (0.25, 1, 4, 16)

#: Price of a DSP slice, in LUTs, in a search for the fewest slices; more LUTs than any device has.
MAX_LUTS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Goal(Steering):
    """Goal of a plan, from the user's options: objective, limits such as DSP slices, and options of templates.

    Parameters
    ----------
    objective : str
        Quantity that the search minimises: ``interval``, ``latency``, ``traffic`` or ``dsp``.
    dsp : int
        Number of DSP slices that may be used.
    interval : int, optional
        Maximum number of cycles between frames, for the objective ``dsp``.
    macs_per_dsp : int or str
        Name of the multiplier of all layers that it can compute; ``auto`` is the best packing of each layer.
    in_luts : frozenset of str
        Names of layers whose requantisers multiply in LUTs instead of DSP slices.
    template : str, optional
        Template of all groups, ``stream`` or ``pyramid``. By default groups are computed row by row if that fits.
    multipliers : str
        Resource that multiplies: ``dsp`` slices, ``lut``, or ``auto`` for both.
    lut : int
        Number of LUTs that may be used if LUTs multiply.
    max_bus_bits : int
        Bits of the widest port to memory that an engine may have unless ``bus_bits`` gives its width.
    """

    objective: str
    dsp: int
    interval: int | None = None
    macs_per_dsp: int | str = 1
    in_luts: frozenset[str] = frozenset()
    template: str | None = None
    multipliers: str = "dsp"
    lut: int = 0
    max_bus_bits: int = 64

    @property
    def needs_luts(self) -> bool:
        """Whether all products must be computed in LUTs, so that no group may compute them in DSP slices."""
        return self.multipliers == LUT

    @property
    def products(self) -> int:
        """Maximum number of multiply-adds per cycle that the limit of DSP slices allows."""
        kinds = MULTIPLIERS.values() if self.macs_per_dsp == AUTO else [multiplier_of(self.macs_per_dsp)]
        return self.dsp * max(multiplier.lanes for multiplier in kinds)


class Task:
    """Planning task of one network: goal, each layer's work and multiplier, and searches that all groups share.

    Parameters
    ----------
    network : Network
    board : Board
    goal : Goal
    in_slices : Task, optional
        Task of the same network whose products are computed in DSP slices only; by default this task.
    """

    def __init__(self, network: Network, board: Board, goal: Goal, in_slices: Task | None = None):
        self.network, self.board, self.goal = network, board, goal
        self._in_slices = in_slices
        copies = {index: copy for index in network.cuts if (copy := network.copy_at(index)) is not None}
        self._stages = {layer.name: stage_of(layer, board.family) for layer in (*network.layers, *copies.values())}
        multiplier_slice = board.family.multiplier_slice
        self.multiplier = None if goal.macs_per_dsp == AUTO else multiplier_for(goal.macs_per_dsp, multiplier_slice)
        """Kind of DSP multiplier that the goal names for all layers; ``None`` if each layer has its best kind."""
        self.multipliers: dict[str, Multiplier] = {
            name: best_packing(stage) if self.multiplier is None else stage.multiplier(self.multiplier)
            for name, stage in self._stages.items()
        }
        """Dictionary by the layer's name: kind of DSP multiplier of each layer.

        Layers that copy a group's input have names of their own.
        """
        self._indices = {layer.name: index for index, layer in enumerate(network.layers)}
        self.works = [self.work(self._stages[layer.name]) for layer in network.layers]
        self._copies = {
            index: LayerWork.of(copy, CHAIN, **self._stages[copy.name].work_fields) for index, copy in copies.items()
        }
        self._weight_bram36: dict[tuple[LayerWork, Unroll], float] = {}
        self._parts: dict[tuple[int, int], Network] = {}

    def part(self, begin: int, end: int) -> Network:
        """Return layers ``begin`` to ``end - 1`` of the network as a `Network` (`Network.part`), from a cache."""
        if (begin, end) not in self._parts:
            self._parts[begin, end] = self.network.part(begin, end)
        return self._parts[begin, end]

    def work(self, stage: Stage[Any]) -> LayerWork:
        """Return a layer's sizes and order of computation (`LayerWork`), from the planner's model of the layer."""
        index = self._indices[stage.op.name]
        return LayerWork.of(
            stage.op,
            stage.longest_chain(self.multipliers[stage.op.name], CHAIN),
            back=tuple(index - self._indices.get(edge, -1) for edge in self.network.edges[index]),
            **stage.work_fields,
        )

    def aiming(self, **changes: Any) -> Task:
        """Return a `Task`: copy of this task whose goal has the values ``changes``, in any fields but ``macs_per_dsp``.

        Both tasks share their data.
        """
        other = copy(self)
        other.goal = replace(self.goal, **changes)
        other._in_slices = None if self._in_slices is None else self._in_slices.aiming(**changes)
        return other

    @property
    def in_slices(self) -> Task:
        """Planning `Task` of the same network for groups that compute all products in DSP slices."""
        return self if self._in_slices is None else self._in_slices

    @cached_property
    def search(self) -> Search:
        """Search for the unroll factors of all layers (`Search`), where cost is the number of DSP slices."""
        return by_cost(self.works, self.slices, self._copies)

    @cached_property
    def two_prices(self) -> Search:
        """Search for the unroll factors of all layers (`Search`), where cost is DSP slices and LUTs."""
        return by_prices(self.works, self.prices, self.budget(self.goal.lut), self._copies)

    @cached_property
    def prices(self) -> StagePrices:
        """Cost model of all layers: DSP slices and LUTs for given unroll factors (`StagePrices`)."""
        return StagePrices(self._stages, self.goal.multipliers, self.multipliers, self.goal.in_luts)

    def budget(self, luts: int) -> Budget:
        """Return a `Budget` for a search of unroll factors: the goal's DSP slices, ``luts`` LUTs, a slice's price.

        With the objective ``dsp`` slices are minimised, and LUTs only among equal numbers of slices.
        """
        first = self.goal.objective == "dsp"
        price = MAX_LUTS if first else self.board.family.multiplier_slice.lut_price
        return Budget(self.goal.dsp, luts, price)

    def slices(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return a layer's DSP slices, requantiser included; an array if unroll factors are arrays.

        The number is an upper bound: some lanes of a requantiser can need fewer slices than its most expensive channel.
        """
        multipliers = work.multipliers(unroll, self.multipliers[work.name])
        return multipliers + unroll.tp * self.finish_slices(work, unroll) * lanes_out(work, unroll)

    def finish_slices(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the DSP slices per lane (channel per cycle) of a layer's requantiser; unroll factors can be arrays.

        The width of the sums depends on the multiplier, and so do the requantiser's slices.
        """
        return self.prices.finish_slices(work, unroll, self.multipliers[work.name])

    def bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the number of 36-kbit block RAMs that store a layer's weights; unroll factors can be arrays."""
        return self._stages[work.name].weight_bram36(work, unroll)

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> float:
        """Return the number of 36-kbit block RAMs that store a layer's weights, from a cache after the first call."""
        key = work, unroll
        if key not in self._weight_bram36:
            self._weight_bram36[key] = float(self.bram36(work, unroll))
        return self._weight_bram36[key]

    @cached_property
    def priced(self) -> list[Search]:
        """List of a `Search` for layers' unroll factors per price in `BRAM_PRICES`; cost includes block RAM."""
        return self.price(self.works, self._copies)

    def price(self, works: Sequence[LayerWork], copies: Mapping[int, LayerWork] | None = None) -> list[Search]:
        """Return a list of searches for unroll factors by DSP slices plus block RAM, one per price in `BRAM_PRICES`.

        Parameters
        ----------
        works : sequence of LayerWork
        copies : mapping of int to LayerWork, optional
            Layers that stand for the previous layer at the front of a part (see `Search`).
        """

        def search(price: float) -> Search:
            return by_cost(works, lambda *choice: self.slices(*choice) + price * self.bram36(*choice), copies)

        return [search(price) for price in BRAM_PRICES]


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
            If a layer, tile or schedule is refused (see `hwgen.templates.base.attempt`).
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
        """Store computed cycles: a single frame's latency and, unless ``None``, the `Cycles` of successive frames."""
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
