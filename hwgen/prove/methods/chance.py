"""Refutation by chance: random runs of an obligation's wrapper, simulated word by word in NumPy.

Most faults of arithmetic show at once. A method that only proves asks here before it spends all of its time. Words stay
whole, so that hundreds of products take seconds, while just the translation into gates takes minutes.

All runs start from the registers' initial values. A register without one, an input, and a net that nothing drives have
random values. If a rule is broken, the cycle is drawn again, and after some draws the run is over.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np

from hwgen.errors import ToolError
from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools
from hwgen.prove.methods.translation import mismatch
from hwgen.prove.verdict import Deadline
from hwgen.prove.wrapper import PROOF, Wrapped

_SCRIPT = (
    "read_verilog -formal modules.v wrappers.v; hierarchy -top {top}; proc; flatten; {connect} "
    "opt_expr; opt_clean; memory -nomap; opt_clean; memory_map -formal; chformal -lower; opt_expr; opt_clean; "
    "write_json {top}.json"
)
_RUNS = 256
"""Number of random runs that are simulated in parallel."""
_MORE_CYCLES = 8
"""Number of cycles of a random run beyond the obligation's ``structure["cycles"]``."""
_DRAWS = 4
"""Number of draws of one cycle's random inputs until a run that breaks an assumption is given up."""
_SECONDS = 30.0
"""Maximum CPU seconds that a random simulation takes."""
_FACTS = {"$assert", "$assume"}
_OTHERS = {"$dff", "$anyseq", "$anyconst", *_FACTS}
"""Set of types of netlist cells that are not combinational logic."""
#: Pattern of the wrapper's line that states a fact, in the ``src`` attribute of the fact's cell.
_LINE = re.compile(r"wrappers\.v:(\d+)")

Bits = np.ndarray
"""Type of one word in all random runs: a boolean array with a row per bit, lowest first, a column per run."""
Rule = Callable[..., Bits]
"""Type of a function that simulates a cell: from parameters, output width, and words at ports A, B and S."""


