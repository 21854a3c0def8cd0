"""Proofs of pools, elementwise arithmetic, and circuits that move values: small shapes, and faults in their text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small_circuits
from amaranth import Shape
from proofs import (
    ALONE,
    MODULE,
    emitted,
    faults_in,
    kinds_in,
    marked,
    of_component,
    proved,
    results,
    results_with_fault,
    unguarded,
    with_fault,
)
from small_circuits import ARITHMETIC, LAST_STAGES, VARIANTS

from hwgen.gateware import threshold_proof
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.gateware.unload import UnloadConfig
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Site

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


def beat(rng: np.random.Generator, lanes: int, pixels: int = 1, width: int | None = None, **options: Any) -> BeatFormat:
    """Return the format of a drawn small map."""
    drawn = {
        "channels": int(rng.integers(1, 6)),
        "height": int(rng.integers(1, 3)),
        "width": int(rng.integers(1, 8)) if width is None else width,
        "bits": int(rng.integers(1, 4)),
        "signed": bool(rng.integers(2)),
    }
    return BeatFormat(lanes=lanes, pixels=pixels, **(drawn | options))


def an_upsampling(rng: np.random.Generator) -> UpsampleConfig:
    source = beat(rng, int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    return UpsampleConfig(input=source, factors=(int(rng.integers(1, 4)), int(rng.integers(1, 4))))


def a_join_in_turn(rng: np.random.Generator) -> JoinConfig:
    """Return a drawn concatenation; one of a single input is a copy."""
    lanes, pixels, width = (int(number) for number in rng.integers(1, 4, 3))
    inputs = [beat(rng, lanes, pixels, width, height=1) for _ in range(int(rng.integers(1, 5)))]
    return JoinConfig(inputs=tuple(inputs), in_turn=True)


def a_spread_join(rng: np.random.Generator) -> JoinConfig:
    lanes, channels = (int(number) for number in rng.integers(1, 6, 2))
    first = beat(rng, lanes, int(rng.integers(1, 3)), channels=channels)
    return JoinConfig(inputs=(first, beat(rng, lanes, 1, 1, height=1, channels=channels)), spread=True)


def uneven_folds(rng: np.random.Generator) -> UnloadConfig:
    """Return a drawn serialiser without registers, whose last fold has fewer channels than the others."""
    lanes = int(rng.integers(2, 6))
    channels = lanes * int(rng.integers(1, 4)) + int(rng.integers(1, lanes))
    shape = Shape(int(rng.integers(1, 4)), bool(rng.integers(2)))
    return UnloadConfig(
        channels=channels, lanes_in=lanes, lanes_out=lanes, shape=shape, clears=True, pixels=int(rng.integers(1, 4))
    )


DRAWS = {"upsampling": an_upsampling, "in turn": a_join_in_turn, "spread": a_spread_join, "uneven": uneven_folds}
#: Number of shapes that are drawn of each.
SHAPES = 12


def shapes(name: str) -> list[Any]:
    """Return the drawn shapes of a kind of circuit."""
    return [DRAWS[name](np.random.default_rng([DRAWS[name].__name__.encode()[0], seed])) for seed in range(SHAPES)]


def two(**options: Any) -> BeatFormat:
    """Return the format of a map of two rows of three pixels, two channels a beat."""
    return BeatFormat(**({"channels": 3, "height": 2, "width": 3, "lanes": 2, "bits": 2, "signed": False} | options))


CIRCUITS = {
    "upsampling": UpsampleConfig(input=two(channels=4, pixels=2), factors=(2, 2)),
    "in turn": JoinConfig(inputs=(two(bits=3), two(channels=1)), in_turn=True),
    "copy": JoinConfig(inputs=(two(),), in_turn=True),
    "spread": JoinConfig(inputs=(two(), two(height=1, width=1)), spread=True),
    "uneven": UnloadConfig(channels=5, lanes_in=3, lanes_out=3, shape=Shape(2), clears=True, pixels=2),
}
#: Wide maps, as networks have them.
REAL = {
    "upsampling of a row of 128 pixels": UpsampleConfig(
        input=two(channels=64, height=128, width=128, lanes=8, bits=8), factors=(2, 2)
    ),
    "upsampling of 8 pixels a beat": UpsampleConfig(
        input=two(channels=16, height=64, width=60, lanes=4, bits=8, pixels=8), factors=(3, 3)
    ),
    "concatenation of four maps": JoinConfig(
        inputs=tuple(two(channels=channels, width=32, lanes=16, bits=8) for channels in (64, 128, 32, 33)), in_turn=True
    ),
    "gate of 512 channels": JoinConfig(
        inputs=(
            two(channels=512, width=28, height=28, lanes=4, bits=8),
            two(channels=512, width=1, height=1, lanes=4, bits=8),
        ),
        spread=True,
    ),
    "fold of 48 channels": UnloadConfig(channels=512, lanes_in=48, lanes_out=48, shape=Shape(8), clears=True),
}

#: Configuration, obligations that a fault refutes, text of the Verilog, and faulty text.
FAULTS_OF_MOVES = faults_in("moves.txt", CIRCUITS.__getitem__, kinds_in)


def test_shapes_differ():
    for name in DRAWS:
        assert len(set(shapes(name))) >= SHAPES - 2


@pytest.mark.parametrize("config", CIRCUITS.values(), ids=["upsampling", "turn", "copy", "spread", "uneven"])
def test_values_are_proved(config):
    verilog = emitted(config)
    found = [each for each in of_component(config, verilog) if each.kind == "tokens"]
    assert {name: proof.verdict.result for name, proof in proved(found, verilog).items()} == {"tokens": "proved"}


@pytest.mark.long
@pytest.mark.parametrize("index", range(SHAPES))
@pytest.mark.parametrize("name", DRAWS)
def test_drawn_shapes_are_proved(name, index):
    assert set(results(shapes(name)[index]).values()) == {"proved"}


@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_real_shapes_are_proved_within_seconds(name):
    assert set(results(REAL[name], seconds=30).values()) == {"proved"}


@pytest.mark.parametrize("name", marked(FAULTS_OF_MOVES, "upsampling steps to the next beat", "inputs are swapped"))
def test_faults_of_moves_are_refuted(name):
    config, kinds, old, new = FAULTS_OF_MOVES[name]
    sound = emitted(config)
    found = [each for each in of_component(config, sound) if each.kind in kinds]
    assert {each.kind for each in found} == kinds
    proofs = proved(found, with_fault(sound, MODULE, old, new))
    assert {kind: proof.verdict.result for kind, proof in proofs.items()} == dict.fromkeys(kinds, "refuted")


def test_each_kind_of_each_circuit_has_two_faults():
    assert unguarded(FAULTS_OF_MOVES) == set()
