"""Proofs that a convolution's sums have its products and its weights, for each multiplier; faults that they refute."""

from __future__ import annotations

from dataclasses import replace

import pytest
from convolution_sums import CONFIGS, convolution, obligation_of, of_windows
from proofs import MODULE, emitted, faults_in, marked, proved, with_fault

from hwgen.gateware import multiply_proof, weight_words_proof
from hwgen.obligations.modules import modules_of
from hwgen.obligations.site import Site

pytestmark = pytest.mark.usefixtures("own_cache")

#: Faults by what they are: name of the configuration, text of the emitted Verilog, and faulty text.
FAULTS = faults_in("sums.txt")


def result(config, verilog):
    (proof,) = proved([obligation_of(config, verilog)], verilog).values()
    return proof.verdict


@pytest.mark.parametrize("name", marked(CONFIGS, "two", "slices"))
def test_sums_are_those_of_products(name):
    verdict = result(CONFIGS[name], emitted(CONFIGS[name]))
    assert (verdict.result, verdict.engine) == ("proved", "polynomials"), verdict


def test_configurations_differ_as_their_names_say():
    assert CONFIGS["slices"].accumulates_in_slices
    assert CONFIGS["slices, two"].has_accumulators
    assert CONFIGS["two"].has_accumulators
    assert not CONFIGS["two, one step"].accumulates
    assert (CONFIGS["two"].chains, CONFIGS["plain, one chain"].chains) == (2, 1)


@pytest.mark.parametrize("name", marked(FAULTS, "a carry is missing"))
def test_faults_of_sums_are_refuted(name):
    config, old, new = FAULTS[name]
    verilog = emitted(CONFIGS[config])
    assert old in verilog
    assert result(CONFIGS[config], verilog.replace(old, new)).result == "refuted"


def test_a_miswired_product_in_luts_is_refuted_by_random_values():
    """Its polynomials differ, which proves nothing, and its operands have too many values to try all of them."""
    config = CONFIGS["all in LUTs"]
    verilog = emitted(config)
    assert ".operand_3(activation_0_3_1)" in verilog
    verdict = result(config, verilog.replace(".operand_3(activation_0_3_1)", ".operand_3(activation_0_2_1)"))
    assert (verdict.result, verdict.engine) == ("refuted", "random values")
    assert verdict.detail.endswith("_0 is the stated one")


#: Convolutions, each with the least width of its sums: 4 x 127 x (127 + 128) = 129,540 fits 18 bits,
#: 2 x 127 x 255 = 64,770 fits 17, and 8 x 127 x 128 = 130,048 fits 18.
WIDTHS = {
    "two": convolution(2, sum_bits=18),
    "plain": convolution(1, channels=4, sum_bits=17),
    "loaded": convolution(2, loaded=True, sum_bits=18),
    "windows": of_windows(4, sum_bits=17),
}


@pytest.mark.parametrize("name", marked(WIDTHS, "two"))
@pytest.mark.parametrize("fewer", [0, 1])
def test_an_accumulator_that_is_too_narrow_is_refuted(name, fewer):
    """Each sum wraps as its accumulator does, so that the equation holds up to multiples of a power of two alone."""
    config = replace(WIDTHS[name], sum_bits=WIDTHS[name].sum_bits - fewer)
    assert result(config, emitted(config)).result == ("refuted" if fewer else "proved")


#: Configurations whose weights are in memories.
STORED = [name for name, config in CONFIGS.items() if not config.whole and not config.loaded]
#: Faults of weight memories: name of the configuration, text of the emitted Verilog, and faulty text.
WEIGHT_FAULTS = {
    "a weight is one less": ("two", "48'h817f80817f7f", "48'h817f80817f7e"),
    "a later position reads at the first one's address": ("two", "_1[weight_address_0_1]", "_1[weight_address]"),
    "the address begins again too early": ("two", "weight_address == 2'd3", "weight_address == 2'd2"),
    "the address counts cycles": ("two", "if (i__valid) begin", "if (1'b1) begin"),
    "a word is read in every cycle": ("block", "if (read_enable) weights_data", "weights_data"),
    "a reset keeps the address": ("block", "            weight_address <= 2'd0;\n", ""),
    "a word is late": ("block", "word_1 <= weights_data[95:48];", "if (i__valid) word_1 <= weights_data[95:48];"),
    "words of two positions are swapped": ("two", ".word_0(word_0)", ".word_0(word_1)"),
    "the address is not delayed": ("three", "_1_1 <= weight_address_0_1", "_1_1 <= weight_address"),
}  # fmt: skip


def weight_results(name, edit=lambda verilog: verilog):
    names = {"block": "two, weights in block RAM"}
    config = (
        convolution(2, channels=12, lanes=6, chain=3, weight_seed=3)
        if name == "three"
        else CONFIGS[names.get(name, name)]
    )
    verilog = emitted(config)
    modules = modules_of(verilog)
    stated = weight_words_proof.of_memories(config, Site("", modules[MODULE], modules))
    assert len(stated) == 2
    return [proof.verdict.result for proof in proved(stated, edit(verilog)).values()]


@pytest.mark.parametrize("name", [*marked(STORED, "two", "two, weights in block RAM", "depthwise"), "three"])
def test_weights_are_those_of_the_network(name):
    assert weight_results(name) == ["proved", "proved"]


@pytest.mark.parametrize("name", marked(WEIGHT_FAULTS, "a weight is one less", "the address counts cycles"))
def test_faults_of_weights_are_refuted(name):
    config, old, new = WEIGHT_FAULTS[name]

    def edit(verilog):
        assert old in verilog
        return verilog.replace(old, new)

    assert "refuted" in weight_results(config, edit)


#: Faults at the ports of a convolution's chains: text of the arithmetic's module, and faulty text.
BOUNDARY_FAULTS = {
    "sums are tied to 0": (".o__payload(o__payload)", ".o__payload()"),
    "the flags are swapped": (
        ".i__payload(i__payload)",
        ".i__payload({i__payload[32], i__payload[33], i__payload[31:0]})",
    ),
    "channels are swapped": (
        ".i__payload(i__payload)",
        ".i__payload({i__payload[33:16], i__payload[7:0], i__payload[15:8]})",
    ),
    "lanes are swapped": (
        ".o__payload(o__payload)",
        ".o__payload({o__payload[41:21], o__payload[62:42], o__payload[20:0]})",
    ),
    "a step is always valid": (".i__valid(i__valid)", ".i__valid(1'b1)"),
    "no sum is valid": (".o__valid(o__valid)", ".o__valid()"),
    "the chains are not reset": (".rst(rst)", ".rst(1'b0)"),
}


@pytest.mark.parametrize("name", marked(["", *BOUNDARY_FAULTS], "", "sums are tied to 0", "lanes are swapped"))
def test_faults_at_the_ports_of_chains_are_refuted(name):
    verilog = emitted(CONFIGS["two"])
    modules = modules_of(verilog)
    (stated,) = multiply_proof.connections(CONFIGS["two"], Site("", modules[MODULE], modules))
    if name:
        verilog = with_fault(verilog, MODULE, *BOUNDARY_FAULTS[name])
        if "()" in BOUNDARY_FAULTS[name][1]:
            port = BOUNDARY_FAULTS[name][1].partition("(")[0].removeprefix(".")
            verilog = with_fault(verilog, MODULE, "\nendmodule", f"\n    assign {port} = 0;\nendmodule")
    (proof,) = proved([stated], verilog).values()
    assert proof.verdict.result == ("refuted" if name else "proved")
