"""Proofs of sums of products: convolutions, dot products in LUTs and constant weights; faults that they refute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from amaranth import Shape
from convolution_sums import CONFIGS, convolution, obligation_of, of_windows
from proofs import MODULE, emitted, faults_in, marked, proved, with_fault

from hwgen.gateware import lut_products_proof, multiply_proof, weight_words_proof
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.lut_products import LutProductsConfig
from hwgen.gateware.multipliers import DotProducts, LutMultiplier
from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.gateware.multipliers.constant import ConstantMultiplier
from hwgen.gateware.multipliers.narrow import BinaryMultiplier, NarrowMultiplier
from hwgen.gateware.multipliers.selected import SelectedMultiplier
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Site

pytestmark = pytest.mark.usefixtures("own_cache")

#: Faults by what they are: name of the configuration, text of the emitted Verilog, and faulty text.
FAULTS = faults_in("sums.txt")


def result(config, verilog):
    (proof,) = proved([obligation_of(config, verilog)], verilog).values()
    return proof.verdict


@pytest.mark.parametrize("name", marked(CONFIGS, "two", "slices"))
def test_sums_are_those_of_products(name):
    verdict = result(CONFIGS[name], emitted(CONFIGS[name]))
    assert (verdict.result, verdict.engine) == ("proved", "algebra"), verdict


def test_configurations_differ_as_their_names_say():
    assert CONFIGS["slices"].pipeline.accumulates_in_slices
    assert CONFIGS["slices, two"].pipeline.has_accumulators
    assert CONFIGS["two"].pipeline.has_accumulators
    assert not CONFIGS["two, one step"].accumulates
    assert (CONFIGS["two"].chains.count, CONFIGS["plain, one chain"].chains.count) == (2, 1)


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
STORED = [name for name, config in CONFIGS.items() if not config.kinds.whole and not config.loaded]
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


def products(
    multiplier: LutMultiplier, bits: int = 8, *, signed: bool = True, weight_bits: int = 8, steps: int = 0, bias=(),
    terms: tuple[int, ...] = (2, 1), sum_bits: tuple[int, ...] = (19, 12),
) -> LutProductsConfig:  # fmt: skip
    """Return dot products of two output channels, the second of which wraps; ``steps`` is the number of constants."""
    low, high = multiplier.weight_range(weight_bits)
    rng = np.random.default_rng(3)
    constants = rng.integers(low, high + 1, (2, sum(terms), steps)).tolist()
    return LutProductsConfig(
        multiplier,
        DotProducts(
            operand=Shape(bits, signed=signed),
            weight_bits=weight_bits,
            weight_range=(low, high),
            terms=terms,
            sum_bits=sum_bits,
            constants=tuple(tuple(map(tuple, channel)) for channel in constants) if steps else None,
            bias=bias,
        ),
    )


DOTS = {
    "booth": products(BoothMultiplier()),
    "booth, seven terms": products(BoothMultiplier(), 5, weight_bits=5, terms=(3, 3, 1), sum_bits=(19, 9)),
    "narrow, signed": products(NarrowMultiplier(), weight_bits=4),
    "narrow, unsigned": products(NarrowMultiplier(), 4, signed=False, weight_bits=3, terms=(3, 2)),
    "binary": products(BinaryMultiplier(), signed=False, terms=(3, 2)),
    "binary, signed": products(BinaryMultiplier(), 5),
    "constant": products(ConstantMultiplier(), steps=1, bias=(77, -5)),
    "constant, unsigned": products(ConstantMultiplier(), 4, signed=False, weight_bits=4, steps=1),
    "selected": products(SelectedMultiplier(), 5, weight_bits=5, steps=3, sum_bits=(19, 9)),
    "selected, unsigned": products(SelectedMultiplier(), 4, signed=False, weight_bits=5, steps=4),
}
WIDE = {
    "booth, seven terms of 8 bits": products(BoothMultiplier(), terms=(3, 3, 1)),
    "selected, 8 bits": products(SelectedMultiplier(), steps=3),
}


def obligation_of_dots(config, verilog):
    modules = modules_of(verilog)
    (name,) = (name for name in modules if name.endswith(f"_{config.module_name}"))
    return lut_products_proof.of_products(config, Site("", modules[name], modules))


#: Faults by what they are: name of the configuration, text of the emitted Verilog, and faulty text.
FAULTS_OF_DOTS = faults_in("dots.txt")


def verdict_of_dots(config, verilog, **options):
    (proof,) = proved([obligation_of_dots(config, verilog)], verilog, **options).values()
    return proof.verdict


@pytest.mark.parametrize("name", [*DOTS, *(pytest.param(name, marks=pytest.mark.long) for name in WIDE)])
def test_dot_products_are_sums_of_products(name):
    config = (DOTS | WIDE)[name]
    verdict = verdict_of_dots(config, emitted(config))
    assert (verdict.result, verdict.engine) == ("proved", "algebra"), verdict


@pytest.mark.parametrize("name", marked(FAULTS_OF_DOTS, "the sign's row is added"))
def test_faults_of_dot_products_are_refuted(name):
    chosen, old, new = FAULTS_OF_DOTS[name]
    config = (DOTS | WIDE)[chosen]
    verilog = emitted(config)
    modules = modules_of(verilog)
    obligation = obligation_of_dots(config, verilog)
    circuit = Site("", modules[obligation.module], modules)
    texts = [circuit.module.text, *(modules[kind].text for kind in circuit.module.instances.values())]
    assert any(old in text for text in texts)
    assert verdict_of_dots(config, verilog.replace(old, new)).result == "refuted"


def constant_convolution(
    outputs: int = 3, *, channels: int = 2, taps: int = 4, pixels: int = 1, **options
) -> MultiplyConfig:
    """Return a convolution of 2 x 2 taps, two input channels and three output channels at once, all in LUTs."""
    window = LineBufferConfig(
        input=BeatFormat(channels=channels, height=3, width=4, lanes=2, bits=8, signed=False),
        kernel=(2, 2),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        pad_value=0,
        taps=taps,
        output_folds=-(-outputs // 3),
        channelwise=False,
        rows=2,
        pixels=pixels,
    )
    weights = np.random.default_rng(3).integers(-127, 128, outputs * channels * 4).tolist()
    return MultiplyConfig(
        window=window,
        outputs=outputs,
        lanes=3,
        weights=Weights(weights),
        weight_bits=8,
        sum_bits=22,
        lut_lanes=3,
        **options,
    )


CONSTANT = {
    "a window a cycle": constant_convolution(bias=(70, -3, 0)),
    "two pixels": constant_convolution(pixels=2),
    "two folds": constant_convolution(5),
    "two steps": constant_convolution(channels=3),
    "two folds of two steps": constant_convolution(5, taps=2),
}


def obligation_of_constants(config, verilog):
    modules = modules_of(verilog)
    (obligation,) = multiply_proof.of_convolution(config, Site("", modules[MODULE], modules))
    return obligation


def result_of_constants(config, verilog, stated=None):
    """Return the result of a configuration's obligation, or of that of the configuration ``stated``."""
    (proof,) = proved([obligation_of_constants(stated or config, verilog)], verilog).values()
    return proof.verdict.result


