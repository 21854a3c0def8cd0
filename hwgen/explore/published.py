"""Points that papers published for their networks, to show with the computed Pareto fronts.

The thesis is Alwani's (2015); DeCoILFNet was published in 2018. docs/figures/published.md lists the figures that the
fronts reproduce.
"""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.explore.fronts import Point
from hwgen.network import shapes
from hwgen.network.graph import Network

DEPTH_GROUPS: Mapping[str, int] = {"conv2_2": 2}
"""Dictionary by layer name: number of serial depth groups (input channels in turn) in DeCoILFNet's build of VGG-16.

The build has VGG-16's first seven layers. Layers that are not listed have one group. No other groups fit both the
published DSPs and the published times.
"""

_POINTS = {
    "vgg19:11": (
        Point(label="B (thesis)", front="storage_traffic", x=232 * 256, y=17.1 * 256_000),
        Point(label="C (thesis)", front="storage_traffic", x=701 * 256, y=1.37 * 256_000),
    ),
    # DeCoILFNet prints no DSPs for A: the value is its largest layer's
    "vgg16:7": (
        Point(label="A (DeCoILFNet)", front="dsp_traffic", x=1152, y=23.54 * 2**18),
        Point(label="Table IV (DeCoILFNet)", front="dsp_traffic", x=2907, y=6.69 * 2**18),
        Point(label="Table IV, fused (Alwani)", front="dsp_traffic", x=2987, y=3.64 * 2**18),
        Point(label="Table IV (DeCoILFNet)", front="dsp_cycles", x=2907, y=5_034_000),
    ),
}


def points(network: Network) -> tuple[Point, ...]:
    """Return a tuple of each `Point` that papers published for a network's Pareto fronts; empty if none."""
    return next((published_points for name, published_points in _POINTS.items() if _has_geometry_of(network, name)), ())


def depth_groups(network: Network) -> dict[str, int]:
    """Return a dict by layer name: number of serial groups of input channels in DeCoILFNet's build of the network.

    The result is empty for networks other than DeCoILFNet's.
    """
    if not _has_geometry_of(network, "vgg16:7"):
        return {}
    built = shapes.load("vgg16:7").layers
    return {layer.name: DEPTH_GROUPS.get(own.name, 1) for layer, own in zip(network.layers, built, strict=True)}


def _has_geometry_of(network: Network, name: str) -> bool:
    return network.geometry == shapes.load(name).geometry
