"""Names of models and layers: whatever they are called, the files that are written run in Icarus and in Verilator."""

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hypothesis import given
from hypothesis import strategies as st
from needs import needs_compiler, needs_icarus_and_make
from pieces import Piece
from simple import Simple, SimpleConfig

import hwgen
from hwgen import emit, simulate
from hwgen.gateware.names import MAX_IDENTIFIER_LENGTH, file_name, identifier, identifiers, instance_names, reserved
from hwgen.gateware.stream import BeatFormat
from hwgen.simulate import verilator

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"

# Words that mean something to C++, which Verilator makes of Verilog, to its library, to Make or to hwgen's own files.
_OTHERS = """
    alignof and_eq asm auto bitand bool catch char class compl concept const_cast constexpr co_await decltype delete
    double explicit false float friend goto inline long mutable namespace noexcept nullptr operator private public
    register requires short sizeof static_assert switch template this throw true try typeid typename using wchar_t
    NULL EOF TRUE FALSE BUFSIZ INFINITY NAN RAND_MAX SIGTERM errno stdin stdout stderr linux unix i386 isnan printf
    Verilated VerilatedContext CData IData VlWide Vdesign Vmain Vtop vluint vluint64_t vlSelf vlSymsp uint32_t verilator
    root unit trace eval final_ name TOP top tb main bench testbench design dut all clean icarus obj_dir Makefile
    stimulus expected results source sink sent taken cycle count move ask choose restart conclude report following
    i o i_walk o_bytes I_BEATS clk rst CLK Rst clk_ 3x3 -v ../up C:\\x a/b a.b a_b A_B größe 网络 é 0 __ $root
"""
OTHERS = _OTHERS.split()
WORDS = [*sorted(reserved()), *OTHERS, "", " ", "a\nb", "x" * 3000, "y" * 64, "y" * 65, "new\\", "\udc80"]

LAYERS = ["cross", "bool", "wreal", "int", "new", *OTHERS]


def run(*command, folder):
    """Run a tool that must not complain of an error."""
    environment = {**os.environ, "VERILATOR_ROOT": str(verilator._root())}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_keywords_are_there():
    """Annex B has 248 words; pygments, which others wrote, knows 245 of them."""
    lexers = pytest.importorskip("pygments.lexers.hdl")
    rules = [rule[0] for rule in lexers.SystemVerilogLexer.tokens["root"]]
    known = {word for rule in rules for word in getattr(rule, "words", ()) if word.isidentifier()}
    assert len(known) == 245
    assert known | {"class", "endclass", "extends"} < reserved()
    assert {"wreal", "bool", "wone", "TOP", "std", "clk", "rst", "abs"} < reserved()


@given(names=st.lists(st.text(max_size=80), min_size=1, max_size=12))
def test_identifiers_are_legal_and_different(names):
    made = identifiers(names)
    assert len({name.lower() for name in made}) == len(names)
    for name in made:
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_$]*", name)
        assert "__" not in name
        assert name not in reserved()
        assert len(name) < MAX_IDENTIFIER_LENGTH + 8


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv1_1", "conv1_1"),
        ("/features/conv.0/Conv", "features_conv_0_Conv"),
        ("0", "n0"),
        ("lambda", "lambda"),
        ("cross", "cross_"),
        ("größe", "gr_e"),
        ("???", "layer"),
        ("", "layer"),
    ],
)
def test_identifier(name, expected):
    assert identifier(name, "layer") == expected


def test_files_and_folders():
    assert file_name("vgg16:7@64x64,int16-zedboard") == "vgg16:7@64x64,int16-zedboard"
    assert file_name("größe.1") == "größe.1"
    assert file_name("../../a b/c\0") == ".._.._a_b_c_"
    long = {file_name("é" * count) for count in (150, 151, 1000)}
    assert len(long) == 3
    assert all(len(name.encode()) <= 200 for name in long)


@pytest.mark.long
def test_a_model_whose_file_is_not_utf8(tmp_path):
    path = os.fsdecode(bytes(tmp_path) + b"/new\xff.onnx")
    shutil.copyfile(DIGITS, path)
    design = hwgen.load(path).plan("zedboard", multipliers="dsp")
    assert design.network.name == "new\ufffd"
    assert design.build(tmp_path / "out").joinpath("new_.v").is_file()


