"""Proofs of pools and elementwise arithmetic: small shapes are proved, and faults in their text are refuted."""

from __future__ import annotations

import pytest
import small_circuits
from proofs import (
    ALONE,
    MODULE,
    emitted,
    faults_in,
    kinds_in,
    marked,
    proved,
    results,
    results_with_fault,
    unguarded,
    with_fault,
)
from small_circuits import ARITHMETIC, LAST_STAGES, VARIANTS

from hwgen.gateware import threshold_proof
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.obligations.modules import modules_of
from hwgen.obligations.site import Site

pytestmark = ALONE

#: Faults: the component, the kinds that refute it, and the text that is replaced.
FAULTS = faults_in("elementwise.txt", {**vars(small_circuits), **VARIANTS}.__getitem__, kinds_in)


#: Faults of last stages: the configuration, and the text that is replaced.
LAST_STAGE_FAULTS = faults_in("last_stages.txt", {**vars(small_circuits), **LAST_STAGES}.__getitem__)


def last_stage_results(config, verilog):
    """Prove the obligations of a last stage of ``verilog``; return the results by kind."""
    modules = modules_of(verilog)
    of_stage = threshold_proof.of_threshold if isinstance(config, ThresholdConfig) else threshold_proof.of_bias
    found = of_stage(config, Site("", modules[MODULE], modules), config.beats)
    return {name: proof.verdict.result for name, proof in proved(found, verilog).items()}


@pytest.mark.parametrize(
    "config",
    [
        *(pytest.param(config, id=type(config).__name__) for config in ARITHMETIC),
        *(pytest.param(config, id=name.replace(" ", "-"), marks=pytest.mark.long) for name, config in VARIANTS.items()),
    ],
)
def test_arithmetic_is_proved(config):
    assert set(results(config).values()) == {"proved"}


def test_every_component_has_two_faults():
    assert {type(config) for config, *_ in FAULTS.values()} == {type(config) for config in ARITHMETIC}
    assert unguarded(FAULTS) == set()


@pytest.mark.parametrize("name", marked(FAULTS, "the maximum is not begun anew"))
def test_faults_are_refuted(name):
    config, kinds, old, new = FAULTS[name]
    assert "refuted" in results_with_fault(config, kinds, old, new).values()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("thresholds", "biases") else pytest.mark.long) for name in LAST_STAGES],
)
def test_last_stages_are_proved(name):
    results = last_stage_results(LAST_STAGES[name], emitted(LAST_STAGES[name]))
    assert set(results.values()) == {"proved"}
    assert results.keys() & {"threshold", "bias"}


@pytest.mark.parametrize("name", marked(LAST_STAGE_FAULTS, "one bit of a threshold"))
def test_faults_of_last_stages_are_refuted(name):
    config, old, new = LAST_STAGE_FAULTS[name]
    assert "refuted" in last_stage_results(config, with_fault(emitted(config), MODULE, old, new)).values()
