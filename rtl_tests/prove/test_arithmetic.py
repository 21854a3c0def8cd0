"""Proofs of arithmetic for all operands, against definitions written independently; faults that they must refute."""

from __future__ import annotations

import itertools
import subprocess
import time
from dataclasses import replace

import numpy as np
import pytest
from convolution_sums import convolution
from needs import needs_icarus
from proofs import MODULE, chain, emitted, marked, with_fault

from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.errors import InputError
from hwgen.gateware import layer_proof, multiply_proof, requantise_proof
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.obligations.modules import VerilogModule, modules_of
from hwgen.obligations.obligation import Site
from hwgen.prove import discharge
from hwgen.prove.methods import exhaustive
from hwgen.prove.methods.cones import FALSE, Cone
from hwgen.prove.verdict import Deadline
from hwgen.prove.wrapper import wrapped
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert
from hwgen.verilog.emitted import files

REQUANTISE = RequantiseConfig(
    lanes=1,
    accumulator_bits=10,
    bias=(100, -300),
    beats=((0,), (1,)),
    significand=((1 << 24) - 1, 1 << 23),
    shift=(25, 24),
    zero_point=3,
    low=-128,
    high=127,
    bits=8,
    signed=True,
    float32=True,
)


def site(config, verilog):
    modules = modules_of(verilog)
    return Site("", modules[MODULE], modules)


def verdicts(found, verilog, tmp_path, seconds=100):
    modules = modules_of(verilog)
    results = []
    for number, each in enumerate(found):
        folder = tmp_path / str(number)
        folder.mkdir(parents=True)
        results.append(exhaustive.check(each, wrapped(each, modules), folder, Deadline.after(seconds)))
    return results


def multiply(macs_per_dsp, bits=8, **options):
    """Return a convolution of 1 x 1 taps with two input channels, both at once, whose chains have any length."""
    return convolution(macs_per_dsp, bits, channels=2, lanes=2, sum_bits=2 * bits + 2, chain=16, **options)


def instantiated(config: MultiplyConfig) -> MultiplyConfig:
    """Return a configuration whose slices UltraScale+ instantiates."""
    made = replace(config, window=replace(config.window, device=ULTRASCALE_PLUS))
    assert made.pipeline.instantiated
    return made


#: Text of the emitted requantiser, and faulty text.
REQUANTISER_FAULTS = {
    "the half is one too large": ("37'sd4412407807", "37'sd4412407808"),
    "ties go up": ("(&partial_product_0_0_1[24:0]) ? 1'b1 : ", ""),
    "the highest output is missing": ("8'd255", "8'd254"),
    "the factor is early": ("factor[beat_index_2_1]", "factor[beat_index_1_1]"),
    "a sum is late": ("$signed(shifted_0) * ", "$signed(sum_0) * "),
    "the bias of one channel is one too large": ("bias[1] = 10'h2d4", "bias[1] = 10'h2d5"),
    "the factor of one channel is one too small": ("factor[0] = 24'hffffff", "factor[0] = 24'hfeffff"),
    "two channels are swapped": ("left[0] = 1'h0; left[1] = 1'h1", "left[0] = 1'h1; left[1] = 1'h0"),
}
#: Requantiser whose products of odd channels are next to ties, which float32 rounds to the tie.
BESIDE_TIES = replace(REQUANTISE, accumulator_bits=14, bias=(5,), beats=((0,),), significand=(9053822,), shift=(28,))
#: Requantisers whose lanes, constants or rounding differ from `REQUANTISE`.
REQUANTISERS = {
    "ties": REQUANTISE,
    # A lane without a channel in the last beat: its output is 0 there.
    "idle-lane": replace(REQUANTISE, lanes=2, bias=(100, -300, 7), beats=((0, 1), (2,)), significand=(9 << 20,) * 3,
                         shift=(25, 24, 30)),
    # Beats with equal constants, so that the module has no beat index.
    "one-scale": replace(REQUANTISE, bias=(5, 5, 5), beats=((0,), (1,), (2,)), significand=(10 << 20,) * 3, 
                         shift=(26,) * 3),
    "exact": replace(REQUANTISE, float32=False, bits=16, low=-32768, high=32767, shift=(20, 19)),
    "no-shift": replace(REQUANTISE, bias=(5, 0), significand=(3, 1), shift=(0, 1)),
}  # fmt: skip
PRODUCT_FAULTS = {
    "the sign is not extended": ("{8{word_0[7]}}", "8'd0"),
    "the upper weight is not less 1": ("{word_0[15:7], ", "{word_0[15:8], "),
    "an activation is early": ("$signed(activation_0_1_2) *", "$signed(activation_0_1_1) *"),
    "the offset is missing": ("i__payload[7:0] ^ 8'd128", "i__payload[7:0]"),
}
#: Faults of products in slices that are instantiated: start of the module's name, text, and faulty text.
SLICE_FAULTS = {
    "the sign is not extended": (f"{MODULE}_chains", "{8{word_0[7]}}", "8'd0"),
    "the upper weight is not less 1": (f"{MODULE}_chains", "{word_0[15:7], ", "{word_0[15:8], "),
    "the offset is missing": (f"{MODULE}_chains", "i__payload[7:0] ^ 8'd128", "i__payload[7:0]"),
    "chains are crossed": (f"{MODULE}_chains", ".activation_1(activation_0_1)", ".activation_1(activation_0_0)"),
    "an activation is early": ("top_slice_chain_", "$signed(activation_1_2) *", "$signed(activation_1_1) *"),
    "a weight is early": ("top_slice_chain_", "* $signed(weight_0_1)", "* $signed(weight_0)"),
}


