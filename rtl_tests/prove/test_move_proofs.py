"""Proofs of circuits that move values: upsamplings, concatenations, copies, gates, and serialisers of uneven folds.

Each is proved at small shapes that are drawn at random. Faults seeded in the Verilog must be refuted.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from amaranth import Shape
from proofs import MODULE, emitted, marked, of_component, proved, results, unguarded, with_fault

from hwgen.gateware.join import JoinConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.unload import UnloadConfig
from hwgen.gateware.upsample import UpsampleConfig

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")


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


UPSAMPLING = UpsampleConfig(input=two(channels=4, pixels=2), factors=(2, 2))
IN_TURN = JoinConfig(inputs=(two(bits=3), two(channels=1)), in_turn=True)
COPY = JoinConfig(inputs=(two(),), in_turn=True)
SPREAD = JoinConfig(inputs=(two(), two(height=1, width=1)), spread=True)
UNEVEN = UnloadConfig(channels=5, lanes_in=3, lanes_out=3, shape=Shape(2), clears=True, pixels=2)
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
FAULTS: dict[str, tuple[Any, set[str], str, str]] = {
    "upsampling steps to the next beat": (UPSAMPLING, {"tokens"}, "beat_address - 2'd1", "beat_address"),
    "upsampling starts a row at the second beat": (
        UPSAMPLING,
        {"tokens"},
        "beat_address <= 2'd0;",
        "beat_address <= 2'd1;",
    ),
    "upsampling reads where it writes": (
        UPSAMPLING,
        {"tokens"},
        "row_read_address_1 <= write_address",
        "row_read_address_1 <= beat_address",
    ),
    "upsampling repeats the first pixel": (
        UPSAMPLING,
        {"tokens"},
        "column_repeat_3 ? row_data[3:2]",
        "1'b0 ? row_data[3:2]",
    ),
    "upsampling swaps lanes": (
        UPSAMPLING,
        {"tokens"},
        "row_data[7:6] : row_data[5:4]",
        "row_data[3:2] : row_data[5:4]",
    ),
    "upsampling drops a word": (
        UPSAMPLING,
        {"tokens"},
        "if (write_enable) row",
        "if (write_enable & !write_word[0]) row",
    ),
    "upsampling takes a beat twice": (
        UPSAMPLING,
        {"tokens", "progress"},
        "!row_repeat & !column_repeat",
        "!column_repeat",
    ),
    "upsampling ends rows early": (UPSAMPLING, {"tokens", "progress"}, "column_index == 2'd2", "column_index == 2'd1"),
    "upsampling loses a step": (UPSAMPLING, {"tokens"}, "o__valid <= valid_2;", "o__valid <= valid_2 & valid_1;"),
    "upsampling waits for beats that it has": (
        UPSAMPLING,
        {"progress"},
        "room & (i__valid | !is_first_repeat)",
        "room & i__valid",
    ),
    "inputs are swapped": (IN_TURN, {"tokens", "progress"}, "fold == 2'd2;", "fold != 2'd2;"),
    "an input has a beat more": (
        IN_TURN,
        {"tokens", "progress"},
        "input_index = fold == 2'd2",
        "input_index = fold == 2'd3",
    ),
    "another input's values": (IN_TURN, {"tokens"}, "i_1__payload[3:2]", "i_0__payload[3:2]"),
    "another input's index": (IN_TURN, {"tokens"}, "o__payload[6] <= input_index", "o__payload[6] <= 1'b0"),
    "an input is ready out of turn": (IN_TURN, {"tokens", "progress"}, "!input_index & start", "start"),
    "a concatenation waits": (IN_TURN, {"progress"}, "start = room & ", "start = room & !o__valid & "),
    "a copy swaps lanes": (
        COPY,
        {"tokens"},
        "o__payload[1:0] <= i__payload[1:0]",
        "o__payload[1:0] <= i__payload[3:2]",
    ),
    "a copy changes a bit": (COPY, {"tokens"}, "<= i__payload[3:2]", "<= i__payload[3:2] ^ 2'd1"),
    "a copy loses beats": (COPY, {"tokens", "progress"}, "assign i__ready = start", "assign i__ready = room"),
    "a kept beat is written twice": (
        SPREAD,
        {"tokens"},
        "write_enable <= start & is_first_window",
        "write_enable <= start",
    ),
    "kept beats are mixed": (SPREAD, {"tokens"}, "read_address_1 <= write_fold_index", "read_address_1 <= 1'b0"),
    "a frame has a pixel less": (SPREAD, {"tokens", "progress"}, "window_index == 3'd5", "window_index == 3'd4"),
    "a gate is a cycle early": (SPREAD, {"tokens"}, "operand_0_2 <= operand_0_1", "operand_0_2 <= step[3:0]"),
    "a gate waits for its kept beat": (SPREAD, {"progress"}, "(i_1__valid | !is_first_window)", "i_1__valid"),
    "a lane is not cleared": (UNEVEN, {"tokens"}, "!beat_index ? 2'd3 : 2'd2", "2'd3"),
    "a lane too many is cleared": (UNEVEN, {"tokens"}, "channel_count > 2'd1", "channel_count > 2'd2"),
    "results are counted without valid": (UNEVEN, {"tokens"}, "if (i__valid) begin", "begin"),
    "the first fold is cleared": (
        UNEVEN,
        {"tokens"},
        "beat_index <= beat_index ? 1'b0",
        "beat_index <= beat_index ? 1'b1",
    ),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


def test_shapes_differ():
    for name in DRAWS:
        assert len(set(shapes(name))) >= SHAPES - 2


@pytest.mark.parametrize(
    "config", [UPSAMPLING, IN_TURN, COPY, SPREAD, UNEVEN], ids=["upsampling", "turn", "copy", "spread", "uneven"]
)
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


@pytest.mark.parametrize("name", marked(FAULTS, "upsampling steps to the next beat", "inputs are swapped"))
def test_faults_are_refuted(name):
    config, kinds, old, new = FAULTS[name]
    sound = emitted(config)
    found = [each for each in of_component(config, sound) if each.kind in kinds]
    assert {each.kind for each in found} == kinds
    proofs = proved(found, with_fault(sound, MODULE, old, new))
    assert {kind: proof.verdict.result for kind, proof in proofs.items()} == dict.fromkeys(kinds, "refuted")


def test_each_kind_of_each_circuit_has_two_faults():
    assert unguarded(FAULTS) == set()
