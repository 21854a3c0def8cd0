"""Chains of multiply-add slices: the behaviour and the family's cells, against sums of products in NumPy."""

from __future__ import annotations

import tempfile
from pathlib import Path

import dsp48
import equivalence
import lint
import numpy as np
import pytest
from amaranth import Shape
from amaranth.lib.wiring import In
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st
from needs import needs_icarus
from texts import read_text

from hwgen.devices import DEFAULT, SliceOperand, SliceTerm
from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.errors import ConfigError, ToolError
from hwgen.gateware.arithmetic.slice_chain import SliceChain, SliceChainConfig
from hwgen.gateware.cost import Cost
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert
from hwgen.verilog.primitives import named_modules, text_of

CYCLES = 80


@st.composite
def operands(draw, max_bits: int):
    """Operand of up to ``max_bits`` bits as a signed number."""
    signed = draw(st.booleans())
    bits = draw(st.integers(1, max_bits - (not signed)))
    return SliceOperand(bits=bits, signed=signed, registers=draw(st.integers(0, 2)))


@st.composite
def terms(draw):
    narrow, wide = draw(operands(18)), draw(operands(27))
    activation, weight = draw(st.permutations((narrow, wide)))
    return SliceTerm(activation=activation, weight=weight)


@st.composite
def chains(draw):
    return SliceChainConfig(
        terms=tuple(draw(st.lists(terms(), min_size=1, max_size=5))),
        sum_bits=draw(st.integers(1, 48)),
        accumulates=draw(st.booleans()),
    )


BENCH = read_text("slice_chain_bench.v")


def forms(chain: SliceChain) -> list[str]:
    """Return the Verilog of both forms: ``behaviour_NAME`` and ``cells_NAME``."""
    texts = {chain.module_name: text_of(chain, ULTRASCALE_PLUS)}
    behaviour, cells = (named_modules("", texts, form, []) for form in ("behaviour", "cells"))
    return [behaviour, f"`define SYNTHESIS\n{cells}\n`undef SYNTHESIS\n"]


def input_shapes(chain: SliceChain) -> dict[str, Shape]:
    """Return the shape of each input port but the clock."""
    return {name: getattr(chain, name).shape() for name, member in chain.signature.members.items() if member.flow == In}


def simulated(config: SliceChainConfig, folder: Path, fault: tuple[str, str] | None = None) -> dict[str, np.ndarray]:
    """Return the values of inputs in each cycle, ``sum``, and ``cells``, the sum of the family's cells.

    ``fault`` is a text in the cells' form, and the text in its place.
    """
    chain = config.component()
    inputs = input_shapes(chain)
    declarations = [
        f"    reg {'signed ' * shape.signed}[{shape.width - 1}:0] {name} = 0;" for name, shape in inputs.items()
    ]
    declarations.append(f"    wire signed [{config.sum_bits - 1}:0] sum, cells_sum;")
    # Words, their extreme values, and the first step of a sum one time in four.
    values = [
        f"            {name} = $unsigned($random) % 8 == 0 ? {{1'b1, {{{shape.width}{{1'b0}}}}}} >> 1 : $random;"
        if name != "is_first"
        else f"            {name} = $unsigned($random) % 4 == 0;"
        for name, shape in inputs.items()
    ]
    bench = BENCH.format(
        name=chain.module_name,
        declarations="\n".join(declarations),
        inputs=", ".join(f".{name}({name})" for name in inputs),
        values="\n".join(values),
        formats=" ".join(["%0d"] * len(inputs)),
        printed=", ".join(inputs),
        cycles=CYCLES,
    )
    behaviour, cells = forms(chain)
    if fault is not None:
        assert fault[0] in cells
        cells = cells.replace(*fault)
    lines = dsp48.run(folder, bench, dsp48.GLOBAL_RESET, dsp48.MODEL, behaviour, cells)
    columns = np.array([line.split() for line in lines], dtype=object)
    assert len(columns) == CYCLES
    numbers = [np.array([int(text) for text in column], dtype=object) for column in columns.T]
    return dict(zip([*inputs, "sum", "cells"], numbers, strict=True))


def delayed(values: np.ndarray, cycles: int) -> np.ndarray:
    """Return values some cycles later. Registers begin with 0."""
    return np.concatenate([np.zeros(cycles, dtype=object), values])[: len(values)]


def expected(config: SliceChainConfig, values: dict[str, np.ndarray]) -> np.ndarray:
    """Return the sum in each cycle: products of operands that came some cycles before, summed since a first step."""
    last = len(config.terms) - 1
    totals = np.zeros(CYCLES, dtype=object)
    for index, term in enumerate(config.terms):
        cycles = 2 + last - index
        activations = delayed(values[f"activation_{index}"], cycles + term.activation.registers)
        totals += activations * delayed(values[f"weight_{index}"], cycles + term.weight.registers)
    if config.accumulates:
        begins = delayed(values["is_first"], 2)
        starts = np.maximum.accumulate(np.where(begins, np.arange(CYCLES), 0))
        running = np.concatenate([[0], np.cumsum(totals)])
        totals = running[1:] - running[starts.astype(int)]
    half = 1 << config.sum_bits - 1
    return (totals + half) % (2 * half) - half


