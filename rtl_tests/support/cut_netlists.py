"""Netlists of modules as Yosys reads them, with registers, memories, instances, products and their sums cut out.

What remains is combinational: from *sources* (inputs, registers, outputs of instances, results of functions) to *sinks*
(outputs, next values of registers, inputs of instances, writes of memories, operands of functions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sums import Addition, Bit, Sums

#: Kinds of `Function` whose result has as many low bits of the product, or of the sum, as its operands have.
PRODUCT, SUM = "product", "sum"
#: What is cut out of the logic: nothing, products and divisions, or sums of products as well.
NOTHING, PRODUCTS, SUMS = range(3)
#: Kinds of `Function` by the division of unsigned numbers that they are.
DIVISIONS = {"$div": "quotient", "$divfloor": "quotient", "$mod": "remainder", "$modfloor": "remainder"}
#: Kinds of cells that are combinational logic, without a dollar sign.
_LOGIC = {"not", "pos", "neg", "buf", "and", "or", "xor", "xnor", "add", "sub", "mux", "pmux", "bmux", "demux"}
_LOGIC |= {"logic_not", "logic_and", "logic_or", "lt", "le", "eq", "ne", "eqx", "nex", "ge", "gt"}
_LOGIC |= {"reduce_and", "reduce_or", "reduce_xor", "reduce_xnor", "reduce_bool"}
_LOGIC |= {"shl", "shr", "sshl", "sshr", "shift"}


@dataclass(frozen=True)
class Register:
    """One bit of a register: its next value, its clock, whether the edge rises, and its value at power-up."""

    next: Bit
    clock: Bit
    rising: bool
    initial: str


@dataclass(frozen=True)
class Write:
    """Write of one bit of a memory's words: clock, whether its edge rises, address, enable and data."""

    clock: Bit
    rising: bool
    address: tuple[Bit, ...]
    enable: Bit
    data: Bit


@dataclass(frozen=True)
class Memory:
    """Memory with its contents at power-up, the highest word first, and the writes of each bit of its words."""

    width: int
    words: int
    contents: str
    writes: tuple[tuple[Write, ...], ...]


@dataclass(frozen=True)
class Function:
    """Multiplication, sum, division, or read of a memory: equal operands give equal results.

    ``kind`` is `PRODUCT`, `SUM`, a kind of division, or the memory that is read. The operands of a product and of a sum
    are as wide as its result, and in any order; all others are unsigned.
    """

    kind: str
    operands: tuple[tuple[Bit, ...], ...]
    result: tuple[Bit, ...]


@dataclass(frozen=True)
class Instance:
    """Instance of a module: the module's name, and the bits at its inputs and outputs, by port."""

    module: str
    inputs: Mapping[str, list[Bit]]
    outputs: Mapping[str, list[Bit]]