def test_a_file_whose_name_has_no_characters(tmp_path):
    np.save(tmp_path / "frames.npy", np.load(DIGITS.parent / "images.npy")[:1])
    command = [sys.executable, "-m", "hwgen.cli", "golden", DIGITS, "--input", "frames.npy", "--output", b"y\xff.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b": y\\udcff.npy\n")
    assert np.load(os.fsdecode(bytes(tmp_path) + b"/y\xff.npy")).shape == (1, 10)


def test_names_that_are_alone_stay():
    assert identifiers(["a/b", "a.b", "a_b_2", "c", "C", "cross", "cross_"]) == [
        "a_b",
        "a_b_3",
        "a_b_2",
        "c",
        "C_2",
        "cross_",
        "cross_2",
    ]
    assert identifier("y" * 64) == "y" * 64
    assert identifier("y" * 65) != identifier("y" * 66)


@needs_icarus_and_make
@needs_compiler
def test_every_word_as_module_and_instance(tmp_path):
    """As modules, and as instances of them in a module that has all of these names."""
    names = identifiers(WORDS)
    lines = [
        f"module {name}(input clk, input [7:0] a, output reg [7:0] q); always @(posedge clk) q <= a; endmodule"
        for name in names
    ]
    wires = [f"w{number}" for number in range(len(names) + 1)]
    lines += ["module everything(input clk, input [7:0] w0, output [7:0] q);"]
    lines += [f"  wire [7:0] {wire};" for wire in wires[1:]]
    lines += [
        f"  {name} {name} (.clk(clk), .a({a}), .q({q}));" for name, (a, q) in zip(names, pairwise(wires), strict=True)
    ]
    lines += [f"  assign q = {wires[-1]};", "endmodule"]
    (tmp_path / "names.v").write_text("\n".join(lines) + "\n")
    run("iverilog", "-g2005", "-o", os.devnull, "-s", "everything", "names.v", folder=tmp_path)
    run("iverilog", "-g2012", "-o", os.devnull, "-s", "everything", "names.v", folder=tmp_path)
    program = str(verilator._root() / "bin" / "verilator_bin")
    run(program, "--lint-only", "-Wno-fatal", "--top-module", "everything", "names.v", folder=tmp_path)


class Named(wiring.Component):
    """A register for each name, one behind the other: latency 1 where all are ready."""

    def __init__(self, config, *, taps=False):
        self.config = config
        super().__init__({"i": In(config.input.signature), "o": Out(config.output.signature)})

    def elaborate(self, platform):
        m = Module()
        width = self.config.input.data_bits + 1
        ready, valid, payload = Signal(), self.i.valid, self.i.payload.as_value()
        m.d.comb += [ready.eq(self.o.ready | ~self.o.valid), self.i.ready.eq(ready)]
        for name in identifiers(LAYERS):
            m.submodules[name] = stage = Stage(width)
            m.d.comb += [stage.en.eq(ready), stage.valid.eq(valid), stage.payload.eq(payload)]
            valid, payload = stage.next_valid, stage.next_payload
        m.d.comb += [self.o.valid.eq(valid), self.o.payload.eq(payload)]
        return m


class Stage(wiring.Component):
    def __init__(self, width):
        super().__init__(
            {
                "en": In(1),
                "valid": In(1),
                "payload": In(width),
                "next_valid": Out(1),
                "next_payload": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        with m.If(self.en):
            m.d.sync += [self.next_valid.eq(self.valid), self.next_payload.eq(self.payload)]
        return m


@pytest.mark.long
@needs_icarus_and_make
@needs_compiler
def test_every_word_as_layer():
    """Verilator makes C++ of it: its keywords and macros are names of layers, too."""
    beat = BeatFormat(channels=1, height=2, width=3, lanes=1, bits=8, signed=False)
    config = SimpleConfig(name="cross", input=beat)
    frames = config.random_frames(200)
    for simulator in ("verilator", "icarus"):
        result = simulate.run(config, frames, simulate.Options(component=Named, simulator=simulator))
        np.testing.assert_array_equal(result.outputs, frames)
        assert result.latency == beat.beats - 1 + len(LAYERS)


AROUND = ["axi", "tb", "AXI_shell", "axi_shell_registers", "loading", "link", "link_receiver", "serial"]
"""Names of layers whose modules would be called like those around the accelerator."""


def test_layers_named_like_modules_around():
    """They are told apart; no other layer's instance changes."""
    others = ["axi_conv", "tb_2", "links", "Serial_port", "conv", "axi_layer"]
    found = instance_names([*AROUND, *others], ["guard_i"])
    assert found[: len(AROUND)] == [f"{name}_layer" for name in AROUND]
    assert found[len(AROUND) :] == [*others[:-1], "axi_layer_2", "guard_i"]


@pytest.mark.long
@needs_icarus_and_make
def test_design_with_layers_named_like_modules_around(tmp_path):
    """No module of the accelerator is one of the bus wrapper, or the test bench."""
    piece = Piece(shape=(2, 5, 5))
    tensor = piece.real()
    for index in range(4):
        channels = 2 if index == 0 else 3
        sums = piece.node("Conv", tensor, piece.weights((3, channels, 1, 1), most=9))
        tensor = piece.requantise(sums, 5, 90)
    model = piece.model(tensor)
    nodes = [node for node in model.graph.node if node.op_type == "Conv"]
    for node, name in zip(nodes, AROUND, strict=False):
        node.name = name
    onnx.save(model, tmp_path / "q.onnx")
    folder = tmp_path / "out"
    design = hwgen.load(tmp_path / "q.onnx").plan("zedboard")
    design.build(folder)
    assert [layer.name for layer in design.network.layers] == AROUND[:4]
    files = sorted(path.name for path in folder.glob("*.v") if path.stem != "q_tb")
    run("iverilog", "-g2005", "-Wno-timescale", "-t", "null", "-s", "q_axi", *files, folder=folder)
    make(folder, "icarus")


def build(folder, name):
    beat = BeatFormat(channels=5, height=11, width=9, lanes=2, bits=20, signed=True)
    config = SimpleConfig(name=name, input=beat)
    frames = config.random_frames(2)
    return emit.build("{}", config, frames, config.golden(frames), folder, "# A report", component=Simple)


def make(folder, target):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["make", target], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout


@needs_icarus_and_make
@pytest.mark.parametrize(
    "name",
    [
        *("TOP", "bool", "clk", "wreal", "new\\", "x" * 3000, "\udc80", "../up"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("count", "dut")),
    ],
)
def test_model_of_that_name_in_icarus(tmp_path, name):
    make(build(tmp_path / "out", name), "icarus")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("name", ["TOP"])
def test_model_of_that_name_in_verilator(tmp_path, name):
    make(build(tmp_path / "out", name), "verilator")
