"""Engine template: one circuit computes a network layer by layer, tile by tile, from off-chip memory (Peemen, Cecconi).

A program controls the circuit. `hwgen.program` cuts the layers into tiles and writes the program;
`hwgen.schedule.engine` predicts its cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

from hwgen.boards import Board
from hwgen.devices import Device
from hwgen.errors import ConfigError, ModelError, PlanError
from hwgen.fields import Entries, shown, written
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.bus.memory_ports import MemoryPortsConfig, ports_resources
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig, Variant
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES, EngineDesign
from hwgen.gateware.engine.port import PACE_BITS
from hwgen.gateware.multipliers.packed_dsp import PackedDspSlice
from hwgen.network.graph import Network
from hwgen.options import AUTO, ENGINE, OFF, flag
from hwgen.program.array_pass import Pass
from hwgen.program.batch import check_frames
from hwgen.program.compile import ProgramSchedule, in_order, passes_of, schedule
from hwgen.program.figures import Band, Figures, bands, figures, maps_read
from hwgen.program.groups import Choices
from hwgen.program.maps import KeptAt
from hwgen.program.tiles import Tiling
from hwgen.schedule.engine import EngineCycles, EngineSchedule, MemoryTiming
from hwgen.schedule.solve import Cycles
from hwgen.templates import engine_search, interim
from hwgen.templates.base import Goal, Group, Refusal, Task, Template
from hwgen.templates.engine_search import SEARCHED, FasterEngine, engines, faster_engine, kind, refusal_of, sizes_text
from hwgen.templates.layers import LayerPlan, check_output, layer_entries

#: Maximum number of engines, the best by estimate, that a search compiles the network for.
NUM_COMPILED = 12
#: Number of jobs of compiled programs that ends a search, so that a plan does not take minutes. Jobs of programs for
#: one core count `ONE_CORE_WORK` times, as the compiler measures more tilings for them.
MAX_WORK, ONE_CORE_WORK = 20_000, 5
#: Work (as `MAX_WORK`) below which engines are also compiled that look worse by estimate, and the factor on their
#: estimated cycles in that comparison.
SMALL_WORK, MARGIN = 2_000, 0.9
#: Dictionary by variant of an engine: smallest ratio of exact cycles to estimated ones that is expected.
MIN_ERRORS = {Variant.ONE_CORE: 0.87, Variant.CORES: 0.95, Variant.MAP_MEMORY: 0.95}
#: Maximum ratio of exact cycles to estimated ones of a compiled engine that is also expected of others of its kind.
MAX_ERROR = 1.1
#: Names of the fields of an `EngineConfig` that are depths of buffers.
BUFFERS = tuple(field.name for field in fields(EngineConfig) if field.name.endswith(("_words", "_steps", "slots")))
#: Loop order that keeps a box of input pixels on chip for all folds of output channels; outermost loop first.
MAPS_STAY = ("box", "fold", "tile", "chunk")
#: Loop order that keeps the weights of a fold of output channels on chip for the whole map; outermost loop first.
WEIGHTS_STAY = ("fold", "box", "tile", "chunk")


@dataclass(frozen=True, kw_only=True)
class EngineTemplate(Template):
    """Template of a group of layers that an engine computes: one array of MACs for all layers, run by a program.

    Parameters
    ----------
    engine : EngineConfig
    memory : MemoryTiming
        Timing of off-chip memory that the group is planned for.
    batch : int
        Number of frames that one run computes.
    """

    engine: EngineConfig
    memory: MemoryTiming
    batch: int = 1

    name = ENGINE
    holds_weights = False
    streams = False
    exclusive_phrase = "on an engine"

    @classmethod
    def search(cls, task: Task, begin: int, end: int, in_turn: bool) -> Group | Refusal:
        network = task.part(begin, end)
        if narrow := narrow_slices(task.board):
            return narrow
        engine = _first_engine(task)
        if isinstance(engine, Refusal):
            return engine
        if len(_fixed_sizes(task.goal)) == len(SEARCHED):
            return cls._compile_for(engine, task, network)
        return cls._best_group(task, network, engine)

    @classmethod
    def _compile_for(cls, engine: EngineConfig, task: Task, network: Network) -> EngineGroup:
        """Return an `EngineGroup`: a network compiled for an engine with a task's options, and its schedule."""
        template = cls(engine=engine, memory=pace_of(task.board, engine), batch=task.goal.batch or 1)
        made = template._compile(network, **kept_options(task.goal.fuse))
        layers = _layers(network, engine)
        group = EngineGroup(
            network=network, layers=layers, template=template, device=task.board.family, schedule=made, task=task
        )
        interim.offer(task, group)
        return group

    @classmethod
    def _best_group(cls, task: Task, network: Network, first: EngineConfig) -> EngineGroup:
        """Return the `EngineGroup` with the best exact schedule (goal's objective) among engines best by estimate.

        Engines follow each other by estimate, the best first, while their estimates, corrected by the error of the
        estimate for a compiled engine of their kind, are better, and until `NUM_COMPILED` programs, or `MAX_WORK`, are
        made. After that, only the best engines of other kinds follow, if their estimates are better uncorrected. While
        the work is small, engines that are somewhat worse by estimate follow as well.

        Raises
        ------
        PlanError
            If no engine can compute a layer, or holds a tile of it.
        """
        compiled: list[EngineGroup] = []
        errors: dict[tuple[int, int], float] = {}
        for option in engine_search.candidates(task, passes_of(network), first, _beat_cycles(task.board)):
            work = sum(map(_compile_work, compiled))
            if len(compiled) == NUM_COMPILED or (work > MAX_WORK and kind(option.engine) in errors):
                break
            margin = MARGIN if work < SMALL_WORK else 1
            engine = option.engine
            error = errors.get(kind(engine), MIN_ERRORS[engine.variant] if work <= MAX_WORK else 1)
            if compiled and option.sort_key(task.goal, margin * error) >= min(map(_sort_key, compiled)):
                continue
            with suppress(PlanError):  # the buffers hold no tile of a layer
                group = cls._compile_for(engine, task, network)
                compiled.append(group)
                errors.setdefault(kind(engine), min(group.frame_cycles / option.estimate.cycles, MAX_ERROR))
        return min(compiled, key=_sort_key) if compiled else cls._compile_for(first, task, network)

    def grouped(self, network: Network, choices: Choices | None = None, **options: Any) -> EngineGroup:
        """Return an `EngineGroup`: a network compiled for this engine, as a group with the program's schedule.

        Parameters
        ----------
        network : Network
        choices : Choices, optional
            Tilings of all layers; by default the compiler searches for them.
        options : Any
            Other arguments of `hwgen.program.compile.schedule`.

        Raises
        ------
        PlanError
            If the engine can't compute a layer, or its buffers are too small for the layer.
        """
        made = self._compile(network, choices=choices, **options)
        layers, device = _layers(network, self.engine), self.engine.device
        return EngineGroup(network=network, layers=layers, template=self, device=device, schedule=made)

    def _compile(self, network: Network, **options: Any) -> ProgramSchedule:
        """Return the `ProgramSchedule` of a network on this engine; ``options`` go to the compiler."""
        try:
            return schedule(network, self.engine, pace=self.memory.beat_cycles, frames=self.batch, **options)
        except ModelError as error:
            raise PlanError(str(error)) from None

    def rows(self, group: Group) -> list[tuple[str, ...]]:
        of, rows = engine_group(group), []
        beside = {name: names for names in of.schedule.choices for name in names}
        cycles = macs = 0
        for layer_figures in of.figures:
            name = layer_figures.layer.name
            cycles, macs = cycles + layer_figures.cycles, macs + layer_figures.layer.macs
            ends = name in beside and name == [*beside[name]][-1]
            rows.append((*self._layer_cells(layer_figures), *(self._rate_cells(macs, cycles) if ends else ("", ""))))
            if ends:
                cycles = macs = 0
        return rows

    def _rate_cells(self, macs: int, cycles: int) -> tuple[str, str]:
        """Return a pair of table cells (texts): multiply-adds per cycle, and their share of the array's maximum."""
        rate = macs / max(cycles, 1)
        return f"{rate:,.1f}", f"{rate / self.engine.multipliers:.0%}"

    def _layer_cells(self, figures: Figures) -> tuple[str, ...]:
        """Return a tuple of a layer's cells (texts) in the plan's table, except those concurrent layers share."""
        layer = figures.layer
        columns = (layer.name, layer.kind, "x".join(map(str, layer.output.shape)))
        if not figures.tilings:
            where = f"with {figures.computed_with}" if figures.computed_with else "in place"
            return (*columns, where, *("",) * 5)
        tiles = " ".join(dict.fromkeys(f"{tiling.rows}x{tiling.columns}" for tiling in figures.tilings))
        orders = " ".join(dict.fromkeys(" ".join(loop_order(tiling)[:2]) for tiling in figures.tilings))
        counts = (figures.steps, figures.read, figures.written, figures.cycles)
        return (*columns, tiles, orders, *(f"{count:,}" for count in counts))

    def document(self, group: Group) -> dict[str, Any]:
        of = engine_group(group)
        return {
            **self.write(),
            **({"batch": self.batch, "cycles": {"run": of.cycles, "frame": of.frame_cycles}} if self.batch > 1 else {}),
            "layers": [_layer_entry(layer_figures) for layer_figures in of.figures],
            "side_by_side": [list(names) for names in of.schedule.choices if len(names) > 1],
            **(
                {"kept_maps": {name: list(place) for name, place in of.schedule.kept_maps.items()}}
                if self.engine.has_map_memory
                else {}
            ),
        }

    def write(self, config: object = None) -> dict[str, Any]:
        sizes = written(self.engine)
        buffers = {name: sizes.pop(name) for name in BUFFERS if name in sizes}
        return {"engine": {**sizes, "buffers": buffers}, "memory": written(self.memory)}

    @classmethod
    def read(cls, group: Entries, network: Network, layers: Sequence[LayerPlan]) -> EngineTemplate:
        described = group.entries("engine", where="plan engine")
        buffers = described.entries("buffers", where="plan engine")
        sizes = {key: value for key, value in described.values.items() if key != "buffers"}
        engine = replace(described, values={**sizes, **buffers.values}).exact(EngineConfig)
        memory = group.entries("memory", {}, where="plan memory").exact(MemoryTiming)
        batch = group.integer("batch", default=1)
        check_batch(batch)
        return cls(engine=engine, memory=memory, batch=batch)

    @classmethod
    def group(cls, group: Entries, network: Network, board: Board) -> Group:
        if narrow := narrow_slices(board):
            raise narrow.error
        read = cls.read(group, network, ())
        template = replace(read, engine=replace(read.engine, device=board.family))
        order = in_order(network, template.engine, template.memory.beat_cycles, template.batch)
        choices, kept_maps = _choices(group, network, order), _kept_maps(group, template.engine)
        try:
            return template.grouped(network, choices, kept_maps=kept_maps)
        except PlanError as error:
            raise PlanError(f"plan: {error}") from None

    def timing(self, board: Board, latency: int | None = None, bandwidth: float | None = None) -> MemoryTiming:
        """Return the timing (`MemoryTiming`) of off-chip memory: the plan's, or with another latency or bandwidth.

        Parameters
        ----------
        latency : int, optional
            Cycles from a read to its first word.
        bandwidth : float, optional
            Bandwidth of the memory, in GB/s at the board's clock.

        Raises
        ------
        PlanError
            If the memory is too slow for the engine.
        """
        memory = self.memory if latency is None else replace(self.memory, latency=latency)
        if bandwidth is None:
            return memory
        pace = pace_of(replace(board, memory_gb_s=bandwidth), self.engine)
        return replace(memory, pace=pace.pace, pace_beats=pace.pace_beats)

    def configure(self, network: Network, layers: Sequence[LayerPlan], device: Device) -> AcceleratorConfig:
        raise PlanError(f"{network.name} is computed by an engine, not by an accelerator of its layers")

    def summary(self, group: Group) -> list[str]:
        of, engine, memory = engine_group(group), self.engine, self.memory
        macs = self.batch * sum(layer.macs for layer in of.network.layers) / of.cycles
        read, written = (-(-count // self.batch) for count in of.run_bytes)
        lines = [
            f"engine of {sizes_text(engine)}: "
            f"{macs:,.1f} of {engine.multipliers} MACs per cycle ({macs / engine.multipliers:.0%})",
            f"memory: {engine.bus_bytes / float(memory.beat_cycles):.4g} bytes per cycle, "
            f"{f'at most {engine.bus_bytes} per cycle each for reads and writes, ' if memory.is_simultaneous else ''}"
            f"{f'{self.engine.ports} ports of {8 * self.engine.port_bytes} bits, ' if self.engine.ports > 1 else ''}"
            f"read latency {memory.latency} cycles; {read:,} bytes read and {written:,} written per frame",
        ]
        lines += _divisions(of.schedule) + _map_memory_line(of) + _faster_engine(of)
        if self.batch > 1 and engine.has_cores:
            lines.append(
                f"the table is for one run: {self.batch} frames in {of.cycles:,} cycles; "
                f"{of.traffic_bytes(False)['weights']:,} bytes of weights per frame"
            )
        elif self.batch > 1:
            once = [layer.name for layer in of.network.layers if layer.name in of.schedule.batch.layers]
            lines.append(
                f"the table is for one run: {self.batch} frames in {of.cycles:,} cycles; "
                f"{of.traffic_bytes(False)['weights']:,} bytes of weights per frame; weights read once per run: "
                f"{', '.join(once) or 'no layer'}"
            )
        for names in of.schedule.choices:
            if len(names) > 1:
                lines.append(f"computed concurrently: {', '.join(names)}")
        return lines


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineGroup(Group):
    """Group of layers that an engine computes, with the exact schedule of the engine's program.

    Runs follow each other, and the cycles of a run last from ``start`` to ``done``. Latency and interval are therefore
    equal if a run computes one frame. If it computes several, the interval is one frame's share of the run.
    """

    template: EngineTemplate
    schedule: ProgramSchedule
    task: Task | None = None
    """Planning `Task` that the engine was chosen for; ``None`` if the user gave the engine."""

    def __post_init__(self) -> None:
        self.run  # noqa: B018 (jobs that wait for each other are refused here)

    @cached_property
    def config(self) -> AcceleratorConfig:
        return self.template.configure(self.network, self.layers, self.device)

    @property
    def passes(self) -> list[Pass]:
        """List of each `Pass` (run of a layer, or part of it, through the array) that computes the network, in turn."""
        return [tiled_pass.task for tiled_pass in self.schedule.tiled_passes]

    @cached_property
    def faster_engine(self) -> FasterEngine | None:
        """`FasterEngine` of other sizes that fits and is clearly faster; ``None`` if none, or no size was given."""
        if self.task is None or not _fixed_sizes(self.task.goal):
            return None
        freed = self.task.aiming(**dict.fromkeys(_fixed_sizes(self.task.goal)))
        return faster_engine(freed, self.engine, self.passes, _beat_cycles(freed.board))

    @cached_property
    def run(self) -> EngineCycles:
        """Cycles (`EngineCycles`) and bytes of each job (descriptor) in one run of the engine's program."""
        return EngineSchedule(self.template.engine, self.schedule.jobs, self.template.memory).run()

    @cached_property
    def figures(self) -> tuple[Figures, ...]:
        """Tuple of each layer's `Figures` in one run, in order: cycles, array steps (busy cycles) and bytes."""
        return figures(self.schedule, self.run)

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """Tuple of a `Band` per row of the report's timeline (array, memory port, each layer): cycles by state."""
        return bands(self.schedule, self.run)

    @property
    def cycles(self) -> int:
        """Number of cycles of one run of the engine's program, from ``start`` to ``done``."""
        return START_CYCLES + self.run.cycles + DONE_CYCLES

    @property
    def run_bytes(self) -> tuple[int, int]:
        """Pair: bytes that one run of the program reads from memory (jobs included), and bytes that it writes."""
        return int(self.run.read.sum()) + self.run.fetched, int(self.run.written.sum())

    @property
    def kept_bytes(self) -> int:
        """Bytes of feature maps that one frame reads from and writes to the engine's on-chip map memory."""
        return self._per_frame(int(self.run.read_kept.sum() + self.run.written_kept.sum()))

    @property
    def map_bytes(self) -> int:
        """Bytes of feature maps that one frame reads from and writes to off-chip memory."""
        return self._per_frame(self._run_map_bytes)

    @cached_property
    def _run_map_bytes(self) -> int:
        return int(maps_read(self.schedule).sum()) + self.run_bytes[1]

    def traffic_bytes(self, loads: bool) -> dict[str, int]:
        maps, jobs = self._run_map_bytes, self.run.fetched
        of_run = {"feature_maps": maps, "weights": sum(self.run_bytes) - maps - jobs, "jobs": jobs}
        return {name: self._per_frame(count) for name, count in of_run.items()}

    def _per_frame(self, of_run: int) -> int:
        """Return one frame's share of a run's cycles or bytes, rounded up."""
        return -(-of_run // self.template.batch)

    @property
    def design(self) -> EngineDesign:
        """Configuration (`EngineDesign`) of the engine's circuit."""
        return EngineDesign(engine=self.template.engine)

    @property
    def circuit(self) -> EngineDesign:
        return self.design

    @property
    def engine(self) -> EngineConfig:
        return self.template.engine

    @cached_property
    def resources(self) -> Resources:
        return self.design.resources + ports_resources(self.engine)

    def predict(self, frames: int | None = None) -> Cycles:
        return Cycles(latency=self.cycles, interval=self.frame_cycles, steady=True)

    @cached_property
    def frame_cycles(self) -> int:
        return self._per_frame(self.cycles)

    @property
    def weight_bram36(self) -> float:
        return 0.0

    @property
    def bus_words(self) -> int:
        return 0


def engine_group(group: Group) -> EngineGroup:
    """Return ``group``, narrowed to the type `EngineGroup`, which it must have."""
    assert isinstance(group, EngineGroup)
    return group


def _divisions(schedule: ProgramSchedule) -> list[str]:
    """Return a list of text lines, one per way to divide layers among the engine's cores, with layer names."""
    names: dict[str, list[str]] = {}
    for tiled_pass in schedule.tiled_passes:
        layers = names.setdefault(tiled_pass.task.split.text or "one core", [])
        if tiled_pass.task.name not in layers:
            layers.append(tiled_pass.task.name)
    return [f"cores divide {text}: {', '.join(layers)}" for text, layers in names.items()] * schedule.engine.has_cores


def kept_options(fuse: str | None) -> dict[str, Any]:
    """Return, as a dictionary, keyword arguments of `EngineTemplate.grouped` for a value of the option ``fuse``."""
    return {"keep": ()} if fuse == OFF else {}


def _faster_engine(group: EngineGroup) -> list[str]:
    """Return a line of text about a faster engine than the user's, in a list; empty if no such engine is known."""
    other = group.faster_engine
    if other is None:
        return []
    assert group.task is not None
    flags = " and ".join(map(flag, _fixed_sizes(group.task.goal)))
    return [
        f"an engine of {sizes_text(other.engine)} also fits and is estimated to take {other.gain:.0%} fewer cycles; "
        f"leave out {flags} to let the search choose"
    ]


def _fixed_sizes(goal: Goal) -> list[str]:
    """Return a list of names of options in a goal that fix an engine's size (cores, array, bus width)."""
    return [name for name in SEARCHED if getattr(goal, name) not in (None, AUTO)]


def _first_engine(task: Task) -> EngineConfig | Refusal:
    """Return the first `EngineConfig`, in the order of `engines`, that fits a task's board, or a `Refusal`."""
    refusal = engine = None
    try:
        for engine in engines(task):
            refusal = refusal_of(task, engine)
            if refusal is None:
                return engine
    except ConfigError as error:
        return Refusal(str(error))
    assert engine is not None
    return Refusal(f"no engine fits, the last that was tried is {sizes_text(engine)}: {refusal}")


def estimated_cycles(task: Task) -> float:
    """Return a quick estimate of the cycles per frame on the fastest engine with 8 requantisers that fits a task.

    Raises
    ------
    PlanError
        If no engine can compute the network, or none fits the board.
    """
    if narrow := narrow_slices(task.board):
        raise narrow.error
    found = engine_search.estimated(task.aiming(requantisers=LANES), passes_of(task.network), _beat_cycles(task.board))
    if not found:
        raise PlanError(f"no engine fits {task.board.name}")
    return min(option.estimate.cycles for option in found)


def _compile_work(group: EngineGroup) -> int:
    """Return the work of compiling a group's program: its number of jobs, times `ONE_CORE_WORK` for one core."""
    return len(group.schedule.jobs) * (1 if group.engine.has_cores else ONE_CORE_WORK)


def _sort_key(group: EngineGroup) -> tuple[float, ...]:
    """Return a tuple of numbers that sorts compiled groups by their task's goal, the best first."""
    assert group.task is not None
    moved = sum(group.traffic_bytes(False).values())
    return engine_search.sort_key(group.task.goal, group.engine, group.frame_cycles, moved)


def _beat_cycles(board: Board) -> Callable[[EngineConfig], Fraction]:
    """Return a function from an engine to the cycles per beat of its port, given the bandwidth of a board's memory."""
    return lambda engine: pace_of(board, engine).beat_cycles


def _map_memory_line(group: EngineGroup) -> list[str]:
    """Return a line of text about the map memory (size, maps kept, bytes saved) in a list; empty if there is none."""
    engine, names = group.template.engine, [*group.schedule.kept_maps]
    if not engine.has_map_memory:
        return []
    moved = group.kept_bytes
    kept = f"{', '.join(names)}; it saves {moved:,} bytes of off-chip traffic per frame" if names else "nothing"
    where = " in UltraRAM" if engine.kept_ram == "ultra" else ""
    return [f"map memory of {engine.kept_words * LANES // 1024} KiB{where} keeps {kept}"]


def check_batch(frames: object) -> None:
    """Raise PlanError unless ``frames`` is a permitted number of frames per run of an engine program.

    Raises
    ------
    PlanError
        If it is not an integer, or out of range.
    """
    check_frames(frames)


def pace_of(board: Board, engine: EngineConfig) -> MemoryTiming:
    """Return an engine's `MemoryTiming`: cycles per beat (a fraction) at the bandwidth of the board's memory.

    The pace is the smallest fraction of two numbers of the port that is not faster than the memory. Below 1, reads and
    writes are moved at the same time. It is at least a half: a beat per cycle each.

    Raises
    ------
    PlanError
        If the memory is too slow for the engine.
    """
    cycles = engine.bus_bytes * board.clock_mhz / (1000 * board.memory_gb_s)
    max_pace = (1 << PACE_BITS) - 1
    slower = (Fraction(ceil(cycles * beats - 1e-9), beats) for beats in range(1, max_pace + 1))
    pace = min((fraction for fraction in slower if fraction.numerator <= max_pace), default=None)
    if pace is None:
        raise PlanError(
            f"bandwidth must be {engine.bus_bytes * board.clock_mhz / (1000 * max_pace):.3g} GB/s at least, "
            f"{engine.bus_bytes} bytes in {max_pace} cycles, not {board.memory_gb_s:g}"
        )
    timing = MemoryTiming.at(max(pace, Fraction(1, 2)))
    if engine.ports == 1:
        return timing
    ports = MemoryPortsConfig(engine=engine)
    return replace(
        timing, latency=timing.latency + ports.read_cycles, write_latency=timing.write_latency + ports.write_cycles
    )


def loop_order(tiling: Tiling) -> tuple[str, ...]:
    """Return a tuple of names of a tiling's loops (``box``, ``fold``, ``tile``, ``chunk``), outermost loop first."""
    return MAPS_STAY if tiling.maps_stay else WEIGHTS_STAY


def _layers(network: Network, engine: EngineConfig) -> tuple[LayerPlan, ...]:
    """Return a tuple of each layer's `LayerPlan` on an engine, with the array's size as its unroll factors."""
    return tuple(
        LayerPlan(
            name=layer.name,
            kind=layer.kind,
            tn=CHAIN,
            tm=engine.maps,
            tk=1,
            tp=engine.pixels,
            chain=CHAIN,
            line_rows=0,
            fifo_depths=(),
            macs_per_dsp=2,
        )
        for layer in network.layers
    )


# plan.json


def _layer_entry(figures: Figures) -> dict[str, Any]:
    """Return a layer's ``plan.json`` entry (a dict) for an engine: tilings, cycles, array steps and bytes."""
    layer, tilings = figures.layer, list(dict.fromkeys(figures.tilings))
    entry: dict[str, Any] = {"name": layer.name, "kind": layer.kind, "output": list(layer.output.shape)}
    if not tilings:
        entry |= {"tile": None, "order": None, "computed_with": figures.computed_with or None}
    elif len(tilings) == 1:
        entry |= _tiling_entry(tilings[0])
    else:
        entry["passes"] = [_tiling_entry(tiling) for tiling in figures.tilings]
    return entry | {
        "cycles": figures.cycles,
        "steps": figures.steps,
        "read_bytes": figures.read,
        "written_bytes": figures.written,
    }


def _tiling_entry(tiling: Tiling) -> dict[str, Any]:
    return {
        "tile": [tiling.rows, tiling.columns],
        "box_rows": tiling.box_rows,
        "chunk": [tiling.channels, tiling.taps],
        "order": list(loop_order(tiling)),
        **{
            part.name: value
            for part in fields(Tiling)
            if part.default not in (MISSING, value := getattr(tiling, part.name))
        },
    }


def _choices(group: Entries, network: Network, order: Sequence[str]) -> Choices:
    """Return a list, by set of concurrent layers, of dicts from layer name to tilings, read from ``plan.json``.

    Parameters
    ----------
    order : sequence of str
        Names of the layers with passes of their own, in the engine's order of computation.

    Raises
    ------
    PlanError
        If a field is missing or out of range, or the plan is of another network.
    """
    entries = {layer.text("name"): layer for layer in layer_entries(group)}
    for layer in network.layers:
        check_output(entries[layer.name], layer)
    ahead = [*order, *(name for name in entries if name not in order)]
    all_tilings = {name: _tilings(entries[name]) for name in ahead}
    tilings = {name: layer_tilings for name, layer_tilings in all_tilings.items() if layer_tilings}
    beside = group.value("side_by_side", tuple[tuple[str, ...], ...], default=())
    group_of: dict[str, int] = {}
    for group_index, names in enumerate(beside):
        for name in names:
            if name not in tilings or name in group_of:
                group.refuse(f"must have layers with a tile, each once, not {shown(name)}", "side_by_side")
            group_of[name] = group_index
    choices: list[dict[str, list[Tiling]]] = []
    last_index = None
    for name, layer_tilings in tilings.items():
        index = group_of.get(name)
        if index is None or index != last_index:
            choices.append({})
        choices[-1][name] = layer_tilings
        last_index = index
    if [(*choice,) for choice in choices if len(choice) > 1] != [names for names in beside if len(names) > 1]:
        group.refuse("must have layers that follow each other, in the network's order", "side_by_side")
    return choices


def _kept_maps(group: Entries, engine: EngineConfig) -> dict[str, KeptAt]:
    """Return a dict by layer of each map's `KeptAt` (address, rows) in map memory, read from ``plan.json``.

    Raises
    ------
    PlanError
        If they are not pairs of integers, or the engine has no map memory.
    """
    if "kept_maps" in group and not engine.has_map_memory:
        group.refuse("must not be given for an engine without a map memory", "kept_maps")
    kept_maps = group.value("kept_maps", dict[str, tuple[int, int]], default={})
    return {name: KeptAt(*place) for name, place in kept_maps.items()}


def _tilings(layer: Entries) -> list[Tiling]:
    """Return a list of a layer's `Tiling` per pass through the array, read from its entry in ``plan.json``."""
    if "passes" not in layer and layer.values.get("tile") is None:
        return []
    return [_tiling(each) for each in (layer.objects("passes", layer.where) if "passes" in layer else [layer])]


def _tiling(entry: Entries) -> Tiling:
    (rows, columns), (channels, taps) = (entry.value(key, tuple[int, int]) for key in ("tile", "chunk"))
    loops = entry.value("order", tuple[str, ...])
    if loops not in (MAPS_STAY, WEIGHTS_STAY):
        allowed = " or ".join(shown(" ".join(permitted)) for permitted in (MAPS_STAY, WEIGHTS_STAY))
        entry.refuse(f"must be {allowed}, as a list, not {shown(' '.join(loops))}", "order")
    known = {"rows": rows, "columns": columns, "channels": channels, "taps": taps}
    return entry.record(Tiling, **known, maps_stay=loops == MAPS_STAY)


def narrow_slices(board: Board) -> Refusal | None:
    """Return a `Refusal` if a board's DSP slices are too narrow for an engine; else ``None``."""
    device = board.family
    if PackedDspSlice().port_bits <= device.multiplier_slice.wide_bits:
        return None
    return Refusal(
        f"an engine computes two products per DSP slice, but the slices of {device.title} devices are too "
        "narrow: --template stream gives each layer its own hardware"
    )
