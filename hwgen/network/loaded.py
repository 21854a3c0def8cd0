"""Functions that mark a network's layers for hardware that loads weights at run time."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from hwgen.errors import ModelError
from hwgen.network.graph import Network


def loaded(network: Network, names: Container[str] | None = None) -> Network:
    """Return a `Network`: a copy of a network whose layers are marked to load weights and constants at run time.

    The hardware then loads weights, biases and scales of convolutions, and scales of global average pools and of
    additions. The constants of all other layers are fixed. A network that is loaded already is returned unchanged.

    Parameters
    ----------
    network : Network
    names : container of str, optional
        Names of the layers to mark; by default all layers that can load constants.

    Raises
    ------
    ModelError
        If no layer has weights.
    """
    if is_loaded(network):
        return network
    if not network.weight_count:
        raise ModelError(f"{network.name}: no layer has weights that could be loaded at run time")
    marked = [layer.loadable and (names is None or layer.name in names) for layer in network.layers]
    layers = tuple(
        replace(layer, loaded=True) if is_marked else layer
        for layer, is_marked in zip(network.layers, marked, strict=True)
    )
    return replace(network, layers=layers)


def for_hardware(network: Network, weight_bits: Mapping[str, int]) -> Network:
    """Return a `Network`: copy of a network whose weights have the widths (bits, by layer name) of an existing design.

    Weights can need fewer bits than the hardware has; the other bits are sign bits.
    """
    layers = tuple(
        replace(layer, loaded_bits=weight_bits[layer.name]) if layer.name in weight_bits else layer
        for layer in network.layers
    )
    return replace(network, layers=layers)


def is_loaded(network: Network) -> bool:
    """Return whether a network is marked for hardware that loads weights at run time."""
    return any(layer.loaded for layer in network.layers)
