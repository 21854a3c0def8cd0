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
import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from amaranth.lib import wiring
from netlists import (
    DIVISIONS,
    NOTHING,
    PRODUCT,
    PRODUCTS,
    SUM,
    SUMS,
    Bit,
    CutNetlist,
    Function,
    Gold,
    Instance,
    Names,
    Write,
)

from hwgen.devices import DEFAULT, Device
from hwgen.errors import ToolError
from hwgen.gateware.circuit_forms import Primitive
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
    (folder / "outside.v").write_text("\n".join(module.with_body("") for module in instantiated))
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
        """Return both modules, with sums of products, products, or neither cut (`netlists`)."""
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
    """Comparison of a pair of modules as a circuit of AND gates."""

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


#: Sides of a pair: Amaranth's module is the gold one, the emitted one the gate one.
GOLD, GATE = 0, 1
#: Beginning of the kind of functions that read a memory.
READ = "read of "


class Pair:
    """Gold and gate module, with sources that have the same values and sinks that must have.

    Parameters
    ----------
    gold, gate : CutNetlist
        Netlists of both modules.
    names : Names
        Names in the gate module of the gold one's wires, memories and instances.
    ports : dict of str to dict of str to str
        Names of ports in Verilog, by the name of a gold module and the port's name there.
    """

    def __init__(
        self, gold: CutNetlist, gate: CutNetlist, names: Names, ports: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.gold = gold
        self.gate = gate
        self.faults: list[str] = []
        self.children: list[tuple[str, str]] = []
        self._names = names
        self._ports = ports
        self._matched: dict[int, int] = {}
        self._compared: list[tuple[str, Bit, Bit, Bit]] = []
        self._memories: dict[str, str] = {}
        self._undefined = 0
        self._wires = {unescaped(wire): name for wire, name in names.wires.items()}
        for side in (gold, gate):
            self.faults += [f"{kind} can't be compared" for kind in sorted(side.refused)]
        self._match_ports()
        self._match_registers()
        self._match_memories()
        self._match_instances()

    # What corresponds

    def _match_ports(self) -> None:
        expected = {self._wires.get(port, port) for port in (*self.gold.inputs, *self.gold.outputs)}
        self.faults += [f"port {port} is new" for port in {*self.gate.inputs, *self.gate.outputs} - expected]
        for port, bits in self.gold.inputs.items():
            if (name := self._wires.get(port, port)) in self.gate.inputs:
                self._same(f"input {name}", bits, self.gate.inputs[name])
        for port, bits in self.gold.outputs.items():
            if (name := self._wires.get(port, port)) in self.gate.outputs:
                self._compare(f"output {name}", bits, self.gate.outputs[name])
            elif bits:
                self.faults.append(f"output {name} is missing")

    def _match_registers(self) -> None:
        matched: set[Bit] = set()
        for wire, name in self._wires.items():
            bits = zip(self.gold.wires.get(wire, ()), self.gate.wires.get(name, ()), strict=False)
            for index, (gold, gate) in enumerate(bits):
                if gold in self.gold.registers and gate in self.gate.registers and gold not in matched:
                    matched.add(gold)
                    self._match_register(f"{name}[{index}]", gold, gate)

    def _match_register(self, name: str, gold: Bit, gate: Bit) -> None:
        old, new = self.gold.registers[gold], self.gate.registers[gate]
        self._same(f"register {name}", [gold], [gate])
        self._compare(f"next value of {name}", [old.next], [new.next])
        self._compare(f"clock of {name}", [old.clock], [new.clock])
        if old.rising != new.rising:
            self.faults.append(f"{name} changes at the other edge")
        if old.initial not in ("x", new.initial):
            self.faults.append(f"{name} is {new.initial}, not {old.initial}, at power-up")

    def _match_memories(self) -> None:
        names = {unescaped(memory): name for memory, name in self._names.memories.items()}
        for memory, old in self.gold.memories.items():
            name = names.get(memory, "")
            new = self.gate.memories.get(name)
            if new is None:
                continue
            contents = zip(old.contents, new.contents, strict=False)
            if (old.width, old.words) != (new.width, new.words):
                self.faults.append(f"memory {name} has {new.words} words of {new.width} bits")
            elif not all(left in ("x", right) for left, right in contents):
                self.faults.append(f"memory {name} has other contents")
            else:
                self._memories[memory] = name
                for bit, (left, right) in enumerate(zip(old.writes, new.writes, strict=True)):
                    self._match_writes(f"{name}, bit {bit}", left, right)

    def _match_writes(self, label: str, gold: Sequence[Write], gate: Sequence[Write]) -> None:
        if not gold or not gate:  # the writer leaves out what is never enabled
            for write in gold:
                self._compare(f"write enable of {label}", [write.enable], ["0"])
            for write in gate:
                self._compare(f"write enable of {label}", ["0"], [write.enable])
            return
        if [write.rising for write in gold] != [write.rising for write in gate]:
            self.faults.append(f"{label} has other writes")
            return
        for left, right in zip(gold, gate, strict=True):
            self._compare(f"clock of {label}", [left.clock], [right.clock])
            self._compare(f"write enable of {label}", [left.enable], [right.enable])
            self._compare(f"write address of {label}", *padded(left.address, right.address), left.enable)
            self._compare(f"written data of {label}", [left.data], [right.data], left.enable)

    def _match_instances(self) -> None:
        names = {name.removeprefix("\\"): written for name, written in self._names.instances.items()}
        matched = {names.get(name.removeprefix("\\"), ""): instance for name, instance in self.gold.instances.items()}
        self.faults += [f"instance {name} is new" for name in self.gate.instances.keys() - matched.keys()]
        for name, instance in matched.items():
            if name in self.gate.instances:
                self._match_instance(name, instance, self.gate.instances[name])
            else:
                self.faults.append(f"instance {name} of {instance.module} is missing")

    def _match_instance(self, name: str, gold: Instance, gate: Instance) -> None:
        self.children.append((gold.module, gate.module))
        ports = self._ports[gold.module]
        inputs = {ports.get(port, port): bits for port, bits in gold.inputs.items()}
        if inputs.keys() != gate.inputs.keys():
            self.faults.append(f"other inputs of {name}: {sorted(inputs.keys() ^ gate.inputs.keys())}")
            return
        for port, bits in inputs.items():
            self._compare(f"input {port} of {name}", bits, gate.inputs[port])
        for port, bits in gold.outputs.items():
            if (output := ports.get(port, port)) in gate.outputs:
                self._same(f"output {output} of {name}", bits, gate.outputs[output])

    def _same(self, label: str, gold: Sequence[Bit], gate: Sequence[Bit]) -> None:
        """Let bits of both modules have the same values."""
        if len(gold) != len(gate):
            self.faults.append(f"{label} has {len(gate)} bits, not {len(gold)}")
        for left, right in zip(gold, gate, strict=False):
            if isinstance(left, int) and isinstance(right, int):
                self._matched.setdefault(right, left)

    def _compare(self, label: str, gold: Sequence[Bit], gate: Sequence[Bit], condition: Bit = "1") -> None:
        """Let bits of both modules be compared wherever a bit of the gold one is 1."""
        if len(gold) != len(gate):
            self.faults.append(f"{label} has {len(gate)} bits, not {len(gold)}")
        for index, (left, right) in enumerate(zip(gold, gate, strict=False)):
            self._compared.append((f"{label}[{index}]" if len(gold) > 1 else label, left, right, condition))

    # Both modules as one circuit

    def bit(self, bit: Bit, side: int) -> Bit:
        """Return a bit of the gold or the gate module as a bit of the pair: an undefined one as a new bit each time."""
        if isinstance(bit, str):
            if bit in "01":
                return bit
            self._undefined -= 1
            return self._undefined
        return 2 * self._matched[bit] if side == GATE and bit in self._matched else 2 * bit + side

    def is_free(self, bit: int) -> bool:
        """Return whether a source has no counterpart in the other module; results of functions are not meant."""
        if bit in self._results:
            return False
        return bit < 0 or bit % 2 == GATE or bit // 2 not in self._matched.values()

    @cached_property
    def _results(self) -> set[Bit]:
        return {bit for function in self.functions for bit in function.result}

    def described(self, bit: int) -> str:
        """Return the name of a source of one of the modules."""
        if bit < 0:
            return "an undefined value"
        side, original = bit % 2, bit // 2
        return f"{(self.gold, self.gate)[side].name(original)} {('of Amaranth', 'of the Verilog')[side]}"

    @cached_property
    def sinks(self) -> dict[tuple[Bit, Bit, Bit], str]:
        """Labels of the pairs of bits that must be equal wherever a third bit is 1."""
        sinks: dict[tuple[Bit, Bit, Bit], str] = {}
        for label, gold, gate, condition in self._compared:
            bits = self.bit(gold, GOLD), self.bit(gate, GATE), self.bit(condition, GOLD)
            if bits[0] != bits[1]:
                sinks.setdefault(bits, label)
        return sinks

    @cached_property
    def functions(self) -> list[Function]:
        """Products and reads of memories of both modules, those of the gold one first."""
        return [*self._functions(self.gold, GOLD), *self._functions(self.gate, GATE)]

    def _functions(self, netlist: CutNetlist, side: int) -> Iterator[Function]:
        for function in netlist.functions:
            kind = function.kind
            if kind.startswith(READ) and side == GOLD:
                memory = kind.removeprefix(READ)
                kind = f"{READ}{self._memories.get(memory, f'{memory} of Amaranth')}"
            operands = tuple(tuple(self.bit(bit, side) for bit in operand) for operand in function.operands)
            yield Function(kind, operands, tuple(self.bit(bit, side) for bit in function.result))

    def cells(self) -> list[Mapping[str, Any]]:
        """Return the logic of both modules, with the bits of the pair."""
        return [
            {
                "type": cell["type"],
                "parameters": cell["parameters"],
                "attributes": {},
                "port_directions": cell["port_directions"],
                "connections": {
                    port: [self.bit(bit, side) for bit in bits] for port, bits in cell["connections"].items()
                },
            }
            for side, netlist in ((GOLD, self.gold), (GATE, self.gate))
            for cell in netlist.logic
        ]


class Circuit:
    """Logic of a pair of modules, for Yosys: one module with the inputs ``sources`` and the outputs ``sinks``.

    ``sources`` and ``sinks`` have the names of its inputs and outputs, by bit of the pair.
    """

    def __init__(self, pair: Pair) -> None:
        self._cells = pair.cells()
        driven: set[Bit] = set()
        read: dict[Bit, None] = {}
        for cell in self._cells:
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    driven.update(bits)
                else:
                    read |= dict.fromkeys(bits)
        requested = [bit for sink in pair.sinks for bit in sink]
        requested += [bit for function in pair.functions for operand in function.operands for bit in operand]
        results = [bit for function in pair.functions for bit in function.result]
        self.sinks = _named("sinks", requested)
        self.sources = _named("sources", [bit for bit in (*results, *read, *requested) if bit not in driven])

    @property
    def document(self) -> dict[str, Any]:
        """Entry of the module in a file that Yosys' ``read_json`` reads."""
        numbers: dict[Bit, Bit] = {"0": "0", "1": "1"}

        def number(bit: Bit) -> Bit:
            return numbers.setdefault(bit, len(numbers))

        sides = (("input", "sources", self.sources), ("output", "sinks", self.sinks))
        ports = {
            name: {"direction": direction, "bits": [number(bit) for bit in bits]}
            for direction, name, bits in sides
            if bits
        }
        cells = {}
        for index, cell in enumerate(self._cells):
            connections = {port: [number(bit) for bit in bits] for port, bits in cell["connections"].items()}
            cells[f"cell_{index}"] = {**cell, "connections": connections}
        return {"attributes": {}, "ports": ports, "cells": cells, "netnames": {}}


def _named(port: str, bits: Sequence[Bit]) -> dict[Bit, str]:
    """Return the names of the bits of a port, each once, without constants."""
    unique = dict.fromkeys(bit for bit in bits if isinstance(bit, int))
    return {bit: f"{port}[{index}]" for index, bit in enumerate(unique)}


def unescaped(name: str) -> str:
    """Return an RTLIL name as Yosys writes it into JSON: without a backslash before a letter."""
    return name[1:] if name[:1] == "\\" and name[1] not in "$\\0123456789" else name


def padded(left: Sequence[Bit], right: Sequence[Bit]) -> tuple[list[Bit], list[Bit]]:
    """Return two unsigned numbers with zeros in front of the shorter one."""
    width = max(len(left), len(right))
    first, second = ([*bits, *["0"] * (width - len(bits))] for bits in (left, right))
    return first, second


#: Bits of random inputs that `AndGates.values` evaluates at once.
PATTERNS = 512


@dataclass(frozen=True)
class AndGates:
    """Combinational circuit of AND gates and inverters.

    A literal is twice a variable, plus one if inverted. Variable 0 is the constant 0. Inputs follow, then gates.

    Parameters
    ----------
    inputs : tuple of str
        Names of the inputs.
    gates : tuple of pair of int
        Literals of both inputs of each gate, in the order of the gates' variables.
    outputs : dict of str to int
        Literal of each output, by name.
    """

    inputs: tuple[str, ...]
    gates: tuple[tuple[int, int], ...]
    outputs: Mapping[str, int]

    @classmethod
    def read(cls, path: Path, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> AndGates:
        """Return the circuit in a file, whose symbols name inputs and outputs unless names are given."""
        content = path.read_bytes()
        line, _, rest = content.partition(b"\n")
        _, num_inputs, num_latches, num_outputs, num_gates = map(int, line.split()[1:6])
        assert num_latches == 0, "a register in a combinational circuit"
        *words, rest = rest.split(b"\n", num_outputs)
        differences, end = _numbers(rest, 2 * num_gates)
        gates = []
        for index in range(num_gates):
            left = 2 * (num_inputs + 1 + index) - differences[2 * index]
            gates.append((left, left - differences[2 * index + 1]))
        if not (inputs or outputs):
            symbols = (line.partition(" ") for line in rest[end:].decode().splitlines())
            names = {key: name if name.endswith("]") else f"{name}[0]" for key, _, name in symbols}
            inputs = tuple(names[f"i{index}"] for index in range(num_inputs))
            outputs = tuple(names[f"o{index}"] for index in range(num_outputs))
        return cls(inputs, tuple(gates), dict(zip(outputs, map(int, words), strict=True)))

    def write(self, path: Path) -> None:
        """Write the circuit into a file, without names."""
        first = len(self.inputs) + 1
        head = f"aig {first - 1 + len(self.gates)} {len(self.inputs)} 0 {len(self.outputs)} {len(self.gates)}\n"
        content = bytearray(head.encode())
        for literal in self.outputs.values():
            content += f"{literal}\n".encode()
        for index, gate in enumerate(self.gates):
            high, low = max(gate), min(gate)
            content += _number(2 * (first + index) - high) + _number(high - low)
        path.write_bytes(content)

    def with_equal(self, inputs: Mapping[str, str]) -> AndGates:
        """Return the circuit in which each input that is a key of ``inputs`` is replaced by the input of its value."""
        indices = {name: index + 1 for index, name in enumerate(self.inputs)}
        variables = {indices[old]: indices[new] for old, new in inputs.items()}

        def moved(literal: int) -> int:
            return 2 * variables.get(literal >> 1, literal >> 1) | literal & 1

        return replace(
            self,
            gates=tuple((moved(left), moved(right)) for left, right in self.gates),
            outputs={name: moved(literal) for name, literal in self.outputs.items()},
        )

    def miter(self, sinks: Iterable[Sequence[int]]) -> AndGates:
        """Return the circuit with an output for each sink: 1 where two literals differ and a third one is 1."""
        gates, outputs = list(self.gates), {}

        def both(left: int, right: int) -> int:
            gates.append((left, right))
            return 2 * (len(self.inputs) + len(gates))

        for index, (left, right, condition) in enumerate(sinks):
            equal = both(both(left, right ^ 1) ^ 1, both(left ^ 1, right) ^ 1)
            outputs[f"sink_{index}"] = both(equal ^ 1, condition)
        return replace(self, gates=tuple(gates), outputs=outputs)

    def is_zero(self, folder: Path, seconds: float) -> bool:
        """Return whether ABC proves that all outputs are 0 for all inputs.

        Raises
        ------
        subprocess.TimeoutExpired
            If ABC takes longer than ``seconds``.
        """
        self.write(folder / "miter.aig")
        return "Networks are equivalent" in tools.abc("&r miter.aig; &cec -m -C 1000000", folder, seconds)

    def hashed(self, folder: Path, seconds: float) -> AndGates:
        """Return the circuit in which ABC has merged all gates with equal inputs.

        Raises
        ------
        subprocess.TimeoutExpired
            If ABC takes longer than ``seconds``.
        """
        return self._changed("&st", folder, seconds)

    def reduced(self, folder: Path, seconds: float) -> AndGates:
        """Return the circuit in which ABC has merged all gates that it proved equal, and inverse ones, for all inputs.

        Outputs with the same literal are equal. Equal outputs can keep different literals.

        Raises
        ------
        subprocess.TimeoutExpired
            If ABC takes longer than ``seconds``.
        """
        return self._changed("&fraig -x", folder, seconds)

    def _changed(self, command: str, folder: Path, seconds: float) -> AndGates:
        """Return the circuit after a command of ABC that keeps inputs and outputs."""
        self.write(folder / "before.aig")
        (folder / "after.aig").unlink(missing_ok=True)
        said = tools.abc(f"&r before.aig; {command}; &w after.aig", folder, seconds)
        assert (folder / "after.aig").exists(), said
        return AndGates.read(folder / "after.aig", self.inputs, tuple(self.outputs))

    def values(self, seed: int) -> dict[str, int]:
        """Return the outputs for `PATTERNS` random inputs, a bit each, by name."""
        draw = random.Random(seed)
        ones = (1 << PATTERNS) - 1
        variables = [0, *(draw.getrandbits(PATTERNS) for _ in self.inputs)]

        def value(literal: int) -> int:
            return variables[literal >> 1] ^ (ones if literal & 1 else 0)

        for left, right in self.gates:
            variables.append(value(left) & value(right))
        return {name: value(literal) for name, literal in self.outputs.items()}

    def support(self, literal: int) -> Iterator[str]:
        """Yield the names of the inputs that a literal depends on."""
        ahead, seen = [literal >> 1], {0}
        while ahead:
            variable = ahead.pop()
            if variable in seen:
                continue
            seen.add(variable)
            if variable <= len(self.inputs):
                yield self.inputs[variable - 1]
            else:
                ahead += [literal >> 1 for literal in self.gates[variable - len(self.inputs) - 1]]


def _numbers(content: bytes, count: int) -> tuple[list[int], int]:
    """Return ``count`` numbers in AIGER's format, seven bits a byte, the lowest first, and where they end."""
    numbers, position = [], 0
    for _ in range(count):
        value = shift = 0
        while (byte := content[position]) & 0x80:
            value |= (byte & 0x7F) << shift
            shift, position = shift + 7, position + 1
        numbers.append(value | byte << shift)
        position += 1
    return numbers, position


def _number(value: int) -> bytes:
    """Return a number in AIGER's format, seven bits a byte, the lowest first."""
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)
