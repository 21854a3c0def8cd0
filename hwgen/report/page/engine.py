"""What an engine has of its own in the sections of a plan: its parts, its buffers, and what layers do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.lookup import place
from hwgen.program.figures import Figures
from hwgen.program.maps import Step, steps
from hwgen.program.tiles import Tiling
from hwgen.report import legend
from hwgen.templates.tile import MAPS_STAY, TileGroup, order

__all__ = ["document", "points", "port_gb_s", "resources", "traffic"]

_WORD = 8 * LANES


def resources(group: TileGroup) -> list[tuple[str, Resources]]:
    """What each component takes, and what joins them."""
    parts = [(legend.COMPONENTS[name], part.resources) for name, part in group.design.components.items()]
    return [*parts, ("between them", group.design.own)]


def traffic(group: TileGroup) -> list[dict[str, Any]]:
    """Bytes of each layer over the port for a frame, and those of its maps if each were moved once."""
    batch = group.template.batch
    return [
        {
            "name": step.ops[0].name,
            "moved": {
                "maps read": -(-each.maps // batch),
                "maps written": -(-each.written // batch),
                "weights, parameters": -(-(each.read - each.maps - each.jobs) // batch),
                "jobs": -(-each.jobs // batch),
            },
            "alone": _taken(group, step) + group.schedule.places[step.name].size,
        }
        for each, step in _computed(group)
    ]


def points(group: TileGroup) -> list[tuple[str, int, int, int]]:
    """Layers, or layers side by side, as the roofline has them: name, MACs, bytes and cycles."""
    figures = {each.layer.name: (each, step) for each, step in _computed(group)}
    found = []
    for names in group.schedule.choices:
        these = [figures[name] for name in names]
        macs = group.template.batch * sum(op.macs for _, step in these for op in step.ops)
        moved = sum(each.read + each.written for each, _ in these)
        found.append((" + ".join(names), macs, moved, sum(each.cycles for each, _ in these)))
    return found


def port_gb_s(group: TileGroup, clock_mhz: float) -> float:
    """What the port moves at most."""
    template = group.template
    return template.engine.bus_bytes / template.memory.pace * clock_mhz / 1000


def document(group: TileGroup) -> dict[str, Any]:
    """Where operands live: buffers on the chip, maps and weights off chip, and how each layer is cut into tiles."""
    schedule = group.schedule
    return {
        "buffers": _buffers(group.template.engine),
        "layers": [_layer(group, each, step) for each, step in _computed(group)],
        "beside": [list(names) for names in schedule.choices if len(names) > 1],
        "constants": schedule.constants,
        "size": schedule.size,
    }


def _computed(group: TileGroup) -> list[tuple[Figures, Step]]:
    """The layers that have passes of their own, each with those on its way out."""
    own = {each.layer.name: each for each in group.figures if each.tilings}
    return [(own[step.ops[0].name], step) for step in steps(group.network) if step.ops[0].name in own]


def _taken(group: TileGroup, step: Step) -> int:
    """Bytes of the maps that a layer reads, each counted once."""
    return sum(group.schedule.places[edge].size for edge in dict.fromkeys(step.edges))


def _layer(group: TileGroup, each: Figures, step: Step) -> dict[str, Any]:
    taken = _taken(group, step)
    return {
        "name": step.ops[0].name,
        "with": [op.name for op in step.ops[1:]],
        "maps": taken,
        "maps_again": each.maps / (taken * group.template.batch) if taken else 0.0,
        "weights": sum(op.weight_count * op.weight_bits // 8 for op in step.ops),
        "output": group.schedule.places[step.name].size,
        "passes": [_cut(tiling) for tiling in dict.fromkeys(each.tilings)],
    }


def _cut(tiling: Tiling) -> dict[str, Any]:
    return {
        "tile": f"{tiling.rows} x {tiling.columns}",
        "box": tiling.box_rows,
        "chunk": f"{tiling.channels} x {tiling.taps}",
        "order": " > ".join(order(tiling)),
        "stays": "maps of a box" if order(tiling) == MAPS_STAY else "weights of a fold",
    }


def _buffers(engine: EngineConfig) -> list[dict[str, Any]]:
    """On the chip: name, what they hold, words of how many bits, and in which memory."""
    blocks = engine.parameter_words * LANES
    found: Sequence[tuple[str, str, int, int, str]] = (
        ("map buffer", f"boxes of input maps, in {engine.pixels} banks", engine.pixels * engine.map_words, _WORD, ""),
        ("weight buffer", "weights of a step in each word", engine.weight_steps, 8 * engine.maps, ""),
        ("parameters", "biases, significands and shifts", blocks, _WORD, place(engine.parameter_words)),
        ("addends", "maps that are added to outputs", engine.addend_words, _WORD, ""),
        (
            "sums",
            f"{engine.slots} of each multiplier",
            engine.slots * engine.maps * engine.pixels,
            engine.sum_bits,
            "lut",
        ),
        ("pool rows", "a row of pooled pixels", engine.pool_words, _WORD, ""),
        ("output buffer", "results until they are stored", engine.output_words, _WORD, ""),
    )
    names = ("name", "holds", "words", "width", "place")
    places = {"": "block RAM", "block": "block RAM", "lut": "LUT RAM"}
    return [dict(zip(names, (*each[:4], places[each[4]]), strict=True)) for each in found]
