"""Digests of designs as commit 1d2df50 made them, and of engines and a program, since engines multiply maps.

What users hold stays valid.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from interpret import run_outputs

import hwgen
from hwgen import frozen
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.gateware.load.image import fields_of
from hwgen.gateware.names import file_name
from hwgen.network import golden
from hwgen.program.file import Program

ROOT = Path(__file__).resolve().parents[2]
SMALL = EngineConfig(pixels=5)
PROGRAM = Path(__file__).parents[1] / "kept" / "decoilfnet-example.program.gz"


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (EngineConfig(), "e31bdbce2c2578f4"),
        (EngineConfig(maps=16, pixels=5, map_words=512, weight_steps=512), "31f2433966bfee98"),
        (EngineConfig(maps=64, pixels=25, bus_bytes=16, slots=16), "1ef901c9a0ac4256"),
    ],
)
def test_digests_of_engines(engine, expected):
    assert digest(engine) == expected


def test_digests_of_an_engine_for_ultrascale_plus():
    """As commit edd68bbc made it, before layers of this family had instances of slices."""
    design = hwgen.load("decoilfnet-example").plan("kv260", template="engine", cores=1, array=(8, 5), bus_bits=128)
    assert digest(design.plan.groups[0].template.engine) == "ebd1406072493cba"


@pytest.mark.parametrize(
    ("source", "board", "options", "expected"),
    [
        (str(ROOT / "examples" / "digits" / "digits.onnx"), "zedboard", {}, 0x4B0D99F9E9C03543),
        ("resnet8", "zedboard", {}, 0xDDEBD947EB3D82C1),
        pytest.param("mobilenetv1-0.25", "vc709", {"dsp": 300}, 0x4DE76F8859425E8C, marks=pytest.mark.long),
    ],
)
def test_digests_of_designs_that_load_weights(source, board, options, expected):
    design = hwgen.load(source).plan(board, weights="runtime", **options)
    assert design.config.loader is not None
    assert design.config.loader.digest == expected


def kept_program(folder: Path) -> Path:
    path = folder / PROGRAM.stem
    path.write_bytes(gzip.decompress(PROGRAM.read_bytes()))
    return path


def test_an_old_program_is_read_and_does_the_same(tmp_path):
    program = Program.read(kept_program(tmp_path), SMALL)
    model = hwgen.load("decoilfnet-example")
    frames = model.random_frames(1, seed=3)
    (outputs,) = run_outputs(program, frames)
    (expected,) = golden.outputs(model.network, (frames,))
    np.testing.assert_array_equal(outputs, expected)


@pytest.mark.long
def test_an_old_program_runs_on_an_engine_of_today(tmp_path):
    model = hwgen.load("decoilfnet-example")
    design = model.plan("zedboard", template="engine", cores=1, array=(8, 5), bus_bits=64)
    engine = design.build(tmp_path / file_name("engine"))
    result = model.run(engine, kept_program(tmp_path), model.random_frames(2, seed=3))
    assert result.mismatches == 0
    assert result.latency == result.predicted_latency


# Renamed classes and fields.


@dataclass(frozen=True)
class Window:
    size: int
    taps: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Kernel:
    FROZEN_NAME: ClassVar[str] = "Window"
    side: int = field(metadata=frozen.frozen("size"))
    taps: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Layer:
    window: Window | Kernel
    more: tuple[Window | Kernel, ...] = ()


def test_renamed_classes_and_fields_have_their_old_text():
    before = Layer(Window(3, (1, 2)), (Window(5),))
    after = Layer(Kernel(3, (1, 2)), (Kernel(5),))
    assert frozen.text(before) == repr(before)
    assert frozen.text(after) == repr(before) != repr(after)
    assert frozen.text([{"a": (Kernel(1),)}]) == repr([{"a": (Window(1),)}])


def test_fields_that_are_never_digested():
    """Whatever their value, they are in no digest, and other fields stay."""

    @dataclass(frozen=True)
    class Slice:
        bits: int
        cells: str = field(default="", metadata=frozen.never_digested())

    assert frozen.text(Slice(3)) == frozen.text(Slice(3, "DSP48E2"))
    assert frozen.text(Slice(3, "DSP48E2")).endswith("Slice(bits=3)")
    assert fields_of(Slice(3, "DSP48E2")) == {"bits": "3"}


def test_a_subclass_of_a_renamed_class_has_its_own_name():
    @dataclass(frozen=True)
    class Wide(Kernel):
        pass

    assert frozen.class_name(Kernel) == "Window"
    assert frozen.class_name(Wide).endswith("Wide")


def test_own_texts_stay():
    @dataclass(frozen=True, repr=False)
    class Sealed:
        value: int = 1

        def __repr__(self) -> str:
            return "<sealed>"

    assert frozen.text((Sealed(),)) == "(<sealed>,)"
