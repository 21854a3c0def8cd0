"""Words of a Yosys netlist as polynomials over bits: what adders, multipliers and multiplexers compute.

A *word* is the output of one cell in one cycle, or one bit of it, if the cell works by bits. A *variable* is a bit
of a word, or a bit that no rule here computes: an input's, another cell's, or a register's from too long ago. In
each run of the circuit, every variable has one value, 0 or 1.

A *reading* of a word is a claim: the number that its bits stand for, signed or unsigned, is the value of a polynomial,
exactly or up to multiples of a power of two, in every run. All proofs rest on these claims, so that each rule below
must keep them true:

- A number is the weighted sum of its bits, and a register holds what it read in the previous cycle.
- A sum, a difference and a product of true claims are true. A product needs exact factors. An adder's word is the sum
  of its operands, up to multiples of ``2**width``.
- The weighted sum of all bits of a word, as the word's reading weighs them, may be replaced by the reading's polynomial
  (`Words._replace_bits`): both are equal in every run, up to the reading's modulus times the factor.
- Up to multiples of ``2**n``, the lowest ``n`` bits of a word are the word (`Words._replace_lower_bits`). If that
  leaves a number of ``n`` bits, signed or unsigned, they are this number (`Words._lowest_bits_readings`).
- A value that is known up to multiples of ``2**width``, and lies in the range of words of this width, is exact
  (`Words._cut_readings`). Its range covers all values of the polynomial's variables, which are more than occur in
  runs; or it is the sum of the operands' ranges, if the polynomial is exactly the sum of the operands.
- A multiplexer whose selecting bits are never 1 at once adds, for each choice, the bit times what the choice changes.

``rtl_tests/prove/test_words.py`` compares all claims about random netlists with an evaluation by Yosys.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from hwgen.prove.methods.polynomial import FRACTION, ONE, Monomial, Polynomial

Bit = int | str
"""Type of a bit in Yosys' JSON netlist: a net's number, or a constant ``0``, ``1`` or ``x``."""
#: Maximum number of terms of a polynomial. Longer ones are not computed, and their words' bits are variables.
MAX_TERMS = 1 << 13
#: Maximum number of terms of a polynomial whose range is always computed.
FEW_TERMS = 1 << 6
_ARITHMETIC = {"$add", "$sub", "$mul", "$neg"}
_SELECTIONS = {"$mux", "$pmux"}
_BITWISE = {"$and", "$or", "$xor", "$xnor", "$not"}
_CONDITIONS = {"$eq", "$ne", "$logic_not", "$logic_and", "$logic_or", "$reduce_and", "$reduce_or", "$reduce_bool"}
_FOLLOWED = {"$dff"} | _ARITHMETIC | _SELECTIONS | _BITWISE | _CONDITIONS


class Word(NamedTuple):
    """Output of a netlist cell in a cycle (0 or negative), or one bit of it if the cell works bit by bit."""

    cell: str
    cycle: int
    index: int | None = None


class Reading(NamedTuple):
    """Number that a word stands for (signed or unsigned): polynomial with that value, and bounds."""

    value: Polynomial
    low: int
    high: int


class _Replacement(NamedTuple):
    """Replacement of a word's lowest bits by a polynomial: bit weights, factor, coefficients that remain by bit."""

    weights: Sequence[int]
    factor: int
    value: Polynomial
    left: Mapping[int, int]


#: Reading (polynomial and bounds) of a word without bits: 0.
ZERO = Reading(Polynomial.constant(0), 0, 0)


