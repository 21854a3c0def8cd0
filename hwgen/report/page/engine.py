"""Report page sections of a plan on an engine: resources, traffic, buffers, roofline and timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.options import ENGINE
from hwgen.plan.plan import Plan
from hwgen.program.figures import Figures
from hwgen.program.maps import FusedLayer, fused_layers
from hwgen.program.tiles import Tiling
from hwgen.report.page.sections import Products, Sections, shares
from hwgen.templates.base import Group
from hwgen.templates.engine import MAPS_STAY, EngineGroup, engine_group, loop_order

_WORD = 8 * LANES

#: Meanings of the colours in an engine's timeline, by the kind of state.
_KINDS = {
    "work": "the array multiplies; the port reads maps and weights",
    "input": "waits for loads; the port is idle",
    "buffer": "waits for the array or its sums; the port fetches jobs",
    "room": "results are stored",
}
#: Text for each state of the multiplier array, the memory port and a layer in an engine's timeline.
_SAYS = {
    "array": {
        "work": "multiplies",
        "input": "waits for loads",
        "buffer": "waits for sums to be drained, or begins a job",
        "room": "has computed everything",
    },
    "port": {
        "work": "reads maps and weights",
        "input": "is idle",
        "buffer": "fetches jobs",
        "room": "writes",
    },
    "layer": {
        "work": "multiplies",
        "input": "waits for loads",
        "buffer": "waits for the array, or for sums to be drained",
        "room": "stores its last results",
    },
}


class EngineSections(Sections):
    """Writer of the report page's sections for a plan on an engine (programmable MAC array), unlike a stream's."""

    bar = ("maps once", "Bytes of the maps that the layer reads and writes, if each map moved once")

    def resources(self, group: Group, plan: Plan) -> list[tuple[str, Resources]]:
        """Return a list of (name, estimated resources): each component of the engine, and the logic between."""
        design = engine_group(group).design
        components = [(design.titles[name], component.resources) for name, component in design.components.items()]
        return [*components, ("between the components", design.own)]

    def traffic(self, plan: Plan) -> list[dict[str, Any]]:
        """Return a list of dicts, per computed layer: bytes moved per frame by kind, and if each map moved once."""
        group = engine_group(plan.groups[0])
        batch = group.template.batch
        return [
            {
                "name": step.ops[0].name,
                "moved": {
                    "maps read": -(-figures.maps // batch),
                    "maps written": -(-figures.written // batch),
                    "weights, parameters": -(-(figures.read - figures.maps - figures.jobs) // batch),
                    "jobs": -(-figures.jobs // batch),
                },
                "alone": _count_map_bytes(group, step) + group.schedule.locations[step.name].size,
            }
            for figures, step in _computed(group)
        ]

    def points(self, group: Group, cycles: int) -> list[tuple[str, int, int, int]]:
        """Return a list of roofline points: layer names, and their MACs, bytes and cycles in one engine run."""
        group = engine_group(group)
        figures = {layer_figures.layer.name: (layer_figures, step) for layer_figures, step in _computed(group)}
        points = []
        for names in group.schedule.choices:
            side_by_side = [figures[name] for name in names]
            macs = group.template.batch * sum(op.macs for _, step in side_by_side for op in step.ops)
            moved = sum(each.read + each.written for each, _ in side_by_side)
            points.append((" + ".join(names), macs, moved, sum(each.cycles for each, _ in side_by_side)))
        return points

    def products(self, group: Group) -> Products:
        engine = engine_group(group).template.engine
        in_luts = engine.multipliers * engine.lut_pixels // engine.pixels
        return Products(total=engine.multipliers, in_luts=in_luts)

    def port_gb_s(self, group: Group, clock_mhz: float) -> float:
        template = engine_group(group).template
        return float(template.engine.bus_bytes / template.memory.beat_cycles) * clock_mhz / 1000

    def engine(self, group: Group) -> dict[str, Any]:
        """Return a dictionary for the report page: on-chip buffers, off-chip data, and layers' tile sizes."""
        group = engine_group(group)
        schedule = group.schedule
        return {
            "buffers": _buffers(group.template.engine),
            "layers": [_layer(group, figures, step) for figures, step in _computed(group)],
            "beside": [list(names) for names in schedule.choices if len(names) > 1],
            "constants": schedule.constants,
            "size": schedule.size,
        }

    def times(self, group: Group, bins: int) -> dict[str, Any]:
        """Return a dictionary: one run's timeline in ``bins`` bins (states of MAC array, memory port, layers)."""
        group = engine_group(group)
        bands = group.bands
        edges = np.unique(np.linspace(0, group.cycles, bins + 1).astype(np.int64))
        layers = []
        for band in bands:
            says, cycles = _SAYS[band.kind], band.cycles(edges)
            states = [
                {
                    "kind": kind,
                    "whom": "",
                    "says": says[kind],
                    "cycles": int(in_state.sum()),
                    "shares": shares(in_state, edges),
                }
                for kind, in_state in sorted(cycles.items(), key=lambda entry: -int(entry[1].sum()))
                if in_state.any()
            ]
            if other := group.cycles - sum(state["cycles"] for state in states):
                states.append({"kind": "turn", "whom": "", "says": "before or after it", "cycles": other, "shares": ""})
            layers.append({"name": band.name or f"the {band.kind}", "first": 0, "states": states})
        batch = group.template.batch
        name, runs = ("one frame", "Frames") if batch == 1 else (f"one run of {batch} frames", "Runs")
        view = {"key": "frame", "name": name, "begin": 0, "edges": edges.tolist(), "layers": layers, "fifos": []}
        notes = [f"{runs} are computed one after the other, with the same timeline each."]
        if len(bands) - 2 < len(group.network.layers):
            notes.append("Layers that another layer's pass computes have no band of their own.")
        return {"views": [view], "notes": notes, "fifos": [], "kinds": _KINDS}


