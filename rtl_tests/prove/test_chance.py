"""Refutation by chance: each rule of a cell beside Yosys' evaluation, and faults that it finds without gates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convolution_sums import CONFIGS, obligation_of
from proofs import MODULE, emitted, of_component, with_fault
from random_netlists import INPUTS, evaluated, netlist
from small_circuits import FIFO

from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools, trace
from hwgen.prove.deadline import Deadline
from hwgen.prove.methods import algebra, chance, model_checking
from hwgen.prove.methods.chance import Runs
from hwgen.prove.wrapper import wrapped

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
    runs = Runs(found.document, np.random.default_rng(0))
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
        Runs(document, np.random.default_rng(0))
    loop = {"type": "$not", "connections": {"A": [2], "Y": [2]}, "parameters": {"A_SIGNED": "0"}}
    with pytest.raises(ValueError, match="a combinational loop"):
        Runs({**document, "cells": {"c": loop}}, np.random.default_rng(0))
    wide = {"type": "$neg", "connections": {"A": [2], "Y": [*range(3, 67)]}, "parameters": {"A_SIGNED": "0"}}
    with pytest.raises(ValueError, match="a number is too wide"):
        Runs({**document, "cells": {"c": wide}}, np.random.default_rng(0))


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