def requantiser_proofs(config, verilog, tmp_path):
    found = requantise_proof.of_requantiser(config, site(config, verilog))
    return verdicts(found, verilog, tmp_path)


def sum_proofs(config, verilog, tmp_path):
    inner = site(config, verilog).inner("chains")
    assert inner is not None
    return verdicts([multiply_proof.of_chains(config, inner)], verilog, tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        *(pytest.param(config, id=name) for name, config in REQUANTISERS.items()),
        pytest.param(BESIDE_TIES, id="beside-ties", marks=pytest.mark.long),
    ],
)
def test_a_requantiser_equals_its_definition(config, tmp_path):
    results = requantiser_proofs(config, emitted(config), tmp_path)
    assert len(results) == config.lanes
    assert {(verdict.result, verdict.detail, verdict.is_covered) for verdict in results} == {("proved", "", True)}


def test_a_channel_without_its_own_scale_is_refuted(tmp_path):
    config = REQUANTISERS["one-scale"]
    assert "beat_index" not in emitted(config)
    other = replace(config, significand=(*config.significand[:2], config.significand[2] + 1))
    (verdict,) = verdicts(
        requantise_proof.of_requantiser(other, site(config, emitted(config))), emitted(config), tmp_path
    )
    assert verdict.result == "refuted"


def test_channels_in_another_order_than_the_serialiser_s_are_refuted(tmp_path):
    config, _ = chain()
    layer, pool = config.layers
    assert layer.finish.beats == layer.unload.beats == ((0,), (1,), (2,), (3,), (4,))
    other = replace(layer, finish=replace(layer.finish, beats=((0,), (1,), (2,), (4,), (3,))))
    verilog = files(replace(config, layers=(other, pool)), top="dut")["dut.v"].decode()
    modules = modules_of(verilog)
    outputs, index = layer_proof.of_finish(other, Site("conv", modules["dut_conv"], modules))
    (verdict,) = verdicts([outputs], verilog, tmp_path)
    assert (verdict.result, index.kind) == ("refuted", "index")


def test_an_idle_lane_that_is_not_0_is_refuted(tmp_path):
    config = REQUANTISERS["idle-lane"]
    verilog = emitted(config)
    full = replace(config, bias=(*config.bias, 0), beats=((0, 1), (2, 3)), significand=(9 << 20,) * 4,
                   shift=(*config.shift, 30))  # fmt: skip
    idle = requantise_proof.of_requantiser(config, site(config, verilog))
    assert [verdict.result for verdict in verdicts(idle, emitted(full), tmp_path)] == ["proved", "refuted"]


