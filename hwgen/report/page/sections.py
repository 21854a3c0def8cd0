"""Report page sections that depend on a fusion group's template; the default is for layers linked by streams.

A timeline in ``report.html`` has the share of each bin of cycles that is spent in a state.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.gateware.cost import Resources
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Op
from hwgen.plan.plan import Plan
from hwgen.templates.base import Group


def shares(cycles: np.ndarray, edges: np.ndarray) -> str:
    """Return base64 text, a byte per timeline bin: the share of the bin's cycles in one state (255 for all).

    Parameters
    ----------
    cycles : ndarray
        Cycles in the state, per bin.
    edges : ndarray
        First cycle of each bin, then the end of the last bin.
    """
    return base64.b64encode(np.rint(cycles * 255 / np.diff(edges)).astype(np.uint8).tobytes()).decode()


@dataclass(frozen=True)
class Products:
    """Number of products (weight times activation) that a group computes per cycle, and how many of them in LUTs."""

    total: int
    in_luts: int


class Sections:
    """Writer of the report page's sections that depend on a fusion group's template, for layers linked by streams.

    A template whose groups are not layers with streams in between overrides this (`hwgen.report.page.engine`).
    """

    bar = (
        "if not fused",
        "Bytes of the maps of all layers of the group, if each layer read and wrote its maps off chip",
    )
    """Pair: name and meaning of the second bar in the traffic chart, next to the bytes moved."""

    def resources(self, group: Group, plan: Plan) -> list[tuple[str, Resources]]:
        """Return a list of (name, estimated resources) pairs: layers, input guards and weight loader."""
        guards = sum((guard.resources for guard in group.config.guards), Resources())
        name = "guards of inputs" if len(plan.groups) == 1 else f"guards of {group.layers[0].name}"
        loader = group.config.loader
        return [
            *((layer.name, layer.resources) for layer in group.config.layers),
            (name, guards),
            *([("loader of weights", loader.resources)] if loader is not None else []),
        ]

    def points(self, group: Group, cycles: int) -> list[tuple[str, int, int, int]]:
        """Return a list of roofline points, a layer each as if not fused: name, MACs, bytes, cycles per frame.

        ``cycles`` are the group's cycles per frame. The bytes are the layer's maps, if all moved off chip.
        """
        return [(node.name, node.macs, _unfused_bytes(node), cycles) for node in group.network.layers]

    def products(self, group: Group) -> Products:
        """Return `Products`: how many a group's multipliers compute per cycle, the sum over its layers."""
        layers = [plan for plan, node in zip(group.layers, group.network.layers, strict=True) if node.macs]
        return Products(
            total=sum(plan.tn * plan.tm * plan.tk * plan.tp for plan in layers),
            in_luts=sum(plan.tn * plan.lut_lanes * plan.tk * plan.tp for plan in layers),
        )

    def traffic(self, plan: Plan) -> list[dict[str, Any]]:
        """Return a list of dicts, per group: off-chip bytes per frame by kind, and bytes with no layers fused."""
        loads = plan.placement.loads_weights
        return [
            {
                "name": span(group),
                "moved": {name.replace("_", " "): size for name, size in group.traffic_bytes(loads).items()},
                "alone": sum(map(_unfused_bytes, group.network.layers)),
            }
            for group in plan.groups
        ]

    def engine(self, group: Group) -> dict[str, Any] | None:
        """Return a dictionary on an engine's buffers and tiles for the page; ``None`` for layers with streams."""
        return None

    def port_gb_s(self, group: Group, clock_mhz: float) -> float | None:
        """Return the peak bandwidth of a fusion group's memory port in GB/s; ``None`` for a group without one."""
        return None

    def times(self, group: Group, bins: int) -> dict[str, Any] | None:
        """Return a dictionary: the timeline in ``bins`` bins; ``None`` for the default (layers with streams)."""
        return None


def span(group: Group) -> str:
    """Return a group's name for the report page: its first and last layer, ``conv1 to pool2``, or its only layer."""
    first, last = group.layers[0].name, group.layers[-1].name
    return first if first == last else f"{first} to {last}"


def _unfused_bytes(node: Op) -> int:
    """Return the bytes per frame of a layer's input and output maps, which move off chip if it is not fused."""
    return sum(map(_bytes, node.inputs)) + _bytes(node.output)


def _bytes(source: FeatureMap) -> int:
    return source.values * source.type.dtype.itemsize
