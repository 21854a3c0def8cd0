"""Netlists of modules as Yosys reads them, with registers, memories, instances, products and sums cut out.

What remains is combinational: from *sources* (inputs, registers, outputs of instances, results of functions) to *sinks*
(outputs, next values of registers, inputs of instances, writes of memories, operands of functions).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amaranth import DomainRenamer, Module, Signal, Value
from amaranth import Instance as InstanceInAmaranth
from amaranth.back import rtlil as rtlil_of_amaranth
from amaranth.lib import memory, wiring

from hwgen.devices import Device
from hwgen.gateware.circuit_forms import Modelled, Part, Primitive
from hwgen.verilog import parts, primitives, rtlil
from hwgen.verilog.faces import Elaborated, components, faces, outputs
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist
from hwgen.verilog.primitives import PrimitivePlatform
from hwgen.verilog.writer import WriterPlatform

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


#: Bit of a netlist: the number that Yosys gives it, or the text of a constant.
Bit = int | str
Word = tuple[Bit, ...]
"""Bits of a number, the lowest first."""


@dataclass(frozen=True)
class Addition:
    """Addition of two numbers modulo ``2 ** width``: both operands and the result have ``width`` bits.

    Only the bits that the module reads are part of the result.
    """

    operands: tuple[Word, Word]
    result: Word


class Sums:
    """Sums in which products are added, each with all of its addends."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        cells = document["cells"].items()
        self._products = {bit for _, cell in cells if cell["type"] == "$mul" for bit in cell["connections"]["Y"]}
        readers: dict[Bit, set[str]] = defaultdict(set)
        for port in document["ports"].values():
            if port["direction"] == "output":
                for bit in port["bits"]:
                    readers[bit].add("")
        for name, cell in cells:
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "input":
                    for bit in bits:
                        readers[bit].add(name)
        additions = {
            name: addition
            for name, cell in cells
            if cell["type"] == "$add" and (addition := _addition(cell, readers)) is not None
        }
        self._by_lowest = {addition.result[0]: addition for addition in additions.values()}
        #: Additions of products, by the name of the cell.
        self.additions = {name: addition for name, addition in additions.items() if self._adds_products(addition)}
        self._readers = readers

    def roots(self) -> Iterator[tuple[tuple[Word, ...], Word]]:
        """Yield addends and result of each sum that is not only an addend of other ones; addends of 0 are left out."""
        for addition in self.additions.values():
            readers = set().union(*(self._readers[bit] for bit in addition.result))
            if not all(self._is_addend(addition, reader) for reader in readers):
                addends = (addend for addend in self._addends(addition) if any(bit != "0" for bit in addend))
                yield tuple(addends), addition.result

    def _is_addend(self, addition: Addition, reader: str) -> bool:
        """Return whether a cell that reads an addition's result is a sum that has its addends."""
        outer = self.additions.get(reader)
        return outer is not None and all(
            self._inner(operand) == addition for operand in outer.operands if set(operand) & set(addition.result)
        )

    def _inner(self, operand: Word) -> Addition | None:
        """Return the addition whose lowest bits an operand is."""
        inner = self._by_lowest.get(operand[0])
        return inner if inner is not None and inner.result[: len(operand)] == operand else None

    def _addends(self, addition: Addition) -> list[Word]:
        """Return the addends of a sum, modulo its width."""
        width, addends, ahead = len(addition.result), [], list(addition.operands)
        while ahead:
            operand = ahead.pop()
            inner = self._inner(operand)
            if inner is None:
                addends.append(operand)
            else:
                ahead += [deeper[:width] for deeper in inner.operands]
        return addends

    def _adds_products(self, addition: Addition) -> bool:
        return any(bit in self._products for addend in self._addends(addition) for bit in addend)


def _addition(cell: Mapping[str, Any], readers: Mapping[Bit, set[str]]) -> Addition | None:
    """Return the addition of a cell, whose result has the bits up to the highest one that is read; None without one."""
    ports = cell["connections"]
    width = max((index + 1 for index, bit in enumerate(ports["Y"]) if readers.get(bit)), default=0)
    if width == 0:
        return None
    is_signed = all("1" in cell["parameters"][f"{port}_SIGNED"] for port in "AB")
    operands = []
    for port in "AB":
        bits = ports[port]
        above = bits[-1] if is_signed else "0"
        operands.append(tuple([*bits, *[above] * (width - len(bits))][:width]))
    return Addition((operands[0], operands[1]), tuple(ports["Y"][:width]))


@dataclass(frozen=True)
class Names:
    """Verilog names of an RTLIL module's wires (ports and registers among them), memories and instances."""

    wires: Mapping[str, str]
    memories: Mapping[str, str] = field(default_factory=dict)
    instances: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: ModuleText) -> Names:
        """Return the names that a module's writer chose. It chooses the last of them while it writes."""
        text.lines()
        return cls(text.names, text.memories, text.cells)