@pytest.mark.parametrize("name", marked(CONSTANT, "a window a cycle", "two folds of two steps"))
def test_sums_have_the_weights_of_the_network(name):
    assert result_of_constants(CONSTANT[name], emitted(CONSTANT[name])) == "proved"


def other_weights(config: MultiplyConfig, first: int, second: int) -> MultiplyConfig:
    """Return a configuration in which two weights are swapped."""
    weights = list(config.weights.values)
    weights[first], weights[second] = weights[second], weights[first]
    return replace(config, weights=Weights(weights))


#: Indices of weights that are swapped: of taps, of input channels, and of output channels.
SWAPPED = {"taps": (0, 1), "input channels": (0, 4), "output channels": (0, 8)}


@pytest.mark.parametrize("name", marked(SWAPPED, "output channels"))
def test_swapped_weights_are_refuted(name, monkeypatch):
    config = CONSTANT["a window a cycle"]
    verilog, instances = emitted(config), lut_products_proof.instances(config)
    stated = other_weights(config, *SWAPPED[name])
    # the dot products stay those of the emitted configuration
    monkeypatch.setattr(multiply_proof.dots, "instances", lambda _: instances)
    assert result_of_constants(config, verilog, stated) == "refuted"


#: Faults by what they are: name of the configuration, text of the emitted Verilog, and faulty text.
FAULTS_OF_CONSTANTS = {
    "an operand is another tap's": ("a window a cycle", ".operand_3(activation_1_1_1)", ".operand_3(activation_2_1_1)"),
    "an operand is early": ("a window a cycle", ".operand_3(activation_1_1_1)", ".operand_3(activation_1_1)"),
    "the step is early": ("two folds", ".step(step_delayed_1)", ".step(step)"),
    "a sum is not cleared": ("two steps", "is_first_step_delayed_1 ? 22'd0 :", "1'b0 ? 22'd0 :"),
}


@pytest.mark.parametrize("name", marked(FAULTS_OF_CONSTANTS, "an operand is early"))
def test_faults_of_constant_sums_are_refuted(name):
    shape, old, new = FAULTS_OF_CONSTANTS[name]
    verilog = emitted(CONSTANT[shape])
    assert old in modules_of(verilog)[MODULE].text
    assert result_of_constants(CONSTANT[shape], verilog.replace(old, new)) == "refuted"


def test_a_missing_module_of_dot_products_is_an_error():
    config = CONSTANT["a window a cycle"]
    modules = modules_of(emitted(config))
    ((name, *_),) = lut_products_proof.instances(config).values()
    text = modules[MODULE].text.replace(f" {name} (", " other (")
    with pytest.raises(LookupError, match=f"has no instance {name}"):
        multiply_proof.of_convolution(config, Site("", replace(modules[MODULE], text=text), modules))
