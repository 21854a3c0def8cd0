"""Equivalence of emitted Verilog and Amaranth's own netlist, module by module, and of both forms of primitives.

Yosys reads both texts of a module. Registers, memories and instances are matched by the names that the writer chose,
and cut, as are multiplications. Two modules are equal if, for all values of what is cut, ABC proves equal: all
outputs, next values and clocks of registers, inputs of instances, and writes of memories; and if values at power-up are
the same. A name that the writer gave wrongly makes modules differ, and never equal. Only the names of the top
module's ports are taken as the writer gives them.

A product, or a word read from a memory, is a free value. Two of them are the same value if ABC proved their operands
equal. Bits that nothing drives, and undefined ones, are free as well, on one side only.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from amaranth.lib import wiring
from and_gates import AndGates
from cut_netlists import DIVISIONS, NOTHING, PRODUCT, PRODUCTS, SUM, SUMS, Bit, CutNetlist, Function
from module_comparison import Circuit, Pair, padded, unescaped
from module_pairs import Gold, Names

from hwgen.devices import DEFAULT, Device
from hwgen.errors import ToolError
from hwgen.gateware.primitive import Primitive
from hwgen.obligations.modules import modules_of
from hwgen.prove import tools
from hwgen.verilog import convert
from hwgen.verilog.primitives import named_modules, text_of

#: Results of a comparison. A module that is not decided is never called equal.
EQUAL, DIFFERENT, UNDECIDED = "equal", "different", "undecided"
#: Commands of Yosys after which a module has registers, memories, instances and logic.
_NETLIST = (
    "proc -noopt -norom; opt_expr -keepdc t:* t:$mul %d; memory_collect; memory_nordff; dffunmap; "
    "write_json {name}.json; design -reset; "
)
#: Commands of Yosys that turn the logic of pairs of modules into AND gates, and write a pair into a file.
_GATES = "read_json pairs.json; techmap; opt_expr; opt_clean; aigmap; opt_clean; "
_WRITE = "select {name}; write_aiger -symbols {name}.aig; select -clear; "


@dataclass(frozen=True)
class Verdict:
    """Result of the comparison of one module: its name in the Verilog, result, reason, and numbers of what was cut."""

    module: str
    result: str
    reason: str = ""
    registers: int = 0
    products: int = 0
    seconds: float = 0.0


def check(component: wiring.Component, name: str, folder: Path, device: Device = DEFAULT) -> list[str]:
    """Fail unless all modules of a component's emitted Verilog equal Amaranth's; return their names."""
    verdicts = compare(component, name, convert(component, name, device=device), folder, device)
    unequal = [verdict for verdict in verdicts if verdict.result != EQUAL]
    assert not unequal, unequal
    return [verdict.module for verdict in verdicts]


def compare(
    component: wiring.Component,
    name: str,
    files: Mapping[str, bytes],
    folder: Path,
    device: Device = DEFAULT,
    seconds: float = 600,
    outside: str = "",
) -> list[Verdict]:
    """Compare each module of emitted Verilog with Amaranth's netlist of the component.

    Parameters
    ----------
    component : Component
        Component from which the Verilog was written.
    name : str
        Name of the top module.
    files : mapping of str to bytes
        Verilog ``NAME.v`` and its memory files.
    folder : Path
        Folder for the files of the comparison.
    device : Device
        Device family for which the Verilog was written.
    seconds : float
        Time limit of each run of ABC.
    outside : str
        Verilog of a design that the component instantiates by its module's name. Only the ports of its modules are
        read: the design is compared on its own.
    """
    gold = Gold.of(component, name, device)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    (folder / "gold.il").write_text("\n".join(gold.texts))
    instantiated = [module for module in modules_of(outside).values() if not module.has_parameters]
    (folder / "outside.v").write_text("\n".join(module.replaced("") for module in instantiated))
    script = f"read_verilog outside.v; read_rtlil gold.il; {_NETLIST.format(name='gold')}"
    for form, option in (("simulated", "-nosynthesis"), ("synthesised", "")):
        script += f"read_verilog {option} outside.v {name}.v; hierarchy; {_NETLIST.format(name=form)}"
    tools.yosys(script, folder, 3600)
    texts = {
        form: json.loads((folder / f"{form}.json").read_text())["modules"] for form in ("simulated", "synthesised")
    }
    golden = json.loads((folder / "gold.json").read_text())["modules"]
    names = {module.name for module in instantiated}
    return _verdicts(list(_modules(gold, golden, texts, names)), folder, seconds)


@dataclass(frozen=True)
class Modules:
    """Gold and gate module as Yosys reads them: the gate module's name, both documents, and names that correspond.

    ``gold`` and ``gate`` are entries of files that ``write_json`` wrote, ``names`` and ``ports`` parameters of `Pair`.
    """

    name: str
    gold: Mapping[str, Any]
    gate: Mapping[str, Any]
    names: Names
    ports: Mapping[str, Mapping[str, str]]

    @cached_property
    def cut(self) -> Pair:
        """Both modules with all cuts."""
        return self.pair(SUMS)

    def pair(self, cuts: int) -> Pair:
        """Return both modules, with sums of products, products, or neither cut (`cut_netlists`)."""
        return Pair(CutNetlist.of(self.gold, cuts), CutNetlist.of(self.gate, cuts), self.names, self.ports)


def _modules(
    gold: Gold, golden: Mapping[str, Any], texts: Mapping[str, Mapping[str, Any]], outside: Set[str] = frozenset()
) -> Iterator[Modules]:
    """Yield the modules of a design, from the top on, as instances lead to them, without those ``outside``.

    An instance of a module outside has the same module and the same ports in both texts.
    """
    ports: dict[str, Mapping[str, str]] = {module: {} for module in outside}
    ports |= {
        module: {unescaped(wire): name for wire, name in names.wires.items()} for module, names in gold.names.items()
    }
    ahead = [(gold.top, gold.top, "simulated")]
    seen = set(ahead)
    for module, gate, form in ahead:
        modules = Modules(gate, golden[module], texts[form][gate], gold.names[module], ports)
        modules.cut.faults += [
            f"an instance is of {written}, not {child}"
            for child, written in modules.cut.children
            if child in outside and written != child
        ]
        yield modules
        inside = [(child, written, "simulated") for child, written in modules.cut.children if child not in outside]
        both = [
            (gold.circuits[child], written, "synthesised") for child, written, _ in inside if child in gold.circuits
        ]
        for entry in (*inside, *both):
            if entry not in seen:
                seen.add(entry)
                ahead.append(entry)


def _verdicts(modules: Sequence[Modules], folder: Path, seconds: float) -> list[Verdict]:
    """Return the verdict on each module. Modules that cuts leave open are compared again with fewer cuts."""
    verdicts = _compared([(entry.name, entry.cut) for entry in modules], folder, seconds)
    for cuts, kinds in ((PRODUCTS, {SUM}), (NOTHING, {PRODUCT, *DIVISIONS})):
        left = [
            index
            for index, verdict in enumerate(verdicts)
            if verdict.result == UNDECIDED and kinds & {function.kind for function in modules[index].cut.functions}
        ]
        try:
            again = _compared([(modules[index].name, modules[index].pair(cuts)) for index in left], folder, seconds)
        except ToolError:  # so many multiplications are too much for Yosys
            continue
        for index, verdict in zip(left, again, strict=True):
            seconds_before, products = verdicts[index].seconds, verdicts[index].products
            verdicts[index] = replace(verdict, seconds=seconds_before + verdict.seconds, products=products)
    return verdicts


def _compared(pairs: Sequence[tuple[str, Pair]], folder: Path, seconds: float) -> list[Verdict]:
    """Return the verdict on each pair of modules. Pairs with the same circuit are translated once."""
    circuits = [Circuit(pair) for _, pair in pairs]
    texts = [json.dumps(circuit.document) for circuit in circuits]
    indices = {text: index for index, text in reversed(list(enumerate(texts)))}
    documents = {f"pair_{index}": circuits[index].document for index in indices.values() if circuits[index].sinks}
    if documents:
        (folder / "pairs.json").write_text(json.dumps({"modules": documents}))
        tools.yosys(_GATES + "".join(_WRITE.format(name=name) for name in documents), folder, 3600)
    verdicts = []
    for (name, pair), circuit, text in zip(pairs, circuits, texts, strict=True):
        begin = time.monotonic()
        file = folder / f"pair_{indices[text]}.aig"
        gates = AndGates.read(file) if circuit.sinks else AndGates((), (), {})
        result, reason = Comparison(pair, circuit, gates, folder, seconds).decide()
        numbers = len(pair.gold.registers), sum(f.kind in (PRODUCT, *DIVISIONS) for f in pair.gold.functions)
        verdicts.append(Verdict(name.rpartition("\\")[2], result, reason, *numbers, time.monotonic() - begin))
    return verdicts


class Comparison:
    """Comparison of a pair of modules as a circuit of AND gates.

    Parameters
    ----------
    pair : Pair
        Pair of modules.
    circuit : Circuit
        Logic of both modules.
    gates : AndGates
        The same circuit as AND gates.
    folder : Path
        Folder for ABC's files.
    seconds : float
        Time limit of each run of ABC.
    """

    def __init__(self, pair: Pair, circuit: Circuit, gates: AndGates, folder: Path, seconds: float) -> None:
        self._pair = pair
        self._circuit = circuit
        self._gates = gates
        self._folder = folder
        self._seconds = seconds

    def decide(self) -> tuple[str, str]:
        """Return the result and its reason."""
        if self._pair.faults:
            return DIFFERENT, "; ".join(self._pair.faults)
        try:
            alone = self._merge_functions() if self._circuit.sinks else []
            sinks = {self._literals(sink): label for sink, label in self._pair.sinks.items()}
            unequal = {sink: label for sink, label in sinks.items() if sink[0] != sink[1]}
            return self._judged(unequal, alone) if unequal else (EQUAL, "")
        except subprocess.TimeoutExpired:
            return UNDECIDED, f"not decided within {self._seconds:g} s"

    def _literals(self, bits: Sequence[Bit]) -> tuple[int, ...]:
        """Return the literals of some bits of the pair."""
        return tuple(
            int(bit) if isinstance(bit, str) else self._gates.outputs[self._circuit.sinks[bit]] for bit in bits
        )

    # Functions

    def _merge_functions(self) -> list[Function]:
        """Merge equal gates, and the results of functions with equal operands, until no more are equal.

        Gates with equal inputs are merged first. Proofs follow, because sums of products that are not merged yet are
        hard to tell apart. Return the functions that equal none of the other module.
        """
        left, num_gold = list(self._pair.functions), len(self._pair.gold.functions)
        sides = {function: {index < num_gold} for index, function in enumerate(left)}
        has_proofs = False
        while True:
            change = self._gates.reduced if has_proofs else self._gates.hashed
            self._gates = change(self._folder, self._seconds)
            same: dict[str, str] = {}
            kept: dict[object, list[Function]] = defaultdict(list)
            for function in left:
                alike = kept[self._key(function)]
                other = next((other for other in alike if self._is_same(other, function)), None)
                if other is None:
                    alike.append(function)
                else:
                    sides[other] |= sides[function]
                    same |= self._same_sources(function, other)
            if has_proofs and not same:
                return [function for function in left if len(sides[function]) == 1]
            has_proofs = not same
            left = [function for alike in kept.values() for function in alike]
            self._gates = self._gates.with_equal(same)

    def _same_sources(self, function: Function, other: Function) -> dict[str, str]:
        """Return the sources that are results of ``function``, and the equal ones of ``other``, by name."""
        names = self._circuit.sources
        return {names[bit]: names[old] for bit, old in zip(function.result, other.result, strict=False)}

    def _key(self, function: Function) -> object:
        """Return what functions with equal operands have in common: the kind, and the lowest bits of the operands."""
        lowest = self._literals([operand[0] if operand else "0" for operand in function.operands])
        return function.kind, frozenset(lowest) if function.kind in (PRODUCT, SUM) else lowest

    def _is_same(self, left: Function, right: Function) -> bool:
        """Return whether the operands of two functions were proved equal, as far as both results depend on them."""
        if left.kind != right.kind:
            return False
        if left.kind not in (PRODUCT, SUM):
            operands = zip(left.operands, right.operands, strict=True)
            return all(len({*map(self._literals, padded(*both))}) == 1 for both in operands)
        width = min(len(left.result), len(right.result))
        first, second = (sorted(self._literals(operand[:width]) for operand in side.operands) for side in (left, right))
        return first == second

    # Sinks

    def _judged(self, sinks: Mapping[tuple[int, ...], str], alone: Sequence[Function]) -> tuple[str, str]:
        """Return the result and its reason.

        ``sinks`` are labels of the sinks by their literals, which were not proved equal. ``alone`` are functions that
        equal no other one.
        """
        gates = self._gates.miter(sinks)
        values = gates.values(seed=0)
        unequal = {name: label for name, label in zip(values, sinks.values(), strict=True) if values[name]}
        if not unequal:
            if gates.is_zero(self._folder, self._seconds):
                return EQUAL, ""
            unequal = dict(zip(values, sinks.values(), strict=True))
        bits = {name: bit for bit, name in self._circuit.sources.items()}
        supports = {name: {bits[source] for source in gates.support(gates.outputs[name])} for name in unequal}
        open_bits = {bit for function in alone for bit in function.result}
        open_bits |= {bit for support in supports.values() for bit in support if self._pair.is_free(bit)}
        certain = [label for name, label in unequal.items() if not supports[name] & open_bits]
        labels = certain or list(unequal.values())
        reason = f"{len(labels)} differ, such as {', '.join(labels[:3])}"
        if certain:
            return DIFFERENT, reason
        named = [self._pair.described(bit) for bit in sorted(open_bits & set().union(*supports.values()))]
        return UNDECIDED, f"{reason}; without a counterpart: {', '.join(named[:5])}"


def check_primitives(primitives: Sequence[Primitive[Any]], folder: Path, device: Device = DEFAULT) -> None:
    """Fail unless Yosys proves, with its models of the cells, that both forms of each primitive's module are equal."""
    script = ["read_verilog +/xilinx/cells_sim.v"]
    for form, option in (("behaviour", "-nosynthesis"), ("cells", "")):
        texts = {primitive.module_name: text_of(primitive, device) for primitive in primitives}
        assert all("`ifdef SYNTHESIS" in text for text in texts.values())
        (folder / f"{form}.v").write_text(named_modules("", texts, form, []))
        script.append(f"read_verilog {option} {form}.v")
    script.append("hierarchy; proc; flatten; opt_clean")
    for primitive in primitives:
        name = primitive.module_name
        script.append(f"miter -equiv -flatten -make_outputs behaviour_{name} cells_{name} miter_{name}")
        script.append(f"sat -verify -prove trigger 0 miter_{name}")
    tools.yosys("; ".join(script), folder, 600)