def tables_in_files():
    """Return a requantiser's obligation of one lane, its modules, and its files, among them the tables in block RAM."""
    lanes, beats = 32, 8
    channels = range(lanes * beats)
    config = replace(
        REQUANTISE,
        lanes=lanes,
        accumulator_bits=8,
        bias=tuple(channel * 77 % 255 - 127 for channel in channels),
        beats=tuple(tuple(channels[beat * lanes :][:lanes]) for beat in range(beats)),
        significand=tuple((1 << 23) + 28_001 * channel for channel in channels),
        shift=(24,) * len(channels),
        tables_in="block",
    )
    contents_by_name = {
        name: content.decode() for name, content in convert(SideBySide([config.component()]), "top").items()
    }
    modules = modules_of(contents_by_name["top.v"])
    stated = requantise_proof.of_requantiser(config, Site("", modules[MODULE], modules))[5]
    return stated, modules, contents_by_name


def test_tables_in_block_ram_have_the_contents_of_their_files(tmp_path, monkeypatch):
    """A verdict in the cache is not one of other contents."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    stated, modules, contents_by_name = tables_in_files()
    (table,) = (name for name in contents_by_name if "factor" in name)
    words = contents_by_name[table].split()
    words[6] = f"{int(words[6], 16) ^ 1 << 24 * 5 + 20:x}"  # the lowest 24 bits are lane 0's
    results = []
    for content in (contents_by_name[table], "\n".join(words)):
        wrapper = wrapped(stated, modules, {**contents_by_name, table: content}.__getitem__)
        (proof,) = discharge.discharge([(stated, wrapper)], seconds=100)
        results.append((proof.verdict.result, proof.is_cached))
    assert results == [("proved", False), ("refuted", False)]


def test_files_with_tables_must_have_words():
    stated, modules, _ = tables_in_files()
    with pytest.raises(InputError, match=r"file top\.\S+\.mem with the contents of a memory is missing"):
        wrapped(stated, modules)
    with pytest.raises(InputError, match="has not only hexadecimal words"):
        wrapped(stated, modules, lambda name: "0 1; endmodule")


def test_a_memory_that_is_written_begins_with_any_contents():
    module = VerilogModule("ram", "module ram #(\n    parameter W0_PARTS = 1\n);\n"
                           "            initial $readmemh(INIT, memory);\nendmodule")  # fmt: skip
    assert not module.is_rom
    assert "readmemh" not in module.uninitialised


@needs_icarus
@pytest.mark.parametrize(
    "config",
    [
        REQUANTISE,
        # Sums of more than 24 bits, which float32 rounds, and products next to ties.
        replace(REQUANTISE, accumulator_bits=28, significand=(9053822, (1 << 24) - 1), shift=(42, 40)),
        REQUANTISERS["no-shift"],
    ],
)
def test_the_definition_is_float32_arithmetic_of_numpy(config, tmp_path):
    """The lines that the proofs compare with, in Icarus, beside NumPy's float32: each channel, ties and all sizes."""
    (stated,) = requantise_proof.of_requantiser(config, site(config, emitted(config)))
    half, cycles = 1 << config.accumulator_bits - 1, config.latency
    if config.accumulator_bits <= 10:
        values = np.arange(-half, half)
    else:
        rng = np.random.default_rng(3)
        sizes = rng.integers(0, half, 3000) >> rng.integers(0, config.accumulator_bits, 3000)
        values = np.concatenate([sizes, -sizes, [-half, half - 1]])
    (tmp_path / "values.hex").write_text("\n".join(f"{value % (2 * half):x}" for value in values))
    lines = [
        "module bench;",
        "reg clk = 0; reg rst = 0; reg beat_index = 0; integer position = 0;",
        f"reg [{config.accumulator_bits - 1}:0] values [0:{len(values) - 1}];",
        f"wire [{config.accumulator_bits - 1}:0] i__payload = values[position % {len(values)}];",
        *stated.observer,
        'initial begin $readmemh("values.hex", values);',
        f"repeat ({2 * len(values) + cycles}) begin",
        f'if (position >= {cycles}) $display("%0d", $signed(expected));',
        f"#1 clk = 1; #1 clk = 0; position = position + 1; beat_index = position >= {len(values)}; #1; end end",
        "endmodule",
    ]
    (tmp_path / "bench.v").write_text("\n".join(lines))
    subprocess.run(["iverilog", "-g2012", "-o", "bench", "bench.v"], cwd=tmp_path, check=True)
    printed = subprocess.run(["vvp", "-n", "bench"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    expected = []
    for channel in (0, 1):
        scale = np.float32(config.significand[channel] / 2 ** config.shift[channel])
        product = (values + config.bias[channel]).astype(np.float32) * scale
        assert product.dtype == np.float32
        expected += np.clip(np.rint(product) + config.zero_point, config.low, config.high).astype(int).tolist()
    assert len({*expected}) > 20
    assert [int(line) for line in printed.split()] == expected


@pytest.mark.parametrize("name", marked(REQUANTISER_FAULTS, "ties go up"))
def test_faults_of_a_requantiser_are_refuted(name, tmp_path):
    verilog = with_fault(emitted(REQUANTISE), MODULE, *REQUANTISER_FAULTS[name])
    (verdict,) = requantiser_proofs(REQUANTISE, verilog, tmp_path)
    assert verdict.result == "refuted"


@pytest.mark.parametrize("name", marked(PRODUCT_FAULTS, "an activation is early"))
def test_faults_of_products_are_refuted(name, tmp_path):
    config = multiply(2)
    verilog = with_fault(emitted(config), f"{MODULE}_chains", *PRODUCT_FAULTS[name])
    (verdict,) = sum_proofs(config, verilog, tmp_path)
    assert verdict.result == "refuted"


@pytest.mark.parametrize("name", marked(SLICE_FAULTS, "an activation is early"))
def test_faults_of_products_in_slices_are_refuted(name, tmp_path):
    config = instantiated(multiply(2))
    begin, old, new = SLICE_FAULTS[name]
    verilog = emitted(config)
    module = min(module for module in modules_of(verilog) if module.startswith(begin))
    (verdict,) = sum_proofs(config, with_fault(verilog, module, old, new), tmp_path)
    assert verdict.result == "refuted"


def test_all_values_of_a_cone_are_tried():
    rng = np.random.default_rng(5)
    for _ in range(40):
        cone = Cone()
        literals = [cone.variable() for _ in range(8)]
        for _ in range(30):
            one, other = rng.choice(len(literals), 2, replace=False)
            literals.append(cone.both(*(int(literals[index]) ^ int(rng.integers(2)) for index in (one, other))))
        root = literals[-1] ^ 1
        expected = any(
            _value(cone, root, dict(zip(literals[:8], bits, strict=True)))
            for bits in itertools.product((0, 1), repeat=8)
        )
        small, literal = cone.simplified(root)
        assert exhaustive.is_satisfiable(cone, root, time.thread_time() + 60) == expected
        assert exhaustive.is_satisfiable(small, literal, time.thread_time() + 60) == expected


def _value(cone, literal, variables):
    """Return the value of a literal, for values of the variables by literal."""
    operands = cone.operands[literal >> 1]
    if literal >> 1 == 0:
        return FALSE ^ literal & 1
    if operands is None:
        return variables[literal & ~1] ^ literal & 1
    return (_value(cone, operands[0], variables) & _value(cone, operands[1], variables)) ^ literal & 1


def test_too_many_bits_are_undecided(monkeypatch, tmp_path):
    cone = Cone()
    one, other, third = (cone.variable() for _ in range(3))
    # If one is 1, other must be 1 and 0, and otherwise third must be, so that it is never true. No single bit is fixed.
    monkeypatch.setattr(exhaustive, "MAX_VARIABLES", 2)
    wide = cone.both(cone.both(one, other) ^ 1, cone.both(one ^ 1, third) ^ 1)
    never = cone.both(wide, cone.both(cone.both(one, other ^ 1) ^ 1, cone.both(one ^ 1, third ^ 1) ^ 1))
    assert exhaustive._decided(cone, never, time.thread_time() + 60) == ("the assertion depends on 3 bits, more than 2")
    monkeypatch.setattr(exhaustive, "MAX_VARIABLES", 3)
    assert exhaustive._decided(cone, never, time.thread_time() + 60) == "proved"
    assert exhaustive._decided(cone, wide, time.thread_time() + 60) == "refuted"
