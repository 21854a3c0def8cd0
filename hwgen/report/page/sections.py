"""Sections of the report page that a group fills, by default for groups of layers linked by streams.

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
    """Return the share of each bin's cycles spent in one state, as a byte per bin (255 for all), in base64.

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
    """Number of products of weights and activations that hardware computes per cycle, and how many of these in LUTs."""

    total: int
    in_luts: int


class Sections:
    """Sections of the report page that a group fills; the methods fit a group of layers linked by streams.

    A template whose groups are not layers with streams in between overrides this (`hwgen.report.page.templates`).
    """

    bar = (
        "if not fused",
        "Bytes of the maps of all layers of the group, if each layer read and wrote its maps off chip",
    )
    """Name and meaning of the bar that the traffic chart shows beside the bytes moved."""

    def resources(self, group: Group, plan: Plan) -> list[tuple[str, Resources]]:
        """Return pairs of name and estimated resources: layers, guards of inputs, and the loader of weights."""
        guards = sum((guard.resources for guard in group.config.guards), Resources())
        name = "guards of inputs" if len(plan.groups) == 1 else f"guards of {group.layers[0].name}"
        loader = group.config.loader
        return [
            *((layer.name, layer.resources) for layer in group.config.layers),
            (name, guards),
            *([("loader of weights", loader.resources)] if loader is not None else []),
        ]

    def points(self, group: Group, cycles: int) -> list[tuple[str, int, int, int]]:
        """Return the roofline's points of the group's layers, if not fused: name, MACs, bytes and cycles.

        ``cycles`` are the group's cycles per frame. The bytes are those of the layer's maps if all moved off chip.
        """
        return [(node.name, node.macs, _unfused_bytes(node), cycles) for node in group.network.layers]

    def products(self, group: Group) -> Products:
        """Return the products that the group's multipliers compute per cycle: the unroll factors of each layer."""
        layers = [plan for plan, node in zip(group.layers, group.network.layers, strict=True) if node.macs]
        return Products(
            total=sum(plan.tn * plan.tm * plan.tk * plan.tp for plan in layers),
            in_luts=sum(plan.tn * plan.lut_lanes * plan.tk * plan.tp for plan in layers),
        )

    def traffic(self, plan: Plan) -> list[dict[str, Any]]:
        """Return for each group the bytes moved off chip per frame, and the bytes of its layers' maps if not fused."""
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
        """Return the memory section's values on an engine's buffers and tiles; ``None`` for layers with streams."""
        return None

    def port_gb_s(self, group: Group, clock_mhz: float) -> float | None:
        """Return the peak bandwidth of the group's memory port, in GB/s; ``None`` without a port."""
        return None

    def times(self, group: Group, bins: int) -> dict[str, Any] | None:
        """Return the timeline section's values, in ``bins`` bins; ``None`` for the default of layers with streams."""
        return None


def span(group: Group) -> str:
    """Return a group's name for the page: its first and last layer, ``conv1 to pool2``, or its only layer."""
    first, last = group.layers[0].name, group.layers[-1].name
    return first if first == last else f"{first} to {last}"


def _unfused_bytes(node: Op) -> int:
    """Return the bytes of a layer's input and output maps, which move off chip if the layer is not fused."""
    return sum(map(_bytes, node.inputs)) + _bytes(node.output)


def _bytes(source: FeatureMap) -> int:
    return source.values * source.type.dtype.itemsize
