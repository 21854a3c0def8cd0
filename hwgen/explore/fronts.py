"""Pareto fronts of a network's costs over all divisions into fusion groups and over all unroll factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import inf
from typing import Any

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.explore import fusion, pyramid
from hwgen.explore.pyramid import Layers, Linked
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.plan.cuts import Span
from hwgen.progress import tell
from hwgen.templates.stages import stage_of
from hwgen.templates.unroll import UnrollChoice, choices
from hwgen.templates.work import LayerWork, Unroll

WORD_BYTES = 4
"""Number of bytes per word in figures of storage and traffic (32 bits, as in the papers)."""


AXES = {
    "storage_traffic": ("storage_words", "traffic_words"),
    "storage_multiplications": ("storage_words", "multiplications"),
    "dsp_traffic": ("dsp", "traffic_words"),
    "dsp_cycles": ("dsp", "cycles"),
}
"""Dictionary by Pareto front (a field of `Exploration`): names of its points' two coordinates.

A board limits the first coordinate.
"""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Point from a published paper, to plot with a network's computed Pareto front.

    Its coordinates have the front's units.
    """

    label: str
    front: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Pareto fronts of a network over layer groupings and unroll factors; words have 32 bits, as in the papers.

    Parameters
    ----------
    network : Network
        Network that was explored.
    board : Board, optional
        Board whose limits mark the points that fit. All points are kept.
    multipliers : tuple of int
        Multipliers of each layer in ``dsp_traffic``: DeCoILFNet's, with all taps and input channels at once.
    storage_traffic, storage_multiplications, dsp_traffic, dsp_cycles : tuple
        Points of each front, sorted by their first figure; see `hwgen.explore.fusion`.
    published : tuple of Point
        Published points to show with the fronts.
    """

    network: Network
    board: Board | None
    multipliers: tuple[int, ...]
    storage_traffic: tuple[fusion.StoragePoint, ...]
    storage_multiplications: tuple[fusion.OverlapPoint, ...]
    dsp_traffic: tuple[fusion.DspPoint, ...]
    dsp_cycles: tuple[fusion.CyclesPoint, ...]
    published: tuple[Point, ...] = ()

    @property
    def max_words(self) -> float:
        """Number of 32-bit words that the board's block RAM holds; infinite without a board."""
        return (
            inf if self.board is None else self.board.bram36 * self.board.family.memories.block_bits // (8 * WORD_BYTES)
        )

    def limit(self, front: str) -> float:
        """Return the board's limit on a front's first coordinate: words of block RAM, DSP slices, or infinity."""
        if front.startswith("storage"):
            return self.max_words
        return inf if self.board is None else self.board.dsp

    def points(self, front: str) -> list[tuple[int, int, Any]]:
        """Return a list of a Pareto front's points as triples: first coordinate, second coordinate, point object."""
        return [(*(getattr(point, axis) for axis in AXES[front]), point) for point in getattr(self, front)]

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, all Pareto fronts of the exploration as plain values for JSON.

        The page docs/explanation/exploration.md describes the keys.
        """
        names = [layer.name for layer in self.network.layers]
        plain: dict[str, Callable[[Any], Any]] = {
            "groups": lambda spans: [names[begin:end] for begin, end in spans],
            "overlap": list,
            "unroll": lambda factors: [_unroll(name, unroll) for name, unroll in zip(names, factors, strict=True)],
        }

        def entry(front: str, first: int, point: object) -> dict[str, Any]:
            values = {name: plain.get(name, int)(value) for name, value in vars(point).items()}
            return values if self.board is None else {**values, "fits": first <= self.limit(front)}

        return {
            "model": self.network.name,
            "board": None if self.board is None else self.board.name,
            "word_bits": 8 * WORD_BYTES,
            "layers": [
                {"name": layer.name, "kind": layer.kind, "macs": layer.macs, "weights": layer.weight_count}
                for layer in self.network.layers
            ],
            "left_out": list(self.network.left_out),
            "fronts": {name: [entry(name, first, point) for first, _, point in self.points(name)] for name in AXES},
        }


def explore(
    network: Network,
    board: Board | None = None,
    *,
    depth_groups: Mapping[str, int] | None = None,
    published: Sequence[Point] = (),
) -> Exploration:
    """Return an `Exploration`: all Pareto fronts of a network over groupings (fused layers) and unroll factors.

    Parameters
    ----------
    network : Network
        Network to explore.
    board : Board, optional
        Board whose limits apply. A layer that needs more multipliers than the board has is computed in the fewest
        serial depth groups that fit. Points that don't fit the board are kept and marked.
    depth_groups : mapping of str to int, optional
        Number of serial depth groups of layers, by name; 1 for all others.
    published : sequence of Point
        Points to show with the fronts.

    Raises
    ------
    PlanError
        If a layer doesn't fit the board even with one input channel at a time.
    """
    layers = network.layers
    multipliers = [_multipliers(layer, board, (depth_groups or {}).get(layer.name, 1)) for layer in layers]
    fronts: dict[str, Callable[[], Sequence[Any]]] = {
        "storage_traffic": lambda: fusion.storage_traffic(network),
        "storage_multiplications": lambda: fusion.storage_multiplications(network),
        "dsp_traffic": lambda: fusion.dsp_traffic(network, multipliers),
        "dsp_cycles": lambda: fusion.dsp_cycles([_choices(layer) for layer in layers]),
    }
    results: dict[str, Any] = {}
    for name, front in fronts.items():
        tell(f"{network.name}: looking for fronts", len(results), len(fronts), "front")
        results[name] = tuple(front())
    return Exploration(
        network=network, board=board, multipliers=tuple(multipliers), published=tuple(published), **results
    )


def all_groupings(layers: Layers) -> list[tuple[int, int]]:
    """Return, as a list, a pair per division into fusion groups: words stored on chip, and words moved off chip.

    A network with ``c`` cuts has ``2**c`` divisions.
    """
    linked = Linked.of(layers)
    words, points = fusion.storage_words(linked), []
    for cuts in product((False, True), repeat=len(linked.boundaries) - 2):
        edges = [
            0,
            *(boundary for boundary, cut in zip(linked.boundaries[1:], cuts, strict=False) if cut),
            linked.boundaries[-1],
        ]
        spans = list(pairwise(edges))
        groups = [linked.layers[begin:end] for begin, end in spans]
        points.append((max(words[span] for span in spans), pyramid.map_traffic(groups)))
    return points


def grouping_costs(layers: Layers, spans: Sequence[Span]) -> tuple[int, int]:
    """Return, as a pair, two costs of one grouping: words stored on chip, and feature-map words moved off chip.

    Parameters
    ----------
    layers : Layers
        Layers of the network.
    spans : sequence of Span
        Groups of the grouping. Each begins and ends at a boundary of the network.
    """
    linked = Linked.of(layers)
    words = fusion.storage_words(linked)
    groups = [linked.layers[begin:end] for begin, end in spans]
    return max(words[span] for span in spans), pyramid.map_traffic(groups)


def _multipliers(layer: Op, board: Board | None, groups: int) -> int:
    """Return the number of multipliers of a layer, with input channels in ``groups`` parts one after the other.

    There are more groups if the board has too few DSP slices.
    """
    need = fusion.depth_multipliers(layer, groups)
    if board is None or need <= board.dsp:
        return need
    parallel_channels = board.dsp // layer.taps
    if not parallel_channels:
        raise PlanError(f"{layer.name}: {layer.taps} taps need more than the {board.dsp} DSP slices of {board.name}")
    return fusion.depth_multipliers(layer, -(-(layer.channels // layer.groups) // parallel_channels))


def _choices(layer: Op) -> list[UnrollChoice]:
    def multipliers(work: LayerWork, unroll: Unroll) -> int:
        return work.multipliers(unroll)

    return choices(LayerWork.of(layer, **stage_of(layer).work_fields), multipliers)


def _unroll(name: str, unroll: Unroll) -> dict[str, Any]:
    return {"name": name, "in": unroll.tn, "out": unroll.tm, "taps": unroll.tk, "pixels": unroll.tp}
