"""UltraScale+: estimates against Yosys' netlists for its cells, and what its tools lack."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.cli import main as cli
from hwgen.devices import family_of
from hwgen.emit import synthesis
from hwgen.gateware.requantise import RequantiseConfig

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
        pytest.param("decoilfnet-example", {"multipliers": "lut", "lut": 20_000}, marks=pytest.mark.long),
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
