"""The fusion plan: which hardware each layer gets, group by group, and what that takes and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.pyramid.layer import PyramidLayerConfig
from hwgen.gateware.pyramid.spans import Axis
from hwgen.network.graph import Conv, Network
from hwgen.network.shapes import of_layer
from hwgen.plan.compose import compose, weight_bits
from hwgen.plan.resources import Resources, component_resources, estimate
from hwgen.plan.tiles import axes, in_tiles
from hwgen.schedule.solve import Cycles, steady_cycles

#: How a group is built: row by row through line buffers, or tile by tile.
TEMPLATES = STREAM, PYRAMID = "stream", "pyramid"


class OverBudgetError(PlanError):
    """A plan that needs more than the board has; ``resource`` says of what, ``needed`` how much."""

    def __init__(self, message: str, resource: str, needed: float):
        super().__init__(message)
        self.resource, self.needed = resource, needed


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """The choices for one layer.

    Parameters
    ----------
    name, kind : str
        As in the network.
    tn, tm, tk, tp : int
        Unroll factors: input channels, output channels, kernel taps and output pixels a cycle.
    chain : int
        DSP slices in a chain at most.
    line_rows : int
        Rows the line buffer holds.
    fifo_depth : int
        Credits of the FIFO behind the layer.
    macs_per_dsp : int
        Multiply-adds of a DSP slice in a cycle, 1 or 2; a pool has none.
    weights_in : str, optional
        Where the weights lie, ``lut`` or ``block`` RAM; by the depth of their memories if not given.
    fifo_lanes : int, optional
        Channels of a beat in that FIFO; as few as the layer finishes in a cycle if not given.
    """

    name: str
    kind: str
    tn: int
    tm: int
    tk: int
    chain: int
    line_rows: int
    fifo_depth: int
    tp: int = 1
    macs_per_dsp: int = 1
    weights_in: str | None = None
    fifo_lanes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How a group is computed pyramid by pyramid.

    Parameters
    ----------
    tile : tuple of int
        Rows and columns of a pyramid's tip, its part of the group's output.
    overlap : str
        What becomes of what neighbouring pyramids share; see `hwgen.plan.tiles`.
    pixels : int
        Neighbouring pixels of a beat of the group's input.
    """

    tile: tuple[int, int]
    overlap: str
    pixels: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Layers that are fused, each with hardware of its own and streams in between.

    Parameters
    ----------
    network : Network
        The group's layers.
    layers : tuple of LayerPlan
        One for each of them, in order.
    tiling : Tiling, optional
        Of a group that is computed pyramid by pyramid; row by row if not given.

    Raises
    ------
    PlanError
        If a layer can't be built.
    ConfigError
        If the choices contradict each other.
    """

    network: Network
    layers: tuple[LayerPlan, ...]
    tiling: Tiling | None = None

    def __post_init__(self) -> None:
        self.config  # noqa: B018 (choices that can't work are refused here)

    @property
    def template(self) -> str:
        return STREAM if self.tiling is None else PYRAMID

    @cached_property
    def tiles(self) -> list[tuple[Axis, Axis]]:
        """Rows and columns of each layer's tiles; none of a group that is computed row by row."""
        if self.tiling is None:
            return []
        return axes([of_layer(layer) for layer in self.network.layers], self.tiling.tile, self.tiling.overlap)

    @cached_property
    def config(self) -> AcceleratorConfig:
        """The hardware."""
        if self.tiling is None:
            return compose(self.network, self.layers)
        return in_tiles(compose(self.network, self.layers, self.tiling.pixels), self.tiles)

    @cached_property
    def map_bytes(self) -> int:
        """Feature maps over the boundary in a frame: input read, halos as often as they are, and output written."""
        source, result = self.network.input, self.network.output
        pixels = source.height * source.width
        if self.tiles:
            rows, columns = self.tiles[0]
            pixels = rows.pixels * columns.pixels
        return source.channels * pixels * source.type.dtype.itemsize + result.values * result.type.dtype.itemsize

    @cached_property
    def resources(self) -> Resources:
        return estimate(self.config)

    @cached_property
    def steady(self) -> Cycles:
        """Cycles when frames follow each other."""
        return steady_cycles(self.config)

    @cached_property
    def frame_cycles(self) -> int:
        """Cycles of one frame alone, from its first input transfer to its last output transfer, both counted."""
        return steady_cycles(self.config, 1).latency + 1

    @property
    def slowest(self) -> int:
        """Cycles a frame of the slowest layer."""
        return max(layer.cycles for layer in self.config.layers)

    @property
    def pyramid_cycles(self) -> int | None:
        """Cycles that a pyramid inside the map takes in the layer that is slowest at it; of pyramids only."""
        if self.tiling is None:
            return None
        layers = [layer for layer in self.config.layers if isinstance(layer, PyramidLayerConfig)]
        return max(layer.pyramid_cycles for layer in layers)

    @property
    def weight_bram36(self) -> float:
        """The part of its block RAM that holds weights."""
        return sum(component_resources(layer.compute).bram36 for layer in self.config.layers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A fusion plan: one group, or several that run one after the other, their maps in off-chip memory.

    Groups that all fit on the chip have hardware of their own each, and are buildable. Others have to take turns on the
    same DSP slices and block RAM: of these the largest group's count, and block RAM for the weights of all; LUTs and
    flip-flops are every group's own. Weights that don't all fit on the chip at once are loaded before each run of their
    group; then the block RAM for them is shared too.

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

    @property
    def obstacle(self) -> str | None:
        """Why the plan can't be built yet; ``None`` if it can."""
        if len(self.groups) == 1 or self._apart is not None:
            return None
        return f"{len(self.groups)} groups that have to share the board, which all together don't fit"

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

    def configs(self) -> list[AcceleratorConfig]:
        """The hardware that the plan describes, group by group.

        Raises
        ------
        PlanError
            If it is not buildable yet.
        """
        if self.obstacle is not None:
            raise PlanError(
                f"plan of {self.network.name} for {self.board.name} is not buildable yet: it has {self.obstacle}; "
                "fewer layers, fewer groups or a larger board might do"
            )
        return [group.config for group in self.groups]

    @cached_property
    def _apart(self) -> Resources | None:
        """What the groups take if each has hardware of its own; ``None`` if the board hasn't got it."""
        used = sum((group.resources for group in self.groups), Resources())
        try:
            check_budget(used, self.board, self.dsp)
        except OverBudgetError:
            return None
        return used

    @cached_property
    def loads_weights(self) -> bool:
        """Whether weights are loaded every frame, because those of all groups don't fit on the chip together."""
        return len(self.groups) > 1 and self._apart is None and self._resident_bram36 > self.board.bram36

    @cached_property
    def _resident_bram36(self) -> float:
        """Block RAM with the weights of all groups and the buffers of the largest."""
        weights = [group.weight_bram36 for group in self.groups]
        return sum(weights) + max(
            group.resources.bram36 - held for group, held in zip(self.groups, weights, strict=True)
        )

    @cached_property
    def resources(self) -> Resources:
        if self._apart is not None:
            return self._apart
        each = [group.resources for group in self.groups]
        largest = max(used.bram36 for used in each)
        return Resources(
            dsp=max(used.dsp for used in each),
            bram36=largest if len(each) == 1 or self.loads_weights else self._resident_bram36,
            lut=sum(used.lut for used in each),
            ff=sum(used.ff for used in each),
        )

    @cached_property
    def cycles(self) -> Cycles:
        """What the exact schedule says; of groups in turn, with transfers at the memory's peak rate."""
        if len(self.groups) == 1:
            return self.groups[0].steady
        runs = [max(group.frame_cycles, self.board.transfer_cycles(group.map_bytes)) for group in self.groups]
        loads = [self.board.transfer_cycles(weight_bytes(group.network)) * self.loads_weights for group in self.groups]
        return Cycles(latency=sum(runs) + sum(loads[1:]) - 1, interval=sum(runs) + sum(loads), steady=True)

    @property
    def latency(self) -> int:
        """Cycles from the first input transfer of one frame to its last output transfer."""
        return self.cycles.latency

    @property
    def interval(self) -> int | None:
        """Cycles between frames that follow each other."""
        return self.cycles.interval

    def predict(self, frames: int) -> Cycles:
        """Cycles of a run of so many frames, back to back, with a memory that never stalls; the interval of a short one
        may not be the steady one."""
        if len(self.groups) == 1:
            return steady_cycles(self.groups[0].config, frames)
        cycles = sum(group.frame_cycles for group in self.groups)
        return Cycles(latency=cycles - 1, interval=cycles if frames >= 3 else None, steady=True)

    @property
    def traffic_bytes(self) -> dict[str, int]:
        """Off-chip traffic of one frame: every group's input and output once, and weights that don't stay on chip."""
        return {
            "feature_maps": sum(group.map_bytes for group in self.groups),
            "weights": sum(weight_bytes(group.network) for group in self.groups) if self.loads_weights else 0,
        }


def finish(network: Network, board: Board, layers: tuple[LayerPlan, ...], dsp: int) -> Plan:
    """A plan of one group with these choices; refused if the board lacks what it needs.

    Raises
    ------
    PlanError
    """
    return Plan(network=network, board=board, groups=(Group(network=network, layers=layers),), dsp=dsp)


def map_bytes(network: Network) -> int:
    """Feature maps over the boundary in a frame: input read and output written, once each."""
    return sum(fm.values * fm.type.dtype.itemsize for fm in (network.input, network.output))


def weight_bytes(network: Network) -> int:
    """All weights once, in whole bytes each."""
    convs = [layer for layer in network.layers if isinstance(layer, Conv)]
    return sum(layer.weights.size * -(-weight_bits(layer) // 8) for layer in convs)


def part(network: Network, begin: int, end: int) -> Network:
    """The layers ``begin`` to ``end`` alone; the network itself if that is all."""
    if (begin, end) == (0, len(network.layers)):
        return network
    layers = network.layers[begin:end]
    return Network(name=f"{network.name}-{layers[0].name}-{layers[-1].name}", layers=layers)


def check_budget(used: Resources, board: Board, dsp: int) -> None:
    """Refuse what the board can't hold.

    Raises
    ------
    OverBudgetError
        Naming the resource that runs out.
    """
    if used.dsp > dsp:
        raise OverBudgetError(
            f"plan needs {used.dsp} DSP slices, but {dsp} may be used on {board.name}: lower the unroll"
            + (" or allow more (dsp)" if dsp < board.dsp else ""),
            "DSP slices",
            used.dsp,
        )
    for name, needed, there in (
        ("BRAM36", used.bram36, board.bram36),
        ("LUTs", used.lut, board.lut),
        ("flip-flops", used.ff, board.ff),
    ):
        if needed > there:
            raise OverBudgetError(
                f"plan needs {needed:,.12g} {name}, but {board.name} ({board.device}) has "
                f"{there:,}: take fewer layers, fewer DSP slices or a larger board",
                name,
                needed,
            )


def with_buffers(layers: Sequence[LayerPlan], rows: Sequence[int], depths: Sequence[int]) -> tuple[LayerPlan, ...]:
    """The same choices with other line buffers and FIFOs."""
    return tuple(
        replace(layer, line_rows=row, fifo_depth=depth) for layer, row, depth in zip(layers, rows, depths, strict=True)
    )