class Recorder(PrimitivePlatform):
    """Platform that also records the primitives and components with a model, by the name of their instances' module."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.circuits: dict[str, Primitive[Any] | Modelled[Any]] = {}

    def get_primitive(self, this: Primitive[Any]) -> Any:
        made = super().get_primitive(this)
        if isinstance(made, InstanceInAmaranth):
            self.circuits[made.type] = this
        return made

    def get_modelled(self, this: Modelled[Any]) -> Any:
        made = super().get_modelled(this)
        self.circuits[made.type] = this
        return made


class DesignRecorder(Recorder, WriterPlatform):
    """Platform of the Verilog writer that also records large memories, each an instance of a module of its own."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.memories: dict[str, memory.Memory] = {}

    def get_memory(self, this: memory.Memory) -> Any:
        made = super().get_memory(this)
        if isinstance(made, InstanceInAmaranth):
            made.type = f"memory-{len(self.memories)}"
            self.memories[made.type] = this
        return made


@dataclass
class Gold:
    """Amaranth's netlists of a design's modules, with the names that the Verilog writer gives to their parts.

    Parameters
    ----------
    top : str
        Name of the top module.
    texts : list of str
        RTLIL of the modules.
    names : dict of str to Names
        Names in Verilog, by the module's name in RTLIL.
    circuits : dict of str to str
        Name of the module that synthesis reads, by the name of the module that simulators read, where both differ.
    """

    top: str
    texts: list[str] = field(default_factory=list)
    names: dict[str, Names] = field(default_factory=dict)
    circuits: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, component: wiring.Component, top: str, device: Device) -> Gold:
        """Return Amaranth's netlists of a component, which the Verilog writer writes as the module ``top``."""
        self = cls(top)
        platform = DesignRecorder(top, component, device)
        elaborated = Elaborated(component)
        text = rtlil_of_amaranth.convert(elaborated, top, platform)
        design = rtlil.parse(text)
        separate = parts.written(design, platform.parts, device)
        outside = faces(design, components(elaborated.fragment, top), separate)
        drivers = outputs(elaborated.fragment)
        self.texts.append(text)
        for name, module in design.items():
            self.names[name] = Names.of(ModuleText(netlist(module, design, drivers), outside[name], outside))
        recorder = Recorder(device)
        for name, part in platform.parts.items():
            self._add_part(name, part, separate[name].name, recorder)
        for name, large in platform.memories.items():
            self._add_memory(name, large)
        recorder.circuits |= platform.circuits
        self._add_circuits(recorder)
        return self

    def _add_part(self, name: str, part: Part[Any], instance: str, recorder: Recorder) -> None:
        text, _, writer = parts.text_of(part, instance, recorder)
        self.texts.append(_renamed(text, instance, name))
        self.names[name] = Names.of(writer)

    def _add_memory(self, name: str, large: memory.Memory) -> None:
        """Add a large memory, whose ports have the names that the writer's module gives them."""
        ports = []
        for side, members in (("r", large.read_ports), ("w", large.write_ports)):
            for index, port in enumerate(members):
                fields = {"addr": port.addr, "data": port.data, "en": port.en}
                ports += [(f"{side}{index}_{key}", Value.cast(value), None) for key, value in fields.items()]
        signals = [port for port in ports if isinstance(port[1], Signal)]
        (domain,) = {port.domain for port in (*large.read_ports, *large.write_ports)} - {"comb"}
        around = Module()
        around.submodules.memory = DomainRenamer({domain: "sync"})(large)
        text = rtlil_of_amaranth.convert(around, name, ports=signals)
        self.texts.append(text)
        module = rtlil.parse(text)[name]
        ports_of_module = {wire: wire.removeprefix("\\") for wire, port in module.wires.items() if port.port}
        self.names[name] = Names(ports_of_module, dict.fromkeys(module.memories, "memory"))

    def _add_circuits(self, recorder: Recorder) -> None:
        """Add primitives, and both circuits of components with a model."""
        done: set[str] = set()
        while left := recorder.circuits.keys() - done:
            name = min(left)
            done.add(name)
            this = recorder.circuits[name]
            if isinstance(this, Primitive):
                self._add_circuit(name, *primitives.behaviour(this))
                continue
            self.circuits[name] = f"{name}-circuit"
            self._add_circuit(name, *primitives.form(this, this.model(), recorder))
            self._add_circuit(self.circuits[name], *primitives.form(this, this.circuit(), recorder))

    def _add_circuit(self, name: str, text: str, writer: ModuleText) -> None:
        self.texts.append(_renamed(text, next(iter(rtlil.parse(text))), name))
        self.names[name] = Names.of(writer)


def _renamed(text: str, old: str, new: str) -> str:
    """Return RTLIL with another name of the module ``old``."""
    renamed, count = re.subn(rf"^module \\{re.escape(old)}$", lambda match: f"module \\{new}", text, flags=re.MULTILINE)
    assert count == 1, old
    return renamed
