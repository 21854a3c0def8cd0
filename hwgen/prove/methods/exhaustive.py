"""Proof method ``exhaustive``: an assertion on a pipeline is evaluated for all values of the inputs it depends on.

A pipeline without feedback forgets its past. After ``cycles`` cycles, its outputs are functions of inputs in these
cycles, whatever its registers held before. The method lets all registers of the module start with any value, writes the
assertion in cycle ``cycles`` as a function of inputs, and evaluates it for all of their values, 64 at a time. A result
that still depends on a register's first value depends on one more variable, so that nothing is assumed about the past.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from hwgen.obligations.obligation import Obligation
from hwgen.prove import trace
from hwgen.prove.methods.cones import FALSE, Circuit, Cone
from hwgen.prove.methods.translation import asserted_facts, is_covered, mismatch, translate
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

#: Maximum number of one-bit variables that an assertion may depend on. To evaluate all their values takes minutes.
MAX_VARIABLES = 30
_CHUNK_BITS = 18
"""Number of variables whose values are evaluated at once, so that the words fit a processor's cache."""
_WORD_BITS = 6
_RANDOM_WORDS = 1 << 12
"""Number of 64-bit words of random values per variable that are tried first, as they refute most faults."""
_PATTERNS = (
    0xAAAAAAAAAAAAAAAA,
    0xCCCCCCCCCCCCCCCC,
    0xF0F0F0F0F0F0F0F0,
    0xFF00FF00FF00FF00,
    0xFFFF0000FFFF0000,
    0xFFFFFFFF00000000,
)
"""Tuple of values of the first six variables, as 64-bit words that hold all their combinations."""
_ENGINE = "all values"
#: Yosys commands that write a wrapper as a circuit of gates whose registers start with any value.
_SCRIPT = (
    "read_verilog -formal modules.v wrappers.v; hierarchy -top {top}; proc; flatten; {connect} "
    "setattr -unset init w:dut.*; setundef -anyseq; opt_clean; memory -nomap; opt_clean; memory_map -formal; "
    "opt -fast; chformal -lower; async2sync; opt -fast; setundef -anyseq; opt_clean; "
    "formalff -clk2ff -ff2anyinit -hierarchy; dffunmap; opt_clean; wreduce; techmap; opt -fast; aigmap; opt_clean; "
    "write_aiger -ascii -zinit -ywmap {top}.ywm {top}.aag"
)


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Return the `Verdict` on assertions after ``structure["cycles"]`` cycles, evaluated for all inputs.

    The evaluation takes at most as many CPU seconds as are left, whatever else the machine does.
    """
    circuit = circuit_of(obligation, wrapped, folder, deadline)
    if reason := mismatch(len(circuit.bad), obligation):
        return Verdict("undecided", _ENGINE, reason)
    end = deadline.processor_end
    cycles, proved, undecided = obligation.structure["cycles"], set(), ""
    for index, (cone, failing) in enumerate(circuit.failures(cycles)):
        key = (tuple(cone.operands), failing)
        if key in proved:  # two channels of the same circuit
            continue
        verdict = _decided(cone, failing, end)
        if verdict == "refuted":
            return refuted(_ENGINE, obligation, wrapped, folder, index)
        if verdict == "proved":
            proved.add(key)
        else:
            undecided = undecided or verdict  # another assertion can still be refuted
    if undecided:
        return Verdict("undecided", _ENGINE, undecided)
    return Verdict("proved", _ENGINE, is_covered=is_covered(obligation, folder, deadline))


def circuit_of(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Circuit:
    """Return a `Circuit`: an obligation's wrapper as a circuit of gates whose registers start with any value."""
    translate(_SCRIPT, obligation, wrapped, folder, deadline.left)
    return Circuit.read((folder / f"{PROOF}.aag").read_text(encoding="utf-8"))


def refuted(engine: str, obligation: Obligation, wrapped: Wrapped, folder: Path, index: int) -> Verdict:
    """Return the `Verdict` that the assertion with an index is refuted, in cycle ``structure["cycles"]``."""
    cycles = obligation.structure["cycles"]
    files = trace.files(obligation, wrapped, folder, cycles + 1)
    return Verdict("refuted", engine, f"in cycle {cycles}: {asserted_facts(wrapped, folder)[index]}", files=files)


