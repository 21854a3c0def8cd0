"""UltraScale+: estimates against Yosys' netlists, what its tools lack, and the tests' model of a DSP48E2."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import dsp48
import numpy as np
import pytest
from needs import needs_icarus
from texts import read_text

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
    parts = dict.fromkeys(finish for finish in finishes if finish.sums.has_pre_adders)
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


#: Path of AMD's ``unisims/DSP48E2.v``, from Vivado or from the public XilinxUnisimLibrary.
VENDOR = os.environ.get("UNISIM_DSP48E2", "")

#: Faults in the model: text and faulty text.
FAULTS = {
    "b is unsigned": ("wire signed [17:0] b_operand", "wire [17:0] b_operand"),
    "one register of two": ("AREG == 2 ? a_1 : A", "A"),
    "enable of the wrong register": ("else if (CEB2) b_2", "else if (CEB1) b_2"),
    "no reset": ("if (RSTM) m_register <= 0; else if", "if"),
    "c without its register": ("CREG == 0 ? C", "1'b1 ? C"),
    "opmode without its register": ("OPMODEREG == 0 ? OPMODE", "1'b1 ? OPMODE"),
    "shift by 16": ("PCIN[47:17]", "PCIN[47:16]"),
    "subtraction without a borrow": ("total = z - others", "total = ~z + others"),
    "carry is lost": (" + (CARRYINSEL == 3'b000 && CARRYIN)", ""),
    "cascade from the adder": ("assign PCOUT = P;", "assign PCOUT = total;"),
}
#: Faults in what DSP48E1 does not have.
WIDE_FAULTS = {
    "w is z": ("2'b01: w = p_register", "2'b01: w = z"),
    "w rounds to 0": ("w = RND", "w = 0"),
    "product has 25 bits": ("signed [26:0] a_operand = a[26:0]", "signed [24:0] a_operand = a[24:0]"),
}


def faulty(old: str, new: str) -> str:
    assert dsp48.MODEL.count(old) == 1
    return dsp48.MODEL.replace(old, new)


def check_slice(other: dsp48.Other, folder: Path, count: int) -> None:
    for wrong, moves in dsp48.compare(other, dsp48.settings(1, count), folder):
        assert wrong == 0
        assert moves > dsp48.CYCLES // 2


@needs_icarus
def test_equal_to_dsp48e1_in_what_both_have(tmp_path):
    check_slice(dsp48.of_yosys(), tmp_path, 24)


@needs_icarus
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "shift by 16" else pytest.mark.long) for name in FAULTS]
)
def test_faults_are_found(name, tmp_path):
    outcomes = dsp48.compare(dsp48.of_yosys(), dsp48.settings(1, 24), tmp_path, faulty(*FAULTS[name]))
    assert any(wrong for wrong, _ in outcomes)


@needs_icarus
@pytest.mark.skipif(
    not VENDOR, reason="needs_icarus AMD's model of DSP48E2: set UNISIM_DSP48E2 to the path of its file"
)
def test_equal_to_the_vendors_model(tmp_path):
    other = dsp48.Other("DSP48E2", Path(VENDOR).read_text(), adds_w=True)
    check_slice(other, tmp_path, 100)
    for fault in (FAULTS | WIDE_FAULTS).values():
        assert any(wrong for wrong, _ in dsp48.compare(other, dsp48.settings(1, 24), tmp_path, faulty(*fault)))


SUMS = read_text("dsp48e2_sums.v")


@needs_icarus
@pytest.mark.parametrize("fault", [None, *WIDE_FAULTS])
def test_sums(fault, tmp_path):
    """P + PCIN + A x B, and with C or a constant in the place of P, for operands of 27 and 18 bits."""
    model = dsp48.MODEL if fault is None else faulty(*WIDE_FAULTS[fault])
    lines = dsp48.run(tmp_path, SUMS, dsp48.GLOBAL_RESET, model)
    wrong = 0
    for line in lines:
        a, b, c, pcin, w, before, after = map(int, line.split())
        total = (0, before, 123456789, c)[w] + pcin + a * b
        wrong += (total - after) % (1 << 48) != 0
    assert len(lines) == 500
    assert (wrong > 0) == (fault is not None)


PRODUCTS = """
module bench;
    reg [26:0] a = 0; reg [17:0] b = 0; wire [44:0] y;
    \\$__MUL27X18 product (.A(a), .B(b), .Y(y));
    initial repeat (500) begin
        a = $random; b = $random;
        #1 $display("%0d %0d %0d", $signed(a), $signed(b), $signed(y));
    end
endmodule
"""


@needs_icarus
def test_products_that_yosys_maps(tmp_path):
    """The instance of DSP48E2 that Yosys writes for a product, without registers."""
    rules = (dsp48.YOSYS_CELLS / "xcu_dsp_map.v").read_text()
    lines = dsp48.run(tmp_path, PRODUCTS, dsp48.GLOBAL_RESET, dsp48.MODEL, rules)
    a, b, y = np.array([line.split() for line in lines], np.int64).T
    assert len(lines) == 500
    assert np.array_equal(a * b, y)
