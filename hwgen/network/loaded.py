"""Networks whose weights the hardware takes at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwgen.errors import ModelError
from hwgen.network.graph import Network
from hwgen.network.ops import Add, Conv, GlobalAveragePool


def loaded(network: Network) -> Network:
    """The same network for hardware that takes other weights, biases and scales of convolutions, and other scales of
    global average pools and of additions; of all other layers the constants stay. One that is so already is given back.

    Raises
    ------
    ModelError
        If no layer has weights.
    """
    if is_loaded(network):
        return network
    if not network.weight_count:
        raise ModelError(f"{network.name}: no layer has weights that could be loaded at run time")
    layers = tuple(
        replace(layer, loaded=True) if isinstance(layer, Conv | GlobalAveragePool | Add) else layer
        for layer in network.layers
    )
    return replace(network, layers=layers)


def for_hardware(network: Network, weight_bits: Mapping[str, int]) -> Network:
    """The same network for hardware that is there: weights of a layer have as many bits as in it, by the layer's name.

    Weights may come out smaller than those that it was built of; bits that they don't need are sign bits then.
    """
    layers = tuple(
        replace(layer, loaded_bits=weight_bits[layer.name])
        if isinstance(layer, Conv) and layer.name in weight_bits
        else layer
        for layer in network.layers
    )
    return replace(network, layers=layers)


def is_loaded(network: Network) -> bool:
    """Whether it is one of these."""
    return any(getattr(layer, "loaded", False) for layer in network.layers)
