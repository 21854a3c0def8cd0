"""UltraScale+: estimates against Yosys' netlists for its cells, and what its tools lack."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import dsp48
import numpy as np
import pytest

import hwgen
from hwgen.cli import main as cli
from hwgen.devices import family_of
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.simulate import runner
from hwgen.tools import synthesis
from hwgen.verilog import emitted

DIGITS = str(Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx")


@pytest.mark.long
def test_requantisers_use_the_adder_in_front_of_the_multiplier():
    """Yosys finds the slices of a requantiser that adds its bias in front of the multiplier of a slice."""
    design = hwgen.load(DIGITS).plan("kv260", multipliers="dsp")
    finishes = [layer.finish for layer in design.config.layers if isinstance(layer.finish, RequantiseConfig)]
    parts = dict.fromkeys(finish for finish in finishes if finish.has_pre_adders)
    measured = synthesis.measure([*parts], design.board.family)
    assert [found.dsp for found in measured] == [part.resources.dsp for part in parts]
    assert all(found.dsp for found in measured)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("decoilfnet-example", {"dsp": 40, "multipliers": "dsp"}),
        pytest.param(
            "decoilfnet-example", {"dsp": 60, "multipliers": "dsp", "macs_per_dsp": 2}, marks=pytest.mark.long
        ),
        pytest.param("resnet8", {"dsp": 120, "multipliers": "dsp"}, marks=pytest.mark.long),
        pytest.param("decoilfnet-example", {"multipliers": "lut", "lut": 12_000}, marks=pytest.mark.long),
    ],
)
def test_estimates(model, options):
    """DSP slices and block RAM are equal in each component, LUTs of the whole within 5 %."""
    design = hwgen.load(model).plan("ultra96-v2", **options)
    result = synthesis.Synthesis(synthesis.synthesise(design.config, device=design.board.family).rows)
    for row in result.rows:
        assert (row.measured.dsp, row.measured.bram36) == (row.estimate.dsp, row.estimate.bram36), row.name
    assert result.measured.lut == pytest.approx(result.estimate.lut, rel=0.05)
    assert result.measured.ff == pytest.approx(result.estimate.ff, rel=0.05)
    assert result.measured.dsp or options["multipliers"] == "lut"


def with_cells(files: Mapping[str, bytes], model: str = dsp48.MODEL) -> dict[str, bytes]:
    """Return files with the form for synthesis of modules that have two, and a model of DSP48E2."""
    return {
        name: text.replace(b"`ifdef SYNTHESIS", b"`ifndef MODEL") + model.encode() if name.endswith(".v") else text
        for name, text in files.items()
    }


def check(model: hwgen.Model, frames: np.ndarray, form: str, monkeypatch, simulator: str, **options) -> None:
    """Outputs are the golden model's and cycles the plan's, with the behaviour of slices and with their cells."""
    if simulator == "icarus" and shutil.which("iverilog") is None:
        pytest.skip("Icarus is not installed")
    design, written = model.plan("kv260", multipliers="dsp", **options), []

    def files(*given, **fields):
        written.append(emitted.files(*given, **fields, device=design.board.family))
        return with_cells(written[-1]) if form == "cells" else written[-1]

    monkeypatch.setattr(runner, "files", files)
    result = design.simulate(frames, simulator=simulator)
    assert (result.mismatches, result.as_predicted) == (0, True)
    assert design.simulate(frames, simulator=simulator, stalls=(0.3, 0.4)).mismatches == 0
    assert written
    assert all(b"    DSP48E2 #(" in b"".join(texts.values()) for texts in written)


@pytest.mark.parametrize("form", ["behaviour", "cells"])
def test_a_small_network(form, monkeypatch):
    model = hwgen.load("decoilfnet-example")
    check(model, model.random_frames(2), form, monkeypatch, "icarus", dsp=40)


@pytest.mark.long
@pytest.mark.parametrize("form", ["behaviour", "cells"])
@pytest.mark.parametrize(
    ("simulator", "options"),
    [
        ("icarus", {"dsp": 40}),
        ("verilator", {"dsp": 60}),
        ("verilator", {"dsp": 209}),
        ("verilator", {"dsp": 300, "macs_per_dsp": 1}),
        ("verilator", {"dsp": 200, "weights": "runtime"}),
    ],
    ids=str,
)
def test_digits(simulator, options, form, monkeypatch):
    frames = np.load(Path(DIGITS).with_name("images.npy"))[: 1 if simulator == "icarus" else 20]
    check(hwgen.load(DIGITS), frames, form, monkeypatch, simulator, **options)


def test_a_fault_of_slices_is_seen(monkeypatch):
    """Simulations of the cells are of the cells: a fault in their model gives other outputs."""
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus is not installed")
    model = dsp48.MODEL.replace("a_operand * b_operand", "a_operand * b_operand + 1")
    network = hwgen.load("decoilfnet-example")
    design = network.plan("kv260", multipliers="dsp", dsp=40)
    device = design.board.family
    monkeypatch.setattr(
        runner, "files", lambda *given, **fields: with_cells(emitted.files(*given, **fields, device=device), model)
    )
    assert design.simulate(network.random_frames(1), simulator="icarus").mismatches


def test_no_delays(capsys):
    command = ["synth", "decoilfnet-example", "--board", "zcu104", "--dsp", "40", "--paths"]
    assert cli.main(command) == 2
    assert capsys.readouterr().err.endswith("hwgen: Yosys knows no delays of UltraScale+ devices: leave out --paths\n")


@pytest.mark.long
def test_verilog_has_the_carry_cells_of_the_family(tmp_path):
    """Products in LUTs use CARRY8 for UltraScale+, and CARRY4 for the 7 series."""
    for board, cell, other in (("kv260", "CARRY8", "CARRY4"), ("zedboard", "CARRY4", "CARRY8")):
        design = hwgen.load("decoilfnet-example").plan(board, multipliers="lut", lut=20_000)
        folder = design.build(tmp_path / board)
        text = (folder / "decoilfnet_example.v").read_text()
        assert f"{cell} carry_0 (" in text
        assert other not in text


@pytest.mark.parametrize("part", ["xck26-sfvc784-2LV-c", "xczu3eg-sbva484-1-i", "XCVU13P-FHGA2104-2L-E", "xau7p"])
def test_family(part):
    family = family_of(part)
    assert (None if family is None else family.name) == (None if part == "xau7p" else "ultrascale+")
