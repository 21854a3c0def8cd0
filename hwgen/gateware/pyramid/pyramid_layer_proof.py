"""Proof obligations of layers that compute tile by tile: the streams between their buffers are wires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwgen.gateware.layer_proof import proofs
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.wiring_proof import stream_wires
from hwgen.obligations.composition import composition, domain_wires, has_port
from hwgen.obligations.obligation import Obligation, Proofs, Site


@dataclass(frozen=True)
class WindowUnit:
    """Configuration of a tiled layer's window generator (`PyramidWindow`) for its proofs: the layer's configuration.

    Parameters
    ----------
    layer : PyramidLayerConfig
        Configuration of the layer.
    """

    layer: PyramidLayerConfig


def layer_parts(layer: PyramidLayerConfig) -> dict[str, Any]:
    """Return a dict from instance name to configuration: a tiled layer's window generator and other components."""
    return {"window": WindowUnit(layer)} | {
        name: part for name, part in layer.components.items() if name not in layer.walk
    }


def window_parts(unit: WindowUnit) -> Mapping[str, Any]:
    """Return a dict from instance name to configuration: a window generator's reuse buffer and tile buffer."""
    return unit.layer.walk


def of_window(unit: WindowUnit, site: Site) -> list[Obligation]:
    """Return a list with the obligation that a window generator only wires its buffers together and to its ports."""
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