def _decided(cone: Cone, literal: int, deadline: float) -> str:
    """Return ``proved`` if a literal is never true, ``refuted`` if it can be, else a text why neither is known."""
    variables = cone.operands[1:].count(None)
    if is_true_by_chance(cone, literal):
        return "refuted"
    if variables > MAX_VARIABLES:
        return f"the assertion depends on {variables} bits, more than {MAX_VARIABLES}"
    try:
        return "refuted" if is_satisfiable(cone, literal, deadline) else "proved"
    except TimeoutError:
        return f"all values of {variables} bits take too long"


def is_true_by_chance(cone: Cone, literal: int) -> bool:
    """Return whether a logic cone's literal is true for one of many random values of its input variables."""
    if literal >> 1 == 0:
        return literal != FALSE
    rng = np.random.default_rng(0)
    values = {
        node: rng.integers(0, 1 << 64, _RANDOM_WORDS, dtype=np.uint64)
        for node, operands in enumerate(cone.operands)
        if operands is None and node
    }
    result = _Plan(cone, literal >> 1).evaluated(values)
    return bool((~result if literal & 1 else result).any())


def is_satisfiable(cone: Cone, literal: int, deadline: float) -> bool:
    """Return whether some values of a logic cone's input variables make a literal true, by trying all values.

    Raises
    ------
    TimeoutError
        If the time is past ``deadline``, of ``time.thread_time``, before all values are evaluated.
    """
    if literal >> 1 == 0:
        return literal != FALSE
    variables = [node for node, operands in enumerate(cone.operands) if operands is None and node]
    chunked = min(_CHUNK_BITS, len(variables))
    words = np.arange(1 << max(chunked - _WORD_BITS, 0), dtype=np.uint64)
    values: dict[int, np.ndarray] = {}
    for index, node in enumerate(variables[:chunked]):
        if index < _WORD_BITS:
            values[node] = np.full_like(words, _PATTERNS[index])
        else:
            values[node] = np.where(words >> np.uint64(index - _WORD_BITS) & np.uint64(1), ~np.uint64(0), np.uint64(0))
    outer = variables[chunked:]
    plan = _Plan(cone, literal >> 1)
    for count in range(1 << len(outer)):
        if time.thread_time() > deadline:
            raise TimeoutError
        for index, node in enumerate(outer):
            values[node] = np.full_like(words, ~np.uint64(0) if count >> index & 1 else 0)
        result = plan.evaluated(values)
        if (~result if literal & 1 else result).any():
            return True
    return False


class _Plan:
    """Order of evaluation of a logic cone's gates that reuses the memory of values no longer needed."""

    def __init__(self, cone: Cone, root: int) -> None:
        self._root = root
        self._gates = [(node, *operands) for node, operands in enumerate(cone.operands) if operands is not None]
        last = {operand >> 1: node for node, *operands in self._gates for operand in operands}
        kept = {root, *(node for node, operands in enumerate(cone.operands) if operands is None)}
        self._ends: dict[int, list[int]] = {}
        for node, reader in last.items():
            if node not in kept:
                self._ends.setdefault(reader, []).append(node)

    def evaluated(self, variables: dict[int, np.ndarray]) -> np.ndarray:
        """Return an array of the 64-bit words of the root literal's node, from the words of the variables."""
        values, free = dict(variables), []
        for node, one, other in self._gates:
            first, second = values[one >> 1], values[other >> 1]
            out = free.pop() if free else np.empty_like(first)
            if one & other & 1:
                np.invert(np.bitwise_or(first, second, out=out), out=out)
            else:
                np.bitwise_and(first, second, out=out)
                if one & 1 or other & 1:
                    np.bitwise_xor(out, second if one & 1 else first, out=out)
            values[node] = out
            free += [values.pop(end) for end in self._ends.get(node, ())]
        return values[self._root]