@needs_icarus
@cases_in_the_long_run(30)
@given(chains())
def test_random_chains(config):
    """Operands of up to 18 and 27 bits, signed or not, with up to two registers; sums that wrap and that accumulate."""
    with tempfile.TemporaryDirectory() as folder:
        values = simulated(config, Path(folder))
    wanted = expected(config, values)
    assert np.array_equal(values["sum"], wanted)
    assert np.array_equal(values["cells"], wanted)


def operand(bits: int, *, signed: bool = True, registers: int = 1) -> SliceOperand:
    return SliceOperand(bits=bits, signed=signed, registers=registers)


def term(activation: SliceOperand, weight: SliceOperand) -> SliceTerm:
    return SliceTerm(activation=activation, weight=weight)


TWO = SliceChainConfig(
    terms=(
        term(operand(8, signed=False), operand(8)),
        term(operand(8, signed=False, registers=2), operand(8)),
    ),
    sum_bits=20,
    accumulates=True,
)

#: Faults in the cells: text and faulty text.
FAULTS = {
    "w adds nothing": ("{1'b0, !is_first}", "2'b00"),
    "each step is the first": ("!is_first", "is_first"),
    "opmode is a cycle early": (".OPMODEREG(1)", ".OPMODEREG(0)"),
    "no cascade": ("3'b001, 4'b0101", "3'b000, 4'b0101"),
    "a register that is never enabled": (".CEA1(1'b1)", ".CEA1(1'b0)"),
    "activation is signed": ("$signed({1'b0, activation_1})", "$signed(activation_1)"),
    "no register behind the multiplier": (".MREG(1)", ".MREG(0)"),
}


@needs_icarus
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name, tmp_path):
    values = simulated(TWO, tmp_path, FAULTS[name])
    assert np.array_equal(values["sum"], expected(TWO, values))
    assert not np.array_equal(values["cells"], values["sum"])


#: Chains that are proved: one product, products of few and of many bits, packed products, and all numbers of registers.
PROVED = (
    SliceChainConfig(terms=(term(operand(8), operand(8)),), sum_bits=16),
    TWO,
    SliceChainConfig(terms=(term(operand(8), operand(27)), term(operand(8, registers=2), operand(27))), sum_bits=36),
    SliceChainConfig(
        terms=tuple(
            term(operand(16, registers=registers), operand(17, registers=2 - registers)) for registers in range(3)
        ),
        sum_bits=44,
        accumulates=True,
    ),
)


@pytest.mark.parametrize(
    "config", [pytest.param(config, marks=() if config is TWO else pytest.mark.long) for config in PROVED]
)
def test_cells_are_proved(config, tmp_path):
    """Both forms have equal sums for all inputs and all time: a proof by Yosys, with the tests' model of the slice."""
    equivalence.check_clocked_primitives([config.component()], tmp_path, ULTRASCALE_PLUS, models=(dsp48.MODEL,))


@pytest.mark.long
def test_a_fault_is_refuted(tmp_path):
    wrong = dsp48.MODEL.replace("AREG == 2 ? a_1 : A", "A")
    assert wrong != dsp48.MODEL
    with pytest.raises(ToolError, match="proof did fail"):
        equivalence.check_clocked_primitives([TWO.component()], tmp_path, ULTRASCALE_PLUS, models=(wrong,))


def test_families_without_chains_have_no_cells():
    component = TWO.component()
    assert component.cells(DEFAULT) == []
    assert "SYNTHESIS" not in text_of(component, DEFAULT)
    assert "DSP48E2" in text_of(component, ULTRASCALE_PLUS)


def test_cost():
    cost = Cost(ULTRASCALE_PLUS)
    TWO.count(cost)
    assert (cost.resources.dsp, cost.resources.lut, cost.resources.ff) == (2, 0, 0)
    assert TWO.latency == 3


def test_what_fits():
    """Operands of 18 and 27 bits as signed numbers, and sums of 48 bits."""
    fits = ULTRASCALE_PLUS.multiplier_slice.chains.fits
    assert fits(term(operand(18), operand(27)), 48)
    assert fits(term(operand(26, signed=False), operand(18)), 48)
    assert not fits(term(operand(27, signed=False), operand(18)), 48)
    assert not fits(term(operand(19), operand(19)), 48)
    assert not fits(term(operand(8), operand(8)), 49)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"terms": ()}, "terms must have at least one slice"),
        ({"sum_bits": 0}, "sum_bits must be a positive integer, not 0"),
        ({"terms": (term(operand(0), operand(8)),)}, "an operand must have at least one bit, not 0"),
        ({"terms": (term(operand(8), operand(8, registers=3)),)}, "an operand must have 0 to 2 registers, not 3"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        SliceChainConfig(**{"terms": TWO.terms, "sum_bits": 20, **fields})


def test_lint(tmp_path):
    parts = SideBySide([config.component() for config in PROVED])
    lint.check([lint.written(convert(parts, "chains", device=ULTRASCALE_PLUS), tmp_path)], with_yosys=tmp_path)