#: Commands of Yosys that share what both halves of a miter have, so that multiplications are compared only once.
_SHARED = (
    "hierarchy -top {miter}; opt_expr -full; simplemap t:$dff; opt -full -share_all; wreduce; opt -full -share_all; "
    "wreduce; opt -full -share_all; techmap; opt -full -share_all"
)


def check_clocked_primitives(
    primitives: Sequence[Primitive[Any]], folder: Path, device: Device, models: Sequence[str]
) -> None:
    """Fail unless Yosys proves by induction that both forms of each primitive's module have equal outputs for all time.

    ``models`` are the texts of the cells' models.
    """
    read = []
    for index, model in enumerate(models):
        (folder / f"model_{index}.v").write_text(model)
        read.append(f"read_verilog model_{index}.v")
    for primitive in primitives:
        name = primitive.module_name
        script = [*read]
        for form, option in (("behaviour", "-nosynthesis"), ("cells", "")):
            (folder / f"{form}.v").write_text(named_modules("", {name: text_of(primitive, device)}, form, []))
            script.append(f"read_verilog {option} {form}.v")
        script += [
            "hierarchy; proc; flatten; opt_clean",
            f"miter -equiv -flatten -make_outputs behaviour_{name} cells_{name} miter",
            _SHARED.format(miter="miter"),
            "sat -verify -tempinduct -set-def-inputs -prove trigger 0 miter",
        ]
        tools.yosys("; ".join(script), folder, 600)