def refutation(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> tuple[int, str] | None:
    """Return a pair: cycle and text of an assertion that fails in a random run; ``None`` if none is found.

    Invariants, which only help a proof, are left out.
    """
    inner, own = folder / "chance", wrapped.without(obligation.invariants)
    inner.mkdir()
    try:
        tools.yosys(_SCRIPT.format(top=PROOF, connect=own.written(inner)), inner, deadline.left)
        document = json.loads((inner / f"{PROOF}.json").read_text(encoding="utf-8"))["modules"][PROOF]
        runs = RandomRuns(document, np.random.default_rng(1))
    except (subprocess.TimeoutExpired, ToolError, ValueError):
        return None
    num_facts = len(obligation.invariants) + sum(kind == "$assert" for _, kind in runs.facts)
    if mismatch(num_facts, obligation):
        return None
    end = time.thread_time() + min(deadline.left, _SECONDS)
    for cycle in range(obligation.structure.get("cycles", 0) + _MORE_CYCLES):
        if (line := runs.failing_line()) is not None:
            return cycle, own.fact_at(line)
        if time.thread_time() > end:
            return None
        runs.step()
    return None


class RandomRuns:
    """Random simulation runs of one netlist module, in parallel.

    Parameters
    ----------
    document : dict
        The module's entry in the file that Yosys' ``write_json`` wrote, without processes, hierarchy and memories.
    rng : Generator
        Source of the random values.

    Raises
    ------
    ValueError
        If the module has a cell of a kind that has no rule here, a number of too many bits, or a combinational loop.
    """

    def __init__(self, document: Mapping[str, Any], rng: np.random.Generator) -> None:
        self._rng = rng
        self._cells = {name: cell for name, cell in document["cells"].items() if cell["type"] != "$scopeinfo"}
        self._nets: dict[Any, int] = {"0": 0, "1": 1}
        kinds = {cell["type"] for cell in self._cells.values()}
        if unknown := kinds - _OTHERS - _LOGIC.keys():
            raise ValueError(f"cell {min(unknown)}")
        numbers = [cell["connections"] for cell in self._cells.values() if cell["type"] in _NUMBERS]
        if any(len(bits) >= _MAX_BITS for nets in numbers for bits in nets.values()):
            raise ValueError("a number is too wide")
        drivers = {bit: name for name, cell in self._cells.items() for bit in _output(cell)}
        self._order = self._sorted_cells(drivers)
        inputs = [port["bits"] for port in document["ports"].values() if port["direction"] == "input"]
        words = [*inputs, *(_output(cell) for cell in self._cells.values() if cell["type"] == "$anyseq")]
        read = {bit for cell in self._cells.values() for bits in cell["connections"].values() for bit in bits}
        known = {bit for word in words for bit in word} | drivers.keys()
        words += [[bit] for bit in sorted(bit for bit in read - known if isinstance(bit, int))]
        self._free = [self._rows(word) for word in words]
        self._resets = [self._rows(port["bits"]) for name, port in document["ports"].items() if name.endswith("rst")]
        registers = [cell["connections"] for cell in self._cells.values() if cell["type"] == "$dff"]
        self._inputs, self._outputs = (self._rows([bit for nets in registers for bit in nets[port]]) for port in "DQ")
        self._values = rng.integers(0, 2, (len(self._nets) + 1, _RUNS)).astype(bool)
        self._values[0], self._values[1] = False, True
        self._initialise_registers(document)
        self._are_lawful = np.ones(_RUNS, bool)
        self._draw()

    @property
    def facts(self) -> list[tuple[int, str]]:
        """List of assertions and assumptions, in order, as (wrapper line, cell type ``$assert`` or ``$assume``)."""
        return [
            (int(line[1]), cell["type"])
            for cell in self._cells.values()
            if cell["type"] in _FACTS and (line := _LINE.search(cell["attributes"].get("src", "")))
        ]

    def words(self, bits: Sequence[int]) -> Bits:
        """Return the current values of some nets in all runs, a boolean array (bits, runs)."""
        return self._values[self._rows(bits)]

    def failing_line(self) -> int | None:
        """Return the wrapper line of an assertion that fails now in some run; ``None`` if none does."""
        for cell in self._cells.values():
            line = _LINE.search(cell["attributes"].get("src", "")) if cell["type"] == "$assert" else None
            if line and (self._are_lawful & self._broken(cell)).any():
                return int(line[1])
        return None

    def step(self) -> None:
        """Advance all registers by one clock cycle, and draw the random values of the next cycle."""
        self._values[self._outputs] = self._values[self._inputs]
        self._draw()

    def _sorted_cells(self, drivers: Mapping[Any, str]) -> list[tuple[Rule, list[np.ndarray], np.ndarray, Any]]:
        """Return a list of combinational cells in topological order: (rule, input rows, output rows, parameters)."""
        logic = {name: cell for name, cell in self._cells.items() if cell["type"] in _LOGIC}
        before = {
            name: {
                drivers[bit]
                for port, bits in cell["connections"].items()
                if port != "Y"
                for bit in bits
                if drivers.get(bit) in logic
            }
            for name, cell in logic.items()
        }
        try:
            names = list(TopologicalSorter(before).static_order())
        except CycleError:
            raise ValueError("a combinational loop") from None
        order = []
        for name in names:
            cell = logic[name]
            ports = [self._rows(cell["connections"][port]) for port in "ABS" if port in cell["connections"]]
            order.append((_LOGIC[cell["type"]], ports, self._rows(cell["connections"]["Y"]), cell["parameters"]))
        return order

    def _rows(self, bits: Sequence[Any]) -> np.ndarray:
        """Return an array of the rows in the table of values that hold a word's bits.

        Each use of a bit without a value is a bit of its own.
        """
        keys = [(bit, len(self._nets), index) if bit in ("x", "z") else bit for index, bit in enumerate(bits)]
        return np.array([self._nets.setdefault(key, len(self._nets)) for key in keys], np.intp)

    def _initialise_registers(self, document: Mapping[str, Any]) -> None:
        """Set registers to their initial values in all runs."""
        for net in document["netnames"].values():
            for bit, value in zip(net["bits"], reversed(net["attributes"].get("init", "")), strict=False):
                if value in "01" and bit in self._nets:
                    self._values[self._nets[bit]] = value == "1"

    def _draw(self) -> None:
        """Draw the random values of a cycle, and compute all others; draw again in runs that break an assumption."""
        wrong = np.ones(_RUNS, bool)
        for _ in range(_DRAWS):
            for rows in self._free:
                self._values[rows] = np.where(wrong, self._random_words(len(rows)), self._values[rows])
            for rows in self._resets:
                self._values[rows] = np.where(wrong, self._rng.random((len(rows), _RUNS)) < 1 / 64, self._values[rows])
            for compute, ports, output, parameters in self._order:
                self._values[output] = compute(parameters, len(output), *(self._values[port] for port in ports))
            rules = [self._broken(cell) for cell in self._cells.values() if cell["type"] == "$assume"]
            wrong = np.logical_or.reduce([np.zeros(_RUNS, bool), *rules])
            if not (wrong & self._are_lawful).any():
                break
        self._are_lawful &= ~wrong

    def _random_words(self, width: int) -> Bits:
        """Return random words (`Bits`); in every fourth run the smallest or largest number, signed or unsigned."""
        word = self._rng.integers(0, 2, (width, _RUNS)).astype(bool)
        low, sign = self._rng.integers(0, 2, (2, _RUNS)).astype(bool)
        word[:, ::4] = low[::4]
        word[-1, ::4] = sign[::4]
        return word

    def _broken(self, cell: Mapping[str, Any]) -> np.ndarray:
        claim, enabled = (self._values[self._nets[cell["connections"][port][0]]] for port in ("A", "EN"))
        return enabled & ~claim


def _output(cell: Mapping[str, Any]) -> list[Any]:
    return cell["connections"].get("Q" if cell["type"] == "$dff" else "Y", [])


# Cells


#: Width in bits of the integers that compute numbers; all numbers must be narrower.
_MAX_BITS = 64


def _resized(bits: Bits, width: int, *, signed: bool) -> Bits:
    """Return words (`Bits`) cut to another width, or extended by their signs or by 0."""
    above = np.repeat(bits[-1:] & signed, max(width - len(bits), 0), axis=0)
    return np.concatenate([bits[:width], above])


def _numbers(bits: Bits) -> np.ndarray:
    """Return the signed numbers that all runs' words stand for, as an int64 array."""
    words = _resized(bits, _MAX_BITS, signed=True)
    return np.packbits(words, axis=0, bitorder="little").T.copy().view("<i8")[:, 0]


def _words(numbers: np.ndarray, width: int) -> Bits:
    """Return the lowest ``width`` bits of integers as booleans: a row per bit, lowest first, a column per number."""
    parts = np.ascontiguousarray(numbers, "<i8").view(np.uint8).reshape(-1, 8).T
    return np.unpackbits(parts, axis=0, bitorder="little", count=width).astype(bool)


def _are_signed(parameters: Mapping[str, Any]) -> bool:
    """Return whether all operands of a cell are signed, from its parameters."""
    return all(int(value, 2) for name, value in parameters.items() if name.endswith("_SIGNED"))


def _arithmetic(operation: Callable[..., np.ndarray]) -> Rule:
    """Return the simulation rule (function) of arithmetic cells with results that wrap at their width."""

    def rule(parameters: Mapping[str, Any], width: int, *operands: Bits) -> Bits:
        signed = _are_signed(parameters)
        return _words(operation(*(_numbers(_resized(bits, width, signed=signed)) for bits in operands)), width)

    return rule


def _bitwise(operation: Callable[..., Bits]) -> Rule:
    """Return the simulation rule (function) of cells that work bit by bit."""

    def rule(parameters: Mapping[str, Any], width: int, *operands: Bits) -> Bits:
        signed = _are_signed(parameters)
        return operation(*(_resized(bits, width, signed=signed) for bits in operands))

    return rule


def _compared(operation: Callable[..., np.ndarray]) -> Rule:
    """Return the simulation rule (function) of cells that compare two words."""

    def rule(parameters: Mapping[str, Any], width: int, *operands: Bits) -> Bits:
        signed, most = _are_signed(parameters), max(map(len, operands)) + 1  # unsigned words stay above 0
        words = [_resized(bits, most, signed=signed) for bits in operands]
        return _resized(operation(*words)[None], width, signed=False)

    return rule


def _ordered(operation: Callable[..., np.ndarray]) -> Rule:
    return _compared(lambda one, other: operation(_numbers(one), _numbers(other)))


def _reduced(operation: Callable[..., np.ndarray]) -> Rule:
    """Return the simulation rule (function) of cells that reduce one or two words to one bit."""

    def rule(parameters: Mapping[str, Any], width: int, *operands: Bits) -> Bits:
        return _resized(operation(*operands)[None], width, signed=False)

    return rule


def _select_words(parameters: Mapping[str, Any], width: int, first: Bits, others: Bits, selects: Bits) -> Bits:
    """Return a multiplexer's output words (`Bits`): the first input's, or the OR of the selected ones."""
    words = others.reshape(len(selects), width, -1)
    return np.where(selects.any(axis=0), (words & selects[:, None]).any(axis=0), first)


def _shifted(direction: int, *, fills: bool = False, both: bool = False) -> Rule:
    """Return the simulation rule (function) of cells that shift words right, or left with ``direction`` -1.

    ``fills`` says whether signs of signed words are shifted in, and ``both`` whether an amount can be negative.
    """

    def rule(parameters: Mapping[str, Any], width: int, word: Bits, amount: Bits) -> Bits:
        signed = parameters["A_SIGNED"].endswith("1")
        kept = max(width, len(word))
        word = _resized(word, kept, signed=signed)
        backward = both and parameters["B_SIGNED"].endswith("1")
        moves = np.clip(_numbers(amount if backward else _resized(amount, len(amount) + 1, signed=False)), -kept, kept)
        sources = np.arange(width)[:, None] + direction * moves
        values = np.take_along_axis(word, np.clip(sources, 0, kept - 1), axis=0)
        return np.where((sources >= 0) & (sources < kept), values, (sources >= kept) & word[-1] & (signed and fills))

    return rule


def _or_bits(word: Bits) -> np.ndarray:
    return np.logical_or.reduce(word, axis=0)


#: Dictionary from type of combinational cell to its simulation rule (`Rule`).
_LOGIC: dict[str, Rule] = {
    "$add": _arithmetic(np.add),
    "$sub": _arithmetic(np.subtract),
    "$mul": _arithmetic(np.multiply),
    "$neg": _arithmetic(np.negative),
    "$pos": _bitwise(np.copy),
    "$not": _bitwise(np.logical_not),
    "$and": _bitwise(np.logical_and),
    "$or": _bitwise(np.logical_or),
    "$xor": _bitwise(np.logical_xor),
    "$xnor": _bitwise(np.equal),
    "$eq": _compared(lambda one, other: (one == other).all(axis=0)),
    "$ne": _compared(lambda one, other: (one != other).any(axis=0)),
    "$lt": _ordered(np.less),
    "$le": _ordered(np.less_equal),
    "$gt": _ordered(np.greater),
    "$ge": _ordered(np.greater_equal),
    "$reduce_and": _reduced(lambda word: word.all(axis=0)),
    "$reduce_or": _reduced(_or_bits),
    "$reduce_bool": _reduced(_or_bits),
    "$reduce_xor": _reduced(lambda word: np.logical_xor.reduce(word, axis=0)),
    "$reduce_xnor": _reduced(lambda word: ~np.logical_xor.reduce(word, axis=0)),
    "$logic_not": _reduced(lambda word: ~_or_bits(word)),
    "$logic_and": _reduced(lambda one, other: _or_bits(one) & _or_bits(other)),
    "$logic_or": _reduced(lambda one, other: _or_bits(one) | _or_bits(other)),
    "$mux": _select_words,
    "$pmux": _select_words,
    "$shl": _shifted(-1),
    "$sshl": _shifted(-1),
    "$shr": _shifted(1),
    "$sshr": _shifted(1, fills=True),
    "$shift": _shifted(1, both=True),
    "$shiftx": _shifted(1, both=True),
}
_NUMBERS = {"$add", "$sub", "$mul", "$neg", "$lt", "$le", "$gt", "$ge"}
"""Set of types of netlist cells whose words must be less than `_MAX_BITS` wide."""
