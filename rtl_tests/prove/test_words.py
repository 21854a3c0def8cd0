"""Claims about words of random netlists, for all inputs, beside Yosys' own evaluation of the same netlists."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from random_netlists import Evaluated, evaluated, netlist

from hwgen.prove.methods.polynomial import ONE
from hwgen.prove.methods.words import Words

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
