"""Parts of layers that compute tile by tile, and the obligation that streams between their buffers are wires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwgen.gateware.layer_proof import proofs
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.wiring_proof import stream_wires
from hwgen.obligations.composition import composition, domain_wires, has_port
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Proofs, Site

__all__ = ["PROOFS", "WindowUnit", "layer_parts", "of_window", "window_parts"]


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
    """Return the obligation that a window generator's streams and starts of folds are those of its buffers."""
    names = list(unit.layer.walk)
    ends = ["i", *(f"{name}.{port}" for name in names for port in ("i", "o")), "o"]
    wires = stream_wires(site, list(zip(ends[::2], ends[1::2], strict=True))) | domain_wires(site)
    wires |= {f"{names[-1]}.room": "room", "start": f"{names[-1]}.start", "fold": f"{names[-1]}.fold"}
    wires = {one: other for one, other in wires.items() if has_port(site, one) and has_port(site, other)}
    return composition(site, "Streams and starts of folds equal the buffers', and no port is left out.", wires, {})


PROOFS = {
    PyramidLayerConfig: proofs(layer_parts),
    WindowUnit: Proofs((of_window,), window_parts),
}