@dataclass
class CutNetlist:
    """Netlist of one module, cut at registers, memories, instances, multiplications and sums of products.

    ``cuts`` is `NOTHING`, `PRODUCTS` or `SUMS`: with `NOTHING`, multiplications and divisions are part of the logic.
    ``refused`` names the cells that can't be compared.
    """

    inputs: dict[str, list[Bit]]
    outputs: dict[str, list[Bit]]
    wires: dict[str, list[Bit]]
    cuts: int = SUMS
    registers: dict[Bit, Register] = field(default_factory=dict)
    memories: dict[str, Memory] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    instances: dict[str, Instance] = field(default_factory=dict)
    logic: list[Mapping[str, Any]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, document: Mapping[str, Any], cuts: int = SUMS) -> CutNetlist:
        """Return the netlist of a module's entry in a file that Yosys' ``write_json`` wrote, without processes."""
        ports = document["ports"].items()
        self = cls(
            inputs={name: port["bits"] for name, port in ports if port["direction"] == "input"},
            outputs={name: port["bits"] for name, port in ports if port["direction"] == "output"},
            wires={name: wire["bits"] for name, wire in document["netnames"].items()},
            cuts=cuts,
        )
        initial = {}
        for wire in document["netnames"].values():
            value = wire["attributes"].get("init", "")
            initial |= {bit: digit for bit, digit in zip(wire["bits"], reversed(value), strict=False) if digit != "x"}
        never = _never(document["cells"].values())
        cut: Mapping[str, Addition] = {}
        if cuts == SUMS:
            sums = Sums(document)
            cut = sums.additions
            self.functions += [Function(SUM, addends, result) for addends, result in sums.roots()]
        for name, cell in document["cells"].items():
            if name not in cut:
                self._add(name, cell, initial, never)
        return self

    def _add(self, name: str, cell: Mapping[str, Any], initial: Mapping[Bit, str], never: set[Bit]) -> None:
        kind, ports = cell["type"], cell["connections"]
        if kind == "$dff":
            (clock,) = ports["CLK"]
            rising = bool(_integer(cell, "CLK_POLARITY"))
            for next_bit, bit in zip(ports["D"], ports["Q"], strict=True):
                self.registers[bit] = Register(next_bit, clock, rising, initial.get(bit, "x"))
        elif kind == "$mem_v2":
            self._add_memory(cell, never)
        elif kind in DIVISIONS and "1" in cell["parameters"]["A_SIGNED"]:
            self.refused.add(f"{kind} of signed numbers")
        elif kind in (*DIVISIONS, "$mul") and self.cuts == NOTHING:
            self.logic.append(_simple(cell))
        elif kind == "$mul":
            self.functions.append(_product(cell))
        elif kind in DIVISIONS:
            self.functions.append(Function(DIVISIONS[kind], (tuple(ports["A"]), tuple(ports["B"])), tuple(ports["Y"])))
        elif not kind.startswith("$") or kind.startswith("$paramod"):
            sides = {
                side: {port: bits for port, bits in ports.items() if cell["port_directions"][port] == side}
                for side in ("input", "output")
            }
            self.instances[name] = Instance(kind, sides["input"], sides["output"])
        elif kind.removeprefix("$") in _LOGIC:
            self.logic.append(cell)
        else:
            self.refused.add(kind)

    def _add_memory(self, cell: Mapping[str, Any], never: set[Bit]) -> None:
        name, width = cell["parameters"]["MEMID"].removeprefix("\\"), _integer(cell, "WIDTH")
        words, bits, ports = _integer(cell, "SIZE"), _integer(cell, "ABITS"), cell["connections"]
        clocked = cell["parameters"]["RD_CLK_ENABLE"] + cell["parameters"]["RD_WIDE_CONTINUATION"]
        wide = cell["parameters"]["WR_WIDE_CONTINUATION"]
        if "1" in clocked + wide or "0" in _flags(cell, "WR_CLK_ENABLE") or _integer(cell, "OFFSET"):
            self.refused.add(f"ports of the memory {name}")
            return
        for port in range(_integer(cell, "RD_PORTS")):
            address = tuple(ports["RD_ADDR"][port * bits : (port + 1) * bits])
            self.functions.append(
                Function(f"read of {name}", (address,), tuple(ports["RD_DATA"][port * width : (port + 1) * width]))
            )
        contents = cell["parameters"]["INIT"].rjust(words * width, "x")
        writes = tuple(tuple(_writes(cell, bit, width, bits, never)) for bit in range(width))
        self.memories[name] = Memory(width, words, contents, writes)

    def name(self, bit: Bit) -> str:
        """Return a name of a bit, that of a signal if it has one."""
        names = [(wire, bits) for wire, bits in self.wires.items() if bit in bits]
        wire, bits = min(names, key=lambda entry: ("$" in entry[0], len(entry[0])), default=("?", [bit]))
        return wire if len(bits) == 1 else f"{wire}[{bits.index(bit)}]"


def _integer(cell: Mapping[str, Any], parameter: str) -> int:
    return int(cell["parameters"][parameter], 2)


def _flags(cell: Mapping[str, Any], parameter: str) -> str:
    """Return a parameter that has a bit for each write port, that of port 0 first."""
    return cell["parameters"][parameter][::-1][: _integer(cell, "WR_PORTS")]


def _simple(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a multiplication or a division of unsigned numbers that Yosys can map: no operand has no bits."""
    kind = cell["type"].replace("floor", "")
    connections = {port: bits or ["0"] for port, bits in cell["connections"].items()}
    widths = {f"{port}_WIDTH": f"{len(bits):032b}" for port, bits in connections.items()}
    return {**cell, "type": kind, "connections": connections, "parameters": {**cell["parameters"], **widths}}


def _product(cell: Mapping[str, Any]) -> Function:
    """Return a multiplication with both operands extended to the width of its result."""
    ports = cell["connections"]
    width = len(ports["Y"])
    operands = []
    for port in "AB":
        bits = ports[port]
        above = bits[-1] if _integer(cell, f"{port}_SIGNED") else "0"
        operands.append(tuple([*bits, *[above] * (width - len(bits))][:width]))
    return Function(PRODUCT, tuple(operands), tuple(ports["Y"]))


def _never(cells: Iterable[Mapping[str, Any]]) -> set[Bit]:
    """Return the bits that are 0 because both inputs of a multiplexer are, and the constant."""
    bits: set[Bit] = {"0"}
    for cell in cells:
        if cell["type"] == "$mux":
            ports = cell["connections"]
            sides = zip(ports["A"], ports["B"], ports["Y"], strict=True)
            bits.update(result for left, right, result in sides if left == right == "0")
    return bits


def _writes(cell: Mapping[str, Any], bit: int, width: int, address_bits: int, never: set[Bit]) -> Iterator[Write]:
    """Yield the writes of one bit of a memory's words, in the order of the ports, without those never enabled."""
    ports, rising = cell["connections"], _flags(cell, "WR_CLK_POLARITY")
    for port, polarity in enumerate(rising):
        enable = ports["WR_EN"][port * width + bit]
        if enable not in never:
            address = tuple(ports["WR_ADDR"][port * address_bits : (port + 1) * address_bits])
            yield Write(ports["WR_CLK"][port], polarity == "1", address, enable, ports["WR_DATA"][port * width + bit])
