"""Obligations of a layer's last stage, whose beats have the channels that the serialiser before it sends."""

from __future__ import annotations

from hwgen.gateware.bias import AddBiasConfig
from hwgen.gateware.channels import ChannelsConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.requantise_proof import of_requantiser
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.gateware.threshold_proof import of_bias, of_index, of_threshold
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site

__all__ = ["of_layer"]


def of_layer(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a layer's last stage: its outputs, and the index that chooses a beat's constants."""
    config, beats = layer.finish, layer.unload.beats
    if config is None:
        return []
    finish, found = site.part("finish"), []
    if isinstance(config, RequantiseConfig):
        found = of_requantiser(config, finish, beats)
    elif isinstance(config, ThresholdConfig):
        found = of_threshold(config, finish, beats)
    elif isinstance(config, AddBiasConfig):
        found = of_bias(config, finish, beats)
    # A stage without an index treats all beats alike, which the obligations of its outputs state.
    counts = isinstance(config, ChannelsConfig) and finish.has("beat_index")
    return [*found, *([of_index(finish, len(beats), "beat_index", 0)] if counts else [])]