class Words:
    """Cell outputs of one netlist module as polynomials over bits; registers are followed a few cycles back.

    Parameters
    ----------
    document : dict
        The module's entry in the file that Yosys' ``write_json`` wrote, without processes, hierarchy and memories.
    cycles : int
        Number of past cycles to follow registers. Older values are variables.
    deadline : float
        Time, of ``time.thread_time``, when the computation gives up.
    held : dict of str to int, optional
        Registers of accumulators, by net: the number of past cycles to follow each. Older values of it are variables.

    Raises
    ------
    ValueError
        If the module has registers of several clocks, so that they do not share cycles, or lacks a net of ``held``.
    """

    def __init__(
        self, document: Mapping[str, Any], cycles: int, deadline: float, held: Mapping[str, int] | None = None
    ) -> None:
        self._cells: Mapping[str, Any] = document["cells"]
        self._oldest, self._deadline = -cycles, deadline
        self._drivers: dict[Bit, tuple[str, int]] = {}
        for name, cell in self._cells.items():
            output = "Q" if cell["type"] == "$dff" else "Y"
            if cell["type"] in _FOLLOWED:
                self._drivers |= {bit: (name, index) for index, bit in enumerate(cell["connections"][output])}
        clocks = {
            (cell["connections"]["CLK"][0], int(cell["parameters"]["CLK_POLARITY"], 2))
            for cell in self._cells.values()
            if cell["type"] == "$dff"
        }
        if len(clocks) > 1:
            raise ValueError("registers of several clocks")
        nets, held = document.get("netnames", {}), held or {}
        if unknown := [name for name in held if name not in nets]:
            raise ValueError(f"no net {unknown[0]}")
        self._ends = {bit: -end for name, end in held.items() for bit in nets[name]["bits"]}
        self._undriven = _undriven(document)
        self._by_bits: dict[str, bool] = {}
        self._variables: dict[Any, Monomial] = {}
        self._owners: dict[Monomial, tuple[Word, int]] = {}
        self._readings: dict[Word, dict[bool, Reading]] = {}
        self._choices: dict[tuple[str, int], list[Polynomial]] = {}
        self._lower: dict[tuple[Word, int], Mapping[bool, Reading]] = {}

    @classmethod
    def read(
        cls, path: Path, module: str, cycles: int, deadline: float, held: Mapping[str, int] | None = None
    ) -> Words:
        """Return the `Words` of ``module`` in a netlist file that Yosys' ``write_json`` wrote."""
        return cls(json.loads(path.read_text(encoding="utf-8"))["modules"][module], cycles, deadline, held)

    @property
    def assertions(self) -> list[Mapping[str, Any]]:
        """List with a mapping per ``$assert`` cell of the netlist: its nets, by port name."""
        return [cell["connections"] for cell in self._cells.values() if cell["type"] == "$assert"]

    @property
    def readings(self) -> Mapping[Word, Mapping[bool, Reading]]:
        """Mapping from each computed word to its readings (`Reading`), by whether the bits are read as signed."""
        return self._readings

    @property
    def lowest(self) -> Mapping[tuple[Word, int], Mapping[bool, Reading]]:
        """Mapping from (word, number of its lowest bits) to their readings, by whether the bits are read as signed."""
        return self._lower

    @property
    def variables(self) -> Mapping[Monomial, tuple[Bit, int]]:
        """Mapping from each variable of the polynomials to its (net, cycle); each use of a net ``x`` is a variable."""
        return {
            variable: (self._cells[key[0].cell]["connections"]["Y"][key[0].index or key[1]], key[0].cycle)
            if isinstance(key[0], Word)
            else key
            for key, variable in self._variables.items()
        }

    def holds(self, bit: Bit) -> bool:
        """Return whether equations of words, or an "or" of such equations, prove that a bit is 1 in every run."""
        if bit == "1":
            return True
        name, index = self._drivers.get(bit, ("", 0))
        if not name or index:
            return False
        connections, cell_type = self._cells[name]["connections"], self._cells[name]["type"]
        if cell_type in ("$or", "$logic_or") and len(connections["A"]) == len(connections["B"]) == 1:
            return any(self.holds(connections[port][0]) for port in "AB")
        return cell_type == "$eq" and self.are_equal(connections["A"], connections["B"])

    def are_equal(self, one: Sequence[Bit], other: Sequence[Bit]) -> bool:
        """Return whether polynomials prove that two numbers of equal width, given as nets, are equal in every run."""
        if len(one) != len(other):
            return False
        modulus = ONE << len(one)
        difference = self.polynomial(one, signed=True).plus(self.polynomial(other, signed=True), -ONE)
        difference = self._replace_bits(difference, singles=True)
        return self._replace_lower_bits(difference.modulo(modulus), modulus).is_multiple(modulus)

    # Numbers

    def polynomial(self, bits: Sequence[Bit], *, signed: bool) -> Polynomial:
        """Return a `Polynomial`: the number that nets (lowest first) stand for in cycle 0, as a polynomial over bits.

        Raises
        ------
        TimeoutError
            If the deadline is past.
        ValueError
            If a word depends on itself in the same cycle.
        """
        stack, begun = self._words_of(bits, 0), set()
        while stack:
            if time.thread_time() > self._deadline:
                raise TimeoutError
            if (word := stack[-1]) in self._readings:
                stack.pop()
                continue
            missing = [source for source in self._inputs(word) if source not in self._readings]
            if not missing:
                self._readings[word] = self._word_readings(word)
            elif word in begun:
                raise ValueError("a combinational loop")
            else:
                begun.add(word)
                stack += missing
        return self._number(bits, signed=signed, cycle=0)

    def _origin(self, bit: Bit, cycle: int) -> tuple[Bit, int]:
        """Return, as a pair, the (net, cycle) that a bit comes from through registers, as far back as is followed."""
        while cycle > self._oldest and cycle >= self._ends.get(bit, cycle) and bit in self._drivers:
            name, index = self._drivers[bit]
            cell = self._cells[name]
            if cell["type"] != "$dff":
                break
            bit, cycle = cell["connections"]["D"][index], cycle - 1
        return bit, cycle

    def _source(self, bit: Bit, cycle: int) -> tuple[Word, int] | None:
        """Return, as a pair, the word that contains a bit, and the bit's position in it; ``None`` if no word does."""
        name, index = self._drivers.get(bit, ("", 0))
        if not name or self._cells[name]["type"] == "$dff":
            return None
        return (Word(name, cycle, index), 0) if self._works_by_bits(name) else (Word(name, cycle), index)

    def _words_of(self, bits: Iterable[Bit], cycle: int) -> list[Word]:
        """Return a list of each `Word` that contains one of the given bits in a cycle, registers followed back."""
        sources = (self._source(*self._origin(bit, cycle)) for bit in bits)
        return [source[0] for source in sources if source is not None]

    def _works_by_bits(self, name: str) -> bool:
        """Return whether each output bit of a cell is a word: for bitwise cells, and for selections of constants."""
        if name not in self._by_bits:
            cell = self._cells[name]
            self._by_bits[name] = cell["type"] in _BITWISE
            if cell["type"] in _SELECTIONS:
                data = {*cell["connections"]["A"], *cell["connections"]["B"]} - self._undriven
                drivers = {self._drivers.get(bit, ("", 0))[0] for bit in data}
                self._by_bits[name] = all(
                    driver and self._cells[driver]["type"] in _SELECTIONS and self._works_by_bits(driver)
                    for driver in drivers
                )
        return self._by_bits[name]

    def _inputs(self, word: Word) -> list[Word]:
        """Return a list of each `Word` that a word is directly computed from."""
        cell = self._cells[word.cell]
        connections = cell["connections"]
        if word.index is not None and cell["type"] in _BITWISE:
            bits = [_extended_input(cell, port)[word.index] for port in "AB" if port in connections]
        elif word.index is not None:
            bits = [*connections["S"], *_data_bits(cell, word.index)]
        else:
            bits = [bit for port in "ABS" for bit in connections.get(port, ())]
        return self._words_of(bits, word.cycle)

    def _variable(self, key: Any) -> Monomial:
        """Return the variable (`Monomial`) of a word's bit, or of a net in a cycle."""
        if key not in self._variables:
            self._variables[key] = variable = frozenset((len(self._variables),))
            if isinstance(key[0], Word):
                self._owners[variable] = key
        return self._variables[key]

    def _number(self, bits: Sequence[Bit], *, signed: bool, cycle: int) -> Polynomial:
        """Return a `Polynomial`: the number that bits represent in a cycle; their words must be computed."""
        total: dict[Monomial, int] = {}
        for index, bit in enumerate(bits):
            weight = -ONE << index if signed and index == len(bits) - 1 else ONE << index
            bit, at = self._origin(bit, cycle)
            if bit in ("0", "1"):
                total[frozenset()] = total.get(frozenset(), 0) + weight * int(bit)
                continue
            key: Any = self._source(bit, at) or (bit, at)
            if isinstance(bit, str):  # without a value: each use is a variable of its own
                key = (bit, len(self._variables))
            variable = self._variable(key)
            total[variable] = total.get(variable, 0) + weight
        return self._replace_bits(Polynomial({variable: weight for variable, weight in total.items() if weight}))

    def _bounds(self, bits: Sequence[Bit], *, signed: bool, cycle: int) -> tuple[int, int]:
        """Return a pair: lower and upper bound of the number that some bits represent in a cycle.

        The highest bits can be the upper bits of a word: their number is the word's, shifted to the right. Constants
        among the bits below are known. A highest bit that repeats the one below it changes nothing, nor does a 0 above
        all.
        """
        bits = list(bits)
        while len(bits) > 1 and (bits[-1] == bits[-2] if signed else bits[-1] == "0"):
            bits.pop()
        if signed and bits[-1] == "0":
            bits, signed = bits[:-1], False
        if not bits:
            return 0, 0
        sources = [self._source(*self._origin(bit, cycle)) for bit in bits]
        low, high, rest = (-1, 0, len(bits) - 1) if signed else (0, 0, len(bits))
        word = sources[-1][0] if sources[-1] is not None else None
        reading = self._readings[word].get(signed) if word is not None else None
        if word is not None and reading is not None:
            size = 1
            while size < len(bits) and sources[-1 - size] == (word, self._width(word) - 1 - size):
                size += 1
            if sources[-1] == (word, self._width(word) - 1):
                shift, rest = self._width(word) - size, len(bits) - size
                low, high = reading.low >> shift, reading.high >> shift
        low, high = low << rest, high << rest
        values = [self._origin(bit, cycle)[0] for bit in bits[:rest]]
        low += sum(1 << index for index, value in enumerate(values) if value == "1")
        high += sum(1 << index for index, value in enumerate(values) if value != "0")
        return low, high

    def _reading_of(self, bits: Sequence[Bit], *, signed: bool, cycle: int) -> Reading:
        """Return the `Reading` (polynomial, bounds) of the number that bits stand for in a cycle."""
        value = self._number(bits, signed=signed, cycle=cycle)
        low, high = self._bounds(bits, signed=signed, cycle=cycle)
        if not value.modulus and len(value.terms) <= FEW_TERMS:
            smallest, largest = value.range
            low, high = max(low, smallest), min(high, largest)
        return Reading(value, low, high)

    # Replacements

    def _coefficients(self, polynomial: Polynomial, modulus: int = 0) -> Iterator[tuple[Word, dict[int, int]]]:
        """Yield (word, coefficients by bit) per word with bits in linear terms, without multiples of ``modulus``."""
        by_word: dict[Word, dict[int, int]] = {}
        for monomial, coefficient in polynomial.terms.items():
            if monomial in self._owners and (not modulus or coefficient % modulus):
                word, index = self._owners[monomial]
                by_word.setdefault(word, {})[index] = coefficient
        yield from by_word.items()

    def _bits_of(self, word: Word, weights: Iterable[int]) -> Polynomial:
        """Return a `Polynomial`: the weighted sum of a word's lowest bits as a polynomial over the bits."""
        return Polynomial({self._variable((word, index)): weight for index, weight in enumerate(weights)})

    def _replace_bits(self, polynomial: Polynomial, *, singles: bool = False) -> Polynomial:
        """Return a `Polynomial` with words' polynomials in place of bits, wherever this leaves fewer variables.

        A single lower bit is replaced only if ``singles`` is set: with its neighbours, it can be part of a number.
        """
        while True:
            for word, coefficients in self._coefficients(polynomial):
                is_single = len(coefficients) == 1 and max(coefficients) < self._width(word) - 1
                if is_single and not singles:
                    continue
                if (replaced := self._replaced(polynomial, word, coefficients)) is not None:
                    polynomial = replaced
                    break
            else:
                return polynomial

    def _replaced(self, polynomial: Polynomial, word: Word, coefficients: Mapping[int, int]) -> Polynomial | None:
        """Return a `Polynomial` with a word's polynomial in place of its bits; ``None`` if no fewer variables remain.

        Upper bits are the word minus its lower bits, which are a number of their own. This takes one or two steps.
        """
        one = [(step,) for step in self._replacements(word, coefficients)]
        two = [(first, second) for (first,) in one for second in self._replacements(word, first.left)]
        two.sort(key=lambda steps: len(steps[-1].left))
        # Two steps are tried before one only if they leave no bit, because one is more often undone by what follows.
        for steps in (*(steps for steps in two if not steps[-1].left), *one, *two):
            if len(steps[-1].left) < len(coefficients):
                with suppress(ArithmeticError):  # another factor may be a coefficient
                    return self._apply_replacements(polynomial, word, steps)
        return None

    def _replacements(self, word: Word, coefficients: Mapping[int, int]) -> list[_Replacement]:
        """Return a list of replacements of a word's bits up to the highest in use, with fewest remaining bits first.

        A factor times the bits' number is subtracted, and the factor times the number's polynomial is added. Both are
        equal, whatever the factor is. With these the highest bit vanishes, or the lowest one.
        """
        if not coefficients:
            return []
        count, steps = max(coefficients) + 1, []
        for signed, reading in self._lowest_bits_readings(word, count).items():
            weights = [ONE << index for index in range(count)]
            if signed:
                weights[-1] = -weights[-1]
            for index in {0, count - 1}:
                factor = (coefficients.get(index, 0) << FRACTION) // weights[index]
                left = {
                    index: rest >> FRACTION
                    for index, weight in enumerate(weights)
                    if (rest := (coefficients.get(index, 0) << FRACTION) - factor * weight)
                }
                if factor:
                    steps.append(_Replacement(weights, factor, reading.value, left))
        return sorted(steps, key=lambda step: len(step.left))

    def _apply_replacements(self, polynomial: Polynomial, word: Word, steps: Sequence[_Replacement]) -> Polynomial:
        """Return a `Polynomial` after the given replacements of a word's lowest bits."""
        for step in steps:
            bits = self._bits_of(word, step.weights)
            polynomial = polynomial.plus(bits, -step.factor).plus(step.value, step.factor)
        return polynomial

    def _lowest_bits_readings(self, word: Word, count: int) -> Mapping[bool, Reading]:
        """Return a mapping of the readings of a word's lowest ``count`` bits, by whether they are read as signed.

        It is empty if none is known.

        Up to multiples of ``2**count``, the number is the word. If the remainders of the coefficients leave a
        polynomial whose range fits ``count`` bits, signed or unsigned, the number is that polynomial.
        """
        readings = self._readings[word]
        if count == self._width(word):
            return readings
        if (word, count) not in self._lower:
            self._lower[word, count] = {}
            modulus = ONE << count
            value = next((reading.value for reading in readings.values()), None)
            if value is not None and not 0 < value.modulus < modulus:
                fitting = self._cut_readings(Reading(value.modulo(modulus), 0, 0), count)
                self._lower[word, count] = {
                    signed: reading for signed, reading in fitting.items() if not reading.value.modulus
                }
        return self._lower[word, count]

    def _width(self, word: Word) -> int:
        return 1 if word.index is not None else len(self._cells[word.cell]["connections"]["Y"])

    def _replace_lower_bits(self, polynomial: Polynomial, modulus: int) -> Polynomial:
        """Return a `Polynomial` with words' polynomials also in place of single lower bits, modulo ``modulus``.

        The lowest ``n`` bits are the word up to multiples of ``2**n``. Therefore ``lowest`` times these bits is
        ``lowest`` times the word up to multiples of ``reach``, which is a multiple of the modulus.
        """
        assert 0 < polynomial.modulus <= modulus
        while True:
            for word, coefficients in self._coefficients(polynomial, modulus):
                lowest, run = coefficients.get(0, 0), range(len(coefficients))
                reach = (lowest & -lowest) << len(coefficients)
                is_run = all((coefficients.get(index, 0) - (lowest << index)) % modulus == 0 for index in run)
                reading = next(iter(self._readings[word].values()), None)
                if lowest and is_run and reach >= modulus and reading is not None:
                    bits = self._bits_of(word, [ONE << index for index in run])
                    polynomial = self._replace_bits(polynomial.plus(bits, -lowest).plus(reading.value, lowest))
                    break
            else:
                return polynomial

    # Cells

    def _word_readings(self, word: Word) -> dict[bool, Reading]:
        """Return a dict of a word's readings (polynomial, bounds), by whether its bits are read as signed."""
        cell = self._cells[word.cell]
        cell_type, width = cell["type"], len(cell["connections"]["Y"])
        try:
            if word.index is not None:
                bit = self._bitwise if cell_type in _BITWISE else self._selected_bit
                return {False: Reading(bit(word), 0, 1)}
            if cell_type in _CONDITIONS:
                return {False: Reading(self._condition(cell, word.cycle), 0, 1)} if width == 1 else {}
            if cell_type in _SELECTIONS:
                selected = {signed: self._selected(word, signed=signed) for signed in (True, False)}
                return {signed: reading for signed, reading in selected.items() if reading is not None}
            return self._arithmetic_readings(cell, word.cycle)
        except ArithmeticError:
            return {}

    def _cut_readings(self, reading: Reading, width: int) -> dict[bool, Reading]:
        """Return a dict of a number's readings, cut to ``width`` bits, by whether the bits are read as signed.

        If the number lies in the range of such words, signed or unsigned, the word is the number. The number's
        bounds hold if its value is exact. An inexact value's polynomial has its own bounds, and so has the polynomial
        without multiples of ``2**width`` in its coefficients.
        """
        value, span = reading.value, 1 << width
        ranges = {True: (-span >> 1, (span >> 1) - 1), False: (0, span - 1)}
        modulus = min(value.modulus or ONE * span, ONE * span)
        unknown = {signed: Reading(value.modulo(modulus), *bounds) for signed, bounds in ranges.items()}
        if modulus < ONE * span:
            return unknown
        bounds = reading.low, reading.high
        if value.modulus or not any(low <= bounds[0] and bounds[1] <= high for low, high in ranges.values()):
            bounds = value.range
        numbers = [Reading(Polynomial(value.terms), *bounds)]
        if any(abs(coefficient) >= modulus for coefficient in value.terms.values()):
            numbers += [Reading(number, *number.range) for number in value.remainders(modulus)]
        for number in numbers:
            fitting = {
                signed: number for signed, (low, high) in ranges.items() if low <= number.low and number.high <= high
            }
            if fitting:
                return fitting
        return unknown

    def _arithmetic_readings(self, cell: Mapping[str, Any], cycle: int) -> dict[bool, Reading]:
        """Return a dict of an arithmetic cell's readings (polynomial, bounds), by whether the bits are read as signed.

        Bits above the word's width don't matter, so that an operand as wide as the word can be read in either way.
        Several numbers then equal the word up to multiples of ``2**width``, and one of them may fit the word.
        """
        connections, width = cell["connections"], len(cell["connections"]["Y"])
        signed = all(_is_signed(cell, port) for port in "AB" if port in connections)
        operands = [
            [
                self._reading_of(bits[:width], signed=sign, cycle=cycle)
                for sign in ((True, False) if len(bits) >= width else (signed,))
            ]
            for bits in (connections[port] for port in "AB" if port in connections)
        ]
        fitting = [self._cut_readings(self._result(cell["type"], *chosen), width) for chosen in product(*operands)]
        return min(fitting, key=lambda readings: any(reading.value.modulus for reading in readings.values()))

    def _result(self, cell_type: str, one: Reading, other: Reading = ZERO) -> Reading:
        """Return the `Reading` (polynomial, bounds) of an arithmetic cell, before it is cut to the output's width."""
        if cell_type == "$mul":
            corners = [first * second for first in (one.low, one.high) for second in (other.low, other.high)]
            return Reading(_limit_polynomial(one.value.times(other.value)), min(corners), max(corners))
        if cell_type == "$neg":
            one, other = other, one
        if cell_type in ("$sub", "$neg"):
            total = self._replace_bits(one.value.plus(other.value, -ONE))
            return Reading(total, one.low - other.high, one.high - other.low)
        return Reading(self._replace_bits(one.value.plus(other.value)), one.low + other.low, one.high + other.high)

    def _exclusive_choices(self, name: str, cycle: int) -> list[Polynomial]:
        """Return a list of a multiplexer's selection bits as polynomials; ArithmeticError if two might be 1 at once.

        Raises
        ------
        ArithmeticError
            If two of them can be 1 at once, as far as is known.
        """
        if (name, cycle) not in self._choices:
            selects = self._cells[name]["connections"]["S"]
            choices = [self._number([bit], signed=False, cycle=cycle) for bit in selects]
            for index, choice in enumerate(choices):
                if any(choice.times(other).terms for other in choices[:index]):
                    raise ArithmeticError("selections are not exclusive")
            self._choices[name, cycle] = choices
        return self._choices[name, cycle]

    def _selected(self, word: Word, *, signed: bool) -> Reading | None:
        """Return the `Reading` (polynomial, bounds) of a multiplexer's output; ``None`` if it doesn't fit its width."""
        connections = self._cells[word.cell]["connections"]
        width, cycle = len(connections["Y"]), word.cycle
        options = [
            self._reading_of(bits, signed=signed, cycle=cycle)
            for bits in (connections["A"], *_pieces(connections["B"], width))
        ]  # fmt: skip
        total = self._choice(word, [option.value for option in options])
        low, high = min(option.low for option in options), max(option.high for option in options)
        return self._cut_readings(Reading(self._replace_bits(total), low, high), width).get(signed)

    def _choice(self, word: Word, options: Sequence[Polynomial]) -> Polynomial:
        """Return a `Polynomial`: a multiplexer's output as a polynomial of its ``options`` and selecting bits."""
        base, *others = options
        terms = Polynomial(base.terms)
        for choice, other in zip(self._exclusive_choices(word.cell, word.cycle), others, strict=True):
            difference = Polynomial(other.terms).plus(Polynomial(base.terms), -ONE)
            terms = terms.plus(choice.times(difference))
        modulus = min((option.modulus for option in options if option.modulus), default=0)
        return Polynomial(_limit_polynomial(terms).terms, modulus)

    def _selected_bit(self, word: Word) -> Polynomial:
        """Return a `Polynomial`: one output bit of a multiplexer as a polynomial."""
        bits = _data_bits(self._cells[word.cell], word.index or 0)
        return self._choice(word, [self._number([bit], signed=False, cycle=word.cycle) for bit in bits])

    def _bitwise(self, word: Word) -> Polynomial:
        """Return a `Polynomial`: one output bit of a bitwise cell as a polynomial."""
        cell = self._cells[word.cell]
        bits = [
            self._number([_extended_input(cell, port)[word.index or 0]], signed=False, cycle=word.cycle)
            for port in "AB"
            if port in cell["connections"]
        ]
        return _inverted(bits[0]) if cell["type"] == "$not" else _JOINED[cell["type"]](*bits)

    def _condition(self, cell: Mapping[str, Any], cycle: int) -> Polynomial:
        """Return a `Polynomial`: the output bit of a comparison or a logic reduction cell as a polynomial."""
        cell_type, connections = cell["type"], cell["connections"]
        if cell_type in ("$eq", "$ne"):
            width = max(len(connections["A"]), len(connections["B"]))
            pairs = zip(*(_extended_input(cell, port, width) for port in "AB"), strict=True)
            same = [
                _inverted(_exclusive(*(self._number([bit], signed=False, cycle=cycle) for bit in pair)))
                for pair in pairs
            ]
            return _product_of_bits(same) if cell_type == "$eq" else _inverted(_product_of_bits(same))
        words = [
            [self._number([bit], signed=False, cycle=cycle) for bit in connections[port]]
            for port in "AB"
            if port in connections
        ]
        if cell_type == "$reduce_and":
            return _product_of_bits(words[0])
        zero = [_product_of_bits([_inverted(bit) for bit in bits]) for bits in words]
        if cell_type == "$logic_not":
            return zero[0]
        if cell_type == "$logic_and":
            return _inverted(zero[0]).times(_inverted(zero[1]))
        return _inverted(_product_of_bits(zero))