def _computed(group: EngineGroup) -> list[tuple[Figures, FusedLayer]]:
    """Return a list of pairs per layer that the engine computes: its `Figures` (cycles, bytes), its `FusedLayer`."""
    own = {figures.layer.name: figures for figures in group.figures if figures.tilings}
    return [(own[step.ops[0].name], step) for step in fused_layers(group.network) if step.ops[0].name in own]


def _count_map_bytes(group: EngineGroup, step: FusedLayer) -> int:
    """Return the total bytes of the maps that a layer and the layers fused onto it read, each map counted once."""
    return sum(group.schedule.locations[edge].size for edge in dict.fromkeys(step.edges))


def _layer(group: EngineGroup, figures: Figures, step: FusedLayer) -> dict[str, Any]:
    taken = _count_map_bytes(group, step)
    return {
        "name": step.ops[0].name,
        "with": [op.name for op in step.ops[1:]],
        "maps": taken,
        "maps_again": figures.maps / (taken * group.template.batch) if taken else 0.0,
        "weights": sum(op.weight_count * op.weight_bits // 8 for op in step.ops),
        "output": group.schedule.locations[step.name].size,
        "passes": [_describe_tiling(tiling) for tiling in dict.fromkeys(figures.tilings)],
    }


def _describe_tiling(tiling: Tiling) -> dict[str, Any]:
    return {
        "tile": f"{tiling.rows} x {tiling.columns}",
        "box": tiling.box_rows,
        "chunk": f"{tiling.channels} x {tiling.taps}",
        "order": " > ".join(loop_order(tiling)),
        "stays": "maps of a box" if loop_order(tiling) == MAPS_STAY else "weights of a fold",
    }


def _buffers(engine: EngineConfig) -> list[dict[str, Any]]:
    """Return, as a list, a dict per on-chip buffer: name, contents, number of words, bits per word and memory kind."""
    blocks = engine.parameter_words * LANES
    buffers: Sequence[tuple[str, str, int, int, str]] = (
        ("map buffer", f"boxes of input maps, in {engine.pixels} banks", engine.pixels * engine.map_words, _WORD, ""),
        ("weight buffer", "weights of a step in each word", engine.weight_steps, 8 * CHAIN * engine.maps, ""),
        (
            "parameters",
            "biases, significands and shifts",
            blocks,
            _WORD,
            engine.memories.default_ram(engine.parameter_words),
        ),
        ("addends", "maps that are added to outputs", engine.addend_words, _WORD, ""),
        (
            "sums",
            f"{engine.slots} of each map and pixel",
            engine.slots * engine.maps * engine.pixels,
            engine.sum_bits,
            "lut",
        ),
        ("pool rows", "a row of pooled pixels", engine.pool_words, _WORD, ""),
        ("output buffer", "results until they are stored", engine.output_words, _WORD, ""),
        *([("map memory", "maps that stay on the chip", engine.kept_words, _WORD, "")] if engine.kept_words else []),
    )
    names = ("name", "holds", "words", "width", "place")
    places = {"": "block RAM", "block": "block RAM", "lut": "LUT RAM"}
    return [dict(zip(names, (*buffer[:4], places[buffer[4]]), strict=True)) for buffer in buffers]


_STREAMS = Sections()
_BY_TEMPLATE: Mapping[str, Sections] = {ENGINE: EngineSections()}


def of_group(group: Group) -> Sections:
    """Return the `Sections` object for a fusion group's template, which fills the report page's sections."""
    return _BY_TEMPLATE.get(group.template.name, _STREAMS)


def of_plan(plan: Plan) -> Sections:
    """Return the `Sections` object for a plan's only fusion group; for several groups, the default one for streams."""
    return of_group(plan.groups[0]) if len(plan.groups) == 1 else _STREAMS
