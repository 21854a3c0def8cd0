"""Proofs of scales and bounds that are known only at run time, and faults that they must refute."""

import pytest
from proofs import ALONE, MODULE, emitted, marked, of_component, proved, with_fault

from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import ScaleConfig

pytestmark = ALONE

SCALE, BOUND = ScaleConfig(), BoundConfig(bits=11)
#: Component, begin of the statement that refutes a fault, text of the Verilog, and faulty text.
FAULTS = {
    "mantissa ties go up": (SCALE, "The sum", "((|normalised_value[6:0]) | normalised_value[8])", "1'b1"),
    "a shift is too short": (SCALE, "The sum", "normalised_0_1} << 3'd6", "normalised_0_1} << 3'd4"),
    "a bias is not added": (SCALE, "The sum", "$signed(sum) + $signed(bias)", "$signed(sum)"),
    "a negative row is not corrected": (SCALE, "The rows", "digits_1_1[4]});", "1'b0});"),
    "a row has another digit": (SCALE, "The rows", "digits_1_1[5] != digits_1_1[6]", "digits_1_1[5] == digits_1_1[6]"),
    "a slice loses a bit": (SCALE, "The product of", "slice_mantissa_1 * ", "slice_mantissa_1[22:0] * "),
    "a part loses a bit": (SCALE, "The products of", "{16'd0, row_sum_3[27:3]}", "{17'd0, row_sum_3[26:3]}"),
    "float32 is left out": (SCALE, "A product", "(!half_step_bit_1 & all_set)", "1'b0"),
    "a large result wraps": (SCALE, "A product", "is_beyond_delayed_2 & ", "1'b0 & "),
    "a carry is left out": (BOUND, "The output", "zero_point, carry}", "zero_point, 1'b0}"),
    "the lower bound is left out": (BOUND, "The output", "$signed(unbounded_1) < $signed(low)", "1'b0"),
}


def test_each_obligation_has_a_fault():
    for config in (SCALE, BOUND):
        for obligation in of_component(config, emitted(config)):
            if obligation.kind != "reset":
                assert any(obligation.statement.startswith(begin) for _, begin, _, _ in FAULTS.values()), obligation


@pytest.mark.parametrize("name", marked(FAULTS, "a carry is left out"))
def test_faults_are_refuted(name):
    config, begin, old, new = FAULTS[name]
    verilog = with_fault(emitted(config), MODULE, old, new)
    affected = [each for each in of_component(config, verilog) if each.statement.startswith(begin)]
    assert {proof.verdict.result for proof in proved(affected, verilog).values()} == {"refuted"}


@pytest.mark.long
@pytest.mark.parametrize("config", [SCALE, ScaleConfig(sum_bits=20), BOUND, BoundConfig(bits=12)])
def test_scales_and_bounds_are_proved(config):
    proofs = proved(of_component(config, emitted(config)), emitted(config))
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}
