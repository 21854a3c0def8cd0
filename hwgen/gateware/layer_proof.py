"""Proof obligations of a layer and its components: the last component's are here, the others' in their own files.

The beats of the requantiser have the channels that the layer's serialiser sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hwgen.gateware import control_proof, credits_proof, wiring_proof
from hwgen.gateware.arithmetic.booth_row import BoothRow
from hwgen.gateware.arithmetic.slice_chain import SliceChain
from hwgen.gateware.arithmetic.ternary_adder import TernaryAdder
from hwgen.gateware.bias import AddBias, AddBiasConfig
from hwgen.gateware.channels import ChannelsConfig
from hwgen.gateware.credits import Credits
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.load.loaded_requantise import LoadedRequantise
from hwgen.gateware.load.loaded_table_sum import LoadedTableSum
from hwgen.gateware.lut_products import LutProducts
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.multiply_proof import is_mixed
from hwgen.gateware.normalise import Normalise, NormaliseConfig
from hwgen.gateware.product_sums import Chains
from hwgen.gateware.requantise import Requantise, RequantiseConfig
from hwgen.gateware.requantise_proof import of_requantiser
from hwgen.gateware.threshold import Threshold, ThresholdConfig
from hwgen.gateware.threshold_proof import of_bias, of_index, of_threshold
from hwgen.obligations import resets
from hwgen.obligations.obligation import Obligation, Proofs, Site


def of_finish(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of a layer's requantiser or bias adder: its outputs, and its index of the beat."""
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


def _reasons(layer: LayerConfig, _site: Site) -> Mapping[str, str]:
    """Return a dict from name of a layer's component to the reason why its results are not proved, if they are not."""
    compute = layer.compute
    reasons = dict.fromkeys(
        layer.loaded_parts,
        "its constants are loaded at run time: 'hwgen simulate' checks what it computes from them",
    )
    if isinstance(compute, NormaliseConfig):
        reasons["compute"] = "its quotients are simulated"
    elif isinstance(compute, MultiplyConfig) and is_mixed(compute):
        reasons["compute"] = "sums of several steps with constants in LUTs and in DSP slices are simulated"
    return reasons


#: Tuple of classes of components inside a layer that the layer's own obligations or reasons cover.
_OTHERS = (
    *(Chains, LutProducts, SliceChain, TernaryAdder, BoothRow, Credits),
    *(Requantise, AddBias, Threshold, Normalise, LoadedRequantise, LoadedTableSum),
)


def proofs(components: Callable[[Any], Mapping[str, Any]]) -> Proofs:
    """Return the `Proofs` of a layer and its components, which ``components`` returns by instance name."""
    kinds = (
        wiring_proof.of_layer,
        control_proof.contract_obligations,
        credits_proof.obligations,
        of_finish,
        resets.of_arithmetic,
    )
    return Proofs(kinds, components, _reasons, _OTHERS)


PROOFS = {LayerConfig: proofs(lambda layer: layer.components)}