def _undriven(document: Mapping[str, Any]) -> set[Bit]:
    """Return the set of bits that are constant or undriven, such as bits past a table's last word."""
    cells = document["cells"].values()
    read = {bit for cell in cells for bits in cell["connections"].values() for bit in bits}
    driven = {bit for port in document["ports"].values() for bit in port["bits"]}
    for cell in cells:
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "input":
                driven.update(bits)
    return {bit for bit in read if isinstance(bit, str)} | (read - driven)


def _is_signed(cell: Mapping[str, Any], port: str) -> bool:
    return int(cell["parameters"].get(f"{port}_SIGNED", "0"), 2) == 1


def _extended_input(cell: Mapping[str, Any], port: str, width: int | None = None) -> list[Bit]:
    """Return a list of the bits of a cell's input, sign- or zero-extended to the output's width, or to ``width``."""
    bits = list(cell["connections"][port])
    width = len(cell["connections"]["Y"]) if width is None else width
    signed = all(_is_signed(cell, name) for name in "AB" if name in cell["connections"])
    return [*bits, *[bits[-1] if signed else "0"] * (width - len(bits))]


def _pieces(bits: Sequence[Bit], width: int) -> list[Sequence[Bit]]:
    """Return a list of the words of ``width`` bits that ``bits`` concatenates."""
    return [bits[first : first + width] for first in range(0, len(bits), width)]


