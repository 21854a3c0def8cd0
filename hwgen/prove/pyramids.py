"""Parts of layers that compute tile by tile, and the obligation that streams between their buffers are wires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site
from hwgen.prove.wiring import of_streams

__all__ = ["WindowUnit", "layer_parts", "of_window", "window_parts"]


@dataclass(frozen=True)
class WindowUnit:
    """Window generator of a layer: the reuse buffer, if it has one, in front of the tile buffer.

    Parameters
    ----------
    layer : PyramidLayerConfig
        Configuration of the layer.
    """

    layer: PyramidLayerConfig


def layer_parts(layer: PyramidLayerConfig) -> dict[str, Any]:
    """Return the parts of a layer by instance. Its buffers are inside of its window generator."""
    return {"window": WindowUnit(layer)} | {
        name: part for name, part in layer.components.items() if name not in layer.walk
    }


def window_parts(unit: WindowUnit) -> Mapping[str, Any]:
    """Return the buffers of a window generator by instance."""
    return unit.layer.walk


def of_window(unit: WindowUnit, site: Site) -> list[Obligation]:
    """Return the obligation that a window generator's streams are those of its buffers."""
    if not site.has("o__payload"):
        return []
    names = list(unit.layer.walk)
    ends = ["i", *(f"{name}.{port}" for name in names for port in ("i", "o")), "o"]
    return of_streams(site, list(zip(ends[::2], ends[1::2], strict=True)))
