"""Pairs of modules, Amaranth's and the emitted one, as one combinational circuit with outputs that must be equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from cut_netlists import Bit, CutNetlist, Function, Instance, Write
from module_pairs import Names

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

    Parameters
    ----------
    pair : Pair
        Pair of modules.
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