def _data_bits(cell: Mapping[str, Any], index: int) -> list[Bit]:
    """Return a list of the bits of a multiplexer's inputs that its output bit ``index`` selects among."""
    connections = cell["connections"]
    width = len(connections["Y"])
    return [connections["A"][index], *(piece[index] for piece in _pieces(connections["B"], width))]


def _limit_polynomial(polynomial: Polynomial) -> Polynomial:
    """Return a `Polynomial` unchanged, or raise ArithmeticError if it has more than `MAX_TERMS` terms.

    Raises
    ------
    ArithmeticError
        If it has too many terms.
    """
    if len(polynomial.terms) > MAX_TERMS:
        raise ArithmeticError("a polynomial has too many terms")
    return polynomial


def _inverted(bit: Polynomial) -> Polynomial:
    return Polynomial.constant(1).plus(bit, -ONE)


def _exclusive(one: Polynomial, other: Polynomial) -> Polynomial:
    return one.plus(other).plus(one.times(other), -2 * ONE)


def _product_of_bits(bits: Sequence[Polynomial]) -> Polynomial:
    product = Polynomial.constant(1)
    for bit in bits:
        product = _limit_polynomial(product.times(bit))
    return product


_JOINED = {
    "$and": lambda one, other: one.times(other),
    "$or": lambda one, other: one.plus(other).plus(one.times(other), -ONE),
    "$xor": _exclusive,
    "$xnor": lambda one, other: _inverted(_exclusive(one, other)),
}
"""Dictionary from bitwise cell type to a function that returns the output bit's polynomial from the inputs'."""
