"""Writer of the Verilog text of one module from its netlist: names, declarations, logic, and one block per clock."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hwgen.gateware.lookup import chosen_name
from hwgen.gateware.names import reserved
from hwgen.verilog.expression import Expressions, const, selected
from hwgen.verilog.netlist import (
    Clock,
    Multiplexer,
    Netlist,
    Piece,
    StoredMemory,
    cut,
    distinct,
    is_const,
    is_unnamed,
    joined,
    value_of,
    width_of,
)
from hwgen.verilog.rtlil import Assign, Body, Cell, Sig, Switch, Wire, unwritable

#: Maximum length of a Verilog line that can be broken, in columns.
COLUMNS = 116
#: Minimum number of arms of a multiplexer that is written as a function with a case statement. Yosys turns question
#: marks into a priority: a window of 11 taps then needs 40 % more LUTs. A choice among constants is a table.
TABLE = 5

_WORDS = {
    "$add": "plus",
    "$sub": "minus",
    "$mul": "times",
    "$and": "and",
    "$or": "or",
    "$xor": "xor",
    "$eq": "is",
    "$ne": "is_not",
    "$lt": "below",
    "$le": "at_most",
    "$gt": "above",
    "$ge": "at_least",
}
_KINDS = {
    "$add": "sum",
    "$sub": "difference",
    "$mul": "product",
    "$mux": "choice",
    "$shl": "shifted",
    "$shr": "shifted",
    "$sshr": "shifted",
    "$shift": "part",
    "$and": "both",
    "$or": "either",
    "$xor": "odd",
    "$eq": "same",
    "$ne": "differ",
    "$neg": "negative",
    "$not": "inverse",
    "$reduce_or": "any",
    "$reduce_bool": "any",
    "$reduce_and": "all",
    "$reduce_xor": "parity",
}


@dataclass(frozen=True)
class Face:
    """Outside view of a Verilog module: its name, the Verilog names of its ports, and its comment lines.

    Parameters
    ----------
    name : str
        Name of the module.
    ports : dict of str to str
        Names of the ports, in order, by their wires.
    head : tuple of str
        Lines of the comment above the module.
    notes : dict of str to str
        Meaning of a port's bits, by the port's name.
    instance : str
        Name of the module's instance. No signal of the module has this name, because it would hide the instance.
    """

    name: str
    ports: dict[str, str]
    head: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    instance: str = ""


@dataclass
class _Drivers:
    """Right sides (Verilog text) that drive a wire or its selected bits, by name, with lines to write before them."""

    values: dict[str, str]
    before: list[str] = field(default_factory=list)


class ModuleText:
    """Writer of one module's Verilog text, from its netlist and its outside view (names and comments).

    Parameters
    ----------
    net : Netlist
        Netlist of the module.
    face : Face
        Name, ports and comments of the module.
    faces : dict of str to Face
        Names, ports and comments of all modules, by their names in RTLIL.
    part : bool
        Whether synthesis flattens the module into its parent. Cleared summands are then declared after registers.
    """

    def __init__(self, net: Netlist, face: Face, faces: Mapping[str, Face], *, part: bool = False) -> None:
        self._net = net
        self._part = part
        self._face = face
        self._faces = faces
        self._wires = net.module.wires
        self._taken: set[str] = set()
        self.names: dict[str, str] = {}
        self._asked: list[str] = []
        self._inputs = {wire for wire, each in self._wires.items() if each.port == "input"}
        self._functions: dict[object, tuple[str, list[str]]] = {}
        self._express = Expressions(
            net.operators, self._name, lambda wire: self._wires[wire].width, self._inline, self._call
        )
        self._reads = {cell.ports["DATA"][0].wire: (memory, cell) for memory in net.memories for cell in memory.reads}
        self._registers = {*net.registers, *(w for w, (_, c) in self._reads.items() if c.parameters["CLK_ENABLE"])}
        self._instance_wires: list[str] = []
        self._aliases = self._names_of_aliases()
        self._choose_names()

    # Names

    def _names_of_aliases(self) -> dict[str, list[str]]:
        """Return a dict from the RTLIL name of a whole wire to a list of its other RTLIL names."""
        names: dict[str, list[str]] = {}
        for alias in self._net.aliases:
            name = alias.left[0].wire
            if len(alias.right) == 1 and alias.right[0].wire and "." not in name and "[" not in name:
                chunk = alias.right[0]
                if chunk.low == 0 and chunk.width == self._wires[chunk.wire].width:
                    names.setdefault(chunk.wire, []).append(name)
        return names

    def _choose_names(self) -> None:
        # Ports have the names that the parent module uses.
        self.names |= self._face.ports
        self._taken |= {name.lower() for name in self._face.ports.values()}
        self._taken |= {self._face.instance.lower(), f"{self._face.instance}_2".lower()}
        self.cells = {cell.name: self._new_name(plain(cell.name)) for cell in self._net.instances}
        self.memories = {m.memory.name: self._new_name(plain(m.memory.name)) for m in self._net.memories}
        members = self._members()
        for wire, member in members.items():
            if wire not in self.names and (wire in self._instance_wires or self._source_name(wire, member) is None):
                self.names[wire] = self._new_name(member)
        for wire in (*self._net.registers, *self._reads, *self._net.logic, *self._net.operators):
            own = self._source_name(wire, "")
            if wire not in self.names and own is not None and not (wire in self._reads and "__" in own):
                self.names[wire] = self._new_name(own)
        for memory in self._net.memories:
            name = self.memories[memory.memory.name]
            for what, cells in (("read", memory.reads), ("write", memory.writes)):
                for cell in cells:
                    self._choose(cell.ports["ADDR"], f"{name}_{what}_address")
                    self._choose(cell.ports["DATA"], f"{name}_data" if what == "read" else f"{name}_written")

    def _choose(self, sig: Sig, name: str) -> None:
        """Assign the Verilog name ``name`` to a whole wire that has no name yet."""
        wire = sig[0].wire if len(sig) == 1 else ""
        if wire and wire not in self.names and wire not in self._net.operators:
            self.names[wire] = self._new_name(name)

    def _members(self) -> dict[str, str]:
        """Return a dict from RTLIL name to Verilog name (``INSTANCE__PORT``) of wires at instances' ports."""
        members: dict[str, str] = {}
        for cell in self._net.instances:
            outputs = self._net.outputs[cell.name]
            for port, sig in cell.ports.items():
                wire = sig[0].wire if len(sig) == 1 and sig[0].width == self._wires_width(sig[0].wire) else ""
                if wire and port in outputs:
                    members[wire] = f"{self.cells[cell.name]}__{self._port_name(cell, port)}"
                    self._instance_wires.append(wire)
        for cell in self._net.instances:
            for port, sig in cell.ports.items():
                wire = sig[0].wire if len(sig) == 1 and sig[0].width == self._wires_width(sig[0].wire) else ""
                if wire and wire not in members and port not in self._net.outputs[cell.name]:
                    members[wire] = f"{self.cells[cell.name]}__{self._port_name(cell, port)}"
        return members

    def _wires_width(self, wire: str) -> int:
        return self._wires[wire].width if wire else -1

    def _port_name(self, cell: Cell, port: str) -> str:
        face = self._faces.get(cell.kind[1:])
        return face.ports[f"\\{port}"] if face is not None else port

    def _source_name(self, wire: str, member: str) -> str | None:
        """Return a wire's name in the Amaranth source code; ``None`` if it has only an instance port's name."""
        names = [name for name in (wire, *self._aliases.get(wire, ())) if not is_unnamed(name)]
        bases = [base(name) for name in names]
        ports = member.partition("__")[2]
        if ports in bases:
            bases.remove(ports)
        bases.sort(key=lambda name: "__" in name)
        return plain(bases[0]) if bases else None

    def _new_name(self, name: str) -> str:
        if name in reserved() - {"clk", "rst"}:
            name += "_"
        if name[0].isdigit():
            name = f"n{name}"
        suffix, new = 2, name
        while new.lower() in self._taken:
            new = f"{name.rstrip('_')}_{suffix}"
            suffix += 1
        self._taken.add(new.lower())
        return new

    def _name(self, wire: str) -> str:
        """Return the Verilog name of a wire, chosen now if it has none, and note that it must be declared."""
        if wire not in self.names:
            self.names[wire] = self._new_name(self._hint(wire))
        if wire not in self._seen:
            self._seen[wire] = None
            self._asked.append(wire)
        return self.names[wire]

    _seen: dict[str, None]

    def _hint(self, wire: str) -> str:
        cell = self._net.operators.get(wire)
        if cell is None:
            return "next" if wire in self._net.logic else "word"
        if name := chosen_name(cell.source):
            return name
        if cell.kind == "$mux":
            words = [self._word(cell.ports[port]) for port in "AB"]
            if "0" in words and all(words):
                return f"{words[0] if words[1] == '0' else words[1]}_or_0"
        if cell.kind in _WORDS:
            words = [self._word(cell.ports[port]) for port in "AB"]
            if all(words) and len("".join(words)) <= 32:
                return f"{words[0]}_{_WORDS[cell.kind]}_{words[1]}"
        if cell.kind in ("$not", "$reduce_or", "$reduce_bool", "$reduce_and") and (word := self._word(cell.ports["A"])):
            return f"{'not' if cell.kind == '$not' else _KINDS[cell.kind]}_{word}"
        return _KINDS.get(cell.kind, "value")

    @cached_property
    def _readers(self) -> dict[str, list[Cell]]:
        """Dictionary from a wire's RTLIL name to a list of each `Cell` (operator) that reads the wire."""
        readers: dict[str, list[Cell]] = {}
        for cell in self._net.operators.values():
            for port, sig in cell.ports.items():
                for chunk in sig if port != "Y" else ():
                    readers.setdefault(chunk.wire, []).append(cell)
        return readers

    @cached_property
    def _cleared(self) -> set[str]:
        """Set of RTLIL names of addends that a multiplexer can set to zero, as at the start of an accumulation.

        Yosys puts the operand of a sum that is declared first on the carry chain. If that operand is a register, Yosys
        can merge the multiplexer and the sum, which the LUT counts of plans do not assume. Cleared summands are
        therefore declared before registers.
        """
        cleared = set()
        for wire, cell in self._net.operators.items():
            zero = cell.kind == "$mux" and any(is_const(cell.ports[p]) and not value_of(cell.ports[p]) for p in "AB")
            if zero and is_unnamed(wire) and any(r.kind in ("$add", "$sub") for r in self._readers.get(wire, ())):
                cleared.add(wire)
        return cleared

    def _word(self, sig: Sig) -> str:
        """Return the text of a constant or wire for use in another wire's Verilog name; empty for other signals."""
        if len(sig) != 1:
            return "" if sig else "0"
        chunk = sig[0]
        if chunk.is_const:
            return str(chunk.value) if chunk.value < 10000 else ""
        if chunk.wire not in self.names:
            return ""
        low_bit = "" if chunk.width == self._wires[chunk.wire].width else f"_{chunk.low}"
        return f"{self.names[chunk.wire]}{low_bit}".replace("__", "_")

    def _inline(self, wire: str) -> bool:
        cell = self._net.operators.get(wire)
        if cell is None or wire in self.names or self._express.needs_room(cell):
            return False
        if wire in self._cleared:
            return False
        simple = cell.kind == "$not" and len(cell.ports["A"]) == 1 and cell.ports["A"][0].width == 1
        return self._net.uses[wire] == 1 or simple

    # Text

    def lines(self) -> list[str]:
        """Return a list of the lines of the module's Verilog text, from ``module`` to ``endmodule``."""
        self._seen = {}
        clocked = [self._clock(clock) for clock in self._net.clocks]
        memories = [line for memory in self._net.memories for line in self._memory(memory)]
        instances = [line for cell in self._net.instances for line in self._instance(cell)]
        logic = self._logic()
        front = [f"    {self._declaration(wire)};" for wire in self._asked if wire in self._cleared]
        held = [*self._declared_registers(), *self._declared_memories()]
        parts = [
            *([held, front] if self._part else [front, held]),
            self._declared_instance_wires(),
            [line for _, lines in self._functions.values() for line in lines],
            logic,
            memories,
            instances,
            *clocked,
        ]
        lines = [*(f"// {line}".rstrip() for line in self._face.head), *self._ports()]
        for part in parts:
            lines += ["", *part] if part else []
        return [*lines, "endmodule"]

    def _ports(self) -> list[str]:
        kinds = []
        for wire in self._face.ports:
            each = self._wires[wire]
            kind = "reg" if wire in self._registers else "wire"
            kinds.append(f"{each.port:6} {kind:4} {_bits(each.width)}{self._initial(wire)}")
        notes = [self._face.notes.get(name, "") for name in self._face.ports.values()]
        lines = [f"module {self._face.name} ("]
        # Only the ports of the outermost module are what a tool packages.
        asked = ["" if self._face.instance else _attributes(self._wires[wire]) for wire in self._face.ports]
        for number, (text, note, attributes) in enumerate(zip(kinds, notes, asked, strict=True)):
            comma = "," if number + 1 < len(kinds) else ""
            line = f"    {text}{comma}{f'  // {note}' if note else ''}"
            if len(line) > COLUMNS:
                lines += textwrap.wrap(note, COLUMNS, initial_indent="    // ", subsequent_indent="    // ")
                line = f"    {text}{comma}"
            lines += [*([f"    {attributes.rstrip()}"] if attributes else []), line]
        return [*lines, ");"]

    def _initial(self, wire: str) -> str:
        each, name = self._wires[wire], self.names[wire]
        return (
            name if each.init is None or wire not in self._net.registers else f"{name} = {const(each.init, each.width)}"
        )

    def _declared_registers(self) -> list[str]:
        lines = []
        for wire in self._net.registers:
            if self._wires[wire].port != "output":
                self._name(wire)
                lines.append(
                    f"    {_attributes(self._wires[wire])}reg  {_bits(self._wires[wire].width)}{self._initial(wire)};"
                )
        for wire, (_, cell) in self._reads.items():
            if cell.parameters["CLK_ENABLE"] and self._wires[wire].port != "output":
                lines.append(f"    reg  {_bits(self._wires[wire].width)}{self._name(wire)};")
        return lines

    def _declared_instance_wires(self) -> list[str]:
        return [
            f"    wire {_bits(self._wires[wire].width)}{self._name(wire)};"
            for wire in self._instance_wires
            if not self._wires[wire].port
        ]

    # Logic

    def _logic(self) -> list[str]:
        """Return a list of lines of Verilog that declare and assign wires, each after the wires that it depends on."""
        net = self._net
        texts: dict[str, _Drivers] = {}
        needs: dict[str, list[str]] = {}
        roots = [wire for wire in (*net.logic, *net.operators, *self._reads) if wire in self.names]
        for wire in roots:
            self._name(wire)
        place = 0
        while place < len(self._asked):
            wire = self._asked[place]
            place += 1
            if wire in texts or wire in self._registers or wire in self._inputs or wire in self._instance_wires:
                continue
            before = len(self._asked)
            seen, self._seen = self._seen, {}
            texts[wire] = self._drivers(wire)
            needs[wire] = [*self._seen]
            fresh = [each for each in self._asked[before:] if each not in seen]
            self._asked[before:] = fresh
            self._seen = seen | dict.fromkeys(fresh)
        order, early = _ordered(texts, needs)
        lines = [f"    {self._declaration(wire)};" for wire in early if wire not in self._cleared]
        declared = {*early, *self._cleared}
        for wire in order:
            lines += self._driven(wire, texts[wire], declared=wire in declared or self._wires[wire].port == "output")
        return lines

    def _declaration(self, wire: str) -> str:
        return f"{_attributes(self._wires[wire])}wire {_bits(self._wires[wire].width)}{self.names[wire]}"

    def _driven(self, wire: str, drivers: _Drivers, *, declared: bool) -> list[str]:
        lines = list(drivers.before)
        whole = drivers.values.get(self.names[wire])
        if not declared and whole is not None:
            return [*lines, *wrapped(f"    {self._declaration(wire)} = {whole};")]
        lines += [] if declared else [f"    {self._declaration(wire)};"]
        for target, value in drivers.values.items():
            lines += wrapped(f"    assign {target} = {value};")
        return lines

    def _drivers(self, wire: str) -> _Drivers:
        name = self.names[wire]
        if wire in self._reads:
            memory, cell = self._reads[wire]
            return _Drivers({name: f"{self.memories[memory.memory.name]}[{self._address(cell)}]"})
        if wire in self._net.operators:
            return self._operator(name, self._net.operators[wire])
        found = _Drivers({})
        for piece in self._net.logic[wire]:
            target = selected(name, self._wires[wire].width, piece.low, piece.width)
            found.values[target] = self._piece(name if target == name else f"{name}_{piece.low}", piece, found.before)
        return found

    def _operator(self, name: str, cell: Cell) -> _Drivers:
        if not self._express.needs_room(cell):
            return _Drivers({name: self._express.result(cell)})
        room, width = self._new_name(f"{name}_shifted"), width_of(cell.ports["A"])
        wide = replace(cell, ports={**cell.ports, "Y": cell.ports["A"]})
        before = wrapped(f"    wire {_bits(width)}{room} = {self._express.result(wide)};")
        return _Drivers({name: selected(room, width, 0, width_of(cell.ports["Y"]))}, before)

    def _piece(self, name: str, piece: Piece, before: list[str]) -> str:
        """Return the Verilog expression of some bits of a wire, from their logic.

        Logic that is a table of constants becomes a function call. The function's lines are appended to ``before``, the
        lines that precede the wire's assignment.
        """
        table = _table(piece.node)
        if table is None:
            return self._express.right_side(piece.node, piece.width)
        test, rows, other = table
        function = self._new_name(f"{name}_table")
        bits = width_of(test)
        before += [
            f"    function {_bits(piece.width)}{function};",
            f"        input {_bits(bits)}index;",
            "        case (index)",
            *(
                f"            {', '.join(const(int(p, 2), bits) for p in patterns)}: "
                f"{function} = {const(value, piece.width)};"
                for patterns, value in rows
            ),
            f"            default: {function} = {const(other, piece.width)};",
            "        endcase",
            "    endfunction",
        ]
        return f"{function}({self._express.operand(test).text})"

    def _call(self, choice: Multiplexer) -> str | None:
        """Return the text of a function call for a multiplexer with many arms on one signal; ``None`` for others.

        Equal multiplexers of a module share a function.
        """
        if len(choice.arms) < TABLE or not distinct(choice.arms):
            return None
        nodes = [node for *_, node in choice.arms] + [choice.other]
        inputs = [*dict.fromkeys(node for node in nodes if isinstance(node, Multiplexer) or not is_const(node))]
        width = _width(choice)
        values = [
            f"v{inputs.index(node)}"
            if isinstance(node, Multiplexer) or not is_const(node)
            else const(value_of(node), width)
            for node in nodes
        ]
        test, patterns = choice.arms[0][0], tuple(patterns for _, patterns, _ in choice.arms)
        key = (width_of(test), width, patterns, tuple(values))
        if key not in self._functions:
            name = self._new_name(f"one_of_{len(inputs)}" if inputs else "values")
            self._functions[key] = name, _function(name, len(inputs), *key)
        arguments = [self._express.operand(test).text, *(self._express.node(node).text for node in inputs)]
        return f"{self._functions[key][0]}({', '.join(arguments)})"

    # Registers

    def _clock(self, clock: Clock) -> list[str]:
        edge = f"{'posedge' if clock.rising else 'negedge'} {self._express.operand(clock.signal).text}"
        return [f"    always @({edge}) begin", *self._statements(clock.body, 2), "    end"]

    def _statements(self, body: Body, depth: int) -> list[str]:
        lines: list[str] = []
        for each in body:
            lines += self._assignment(each, depth) if isinstance(each, Assign) else self._switch(each, depth)
        return lines

    def _assignment(self, each: Assign, depth: int) -> list[str]:
        left = self._express.operand(each.left).text
        right = self._express.right_side(each.right, width_of(each.left))
        return wrapped(f"{'    ' * depth}{left} <= {right};")

    def _switch(self, switch: Switch, depth: int) -> list[str]:
        cases = list(switch.cases)
        while cases and not cases[-1][1]:
            cases.pop()
        if not cases:
            return []
        if not cases[0][0]:
            return self._statements(cases[0][1], depth)
        vector = width_of(switch.test) > 1 and not any("-" in p for patterns, _ in cases for p in patterns)
        return self._case(switch, cases, depth) if vector and len(cases) > 2 else self._if_lines(switch, cases, depth)

    def _if_lines(self, switch: Switch, cases: Sequence, depth: int) -> list[str]:
        lines: list[str] = []
        space = "    " * depth
        complete = len(cases) == 2 and width_of(switch.test) == 1 and {p for ps, _ in cases for p in ps} == {"0", "1"}
        for number, (patterns, body) in enumerate(cases):
            last = number + 1 == len(cases)
            if not patterns or (complete and last):
                head = "begin"
            else:
                head = f"if ({self._express.condition(switch.test, patterns).text}) begin"
            if number:
                lines[-1] = f"{space}end else {head}"
            else:
                lines.append(f"{space}{head}")
            lines += [*self._statements(body, depth + 1), f"{space}end"]
            if not patterns:
                break
        return lines

    def _case(self, switch: Switch, cases: Sequence, depth: int) -> list[str]:
        space, bits = "    " * depth, width_of(switch.test)
        lines = [f"{space}case ({self._express.operand(switch.test).text})"]
        full = False
        for patterns, body in cases:
            label = ", ".join(const(int(p, 2), bits) for p in patterns) if patterns else "default"
            full |= not patterns
            inner = self._statements(body, depth + 2)
            if not inner:
                lines.append(f"{space}    {label}: ;")
            elif len(inner) == 1 and len(inner[0]) + len(label) < COLUMNS:
                lines.append(f"{space}    {label}: {inner[0].strip()}")
            else:
                lines += [f"{space}    {label}: begin", *inner, f"{space}    end"]
        return [*lines, *([] if full else [f"{space}    default: ;"]), f"{space}endcase"]

    # Memories and instances

    def _declared_memories(self) -> list[str]:
        lines: list[str] = []
        for stored in self._net.memories:
            memory, name = stored.memory, self.memories[stored.memory.name]
            if memory.attributes:
                lines.append(f"    {_quoted(memory.attributes)}")
            lines.append(f"    reg  {_bits(memory.width)}{name} [0:{memory.depth - 1}];")
        if any(not any(stored.words) for stored in self._net.memories):
            self._row = self._new_name("row")
            lines.append(f"    integer {self._row};")
        for stored in self._net.memories:
            lines += self._contents(stored)
        return lines

    def _contents(self, stored: StoredMemory) -> list[str]:
        name, memory = self.memories[stored.memory.name], stored.memory
        if not any(stored.words):
            row, zero = self._row, const(0, memory.width)
            return [f"    initial for ({row} = 0; {row} < {memory.depth}; {row} = {row} + 1) {name}[{row}] = {zero};"]
        digits = -(-memory.width // 4)
        words = [f"{name}[{row}] = {memory.width}'h{word:0{digits}x};" for row, word in enumerate(stored.words)]
        return ["    initial begin", *filled(words, 8), "    end"]

    def _address(self, cell: Cell) -> str:
        return self._express.operand(cell.ports["ADDR"]).text

    def _memory(self, stored: StoredMemory) -> Iterator[str]:
        name = self.memories[stored.memory.name]
        by_clock: dict[tuple[Sig, int], list[str]] = {}
        for cell in (*stored.reads, *stored.writes):
            if not cell.parameters.get("CLK_ENABLE"):
                continue
            if cell.parameters.get("TRANSPARENCY_MASK"):
                raise unwritable(
                    cell,
                    f"memory {name} with a read port that sees the word written in the same cycle",
                    "leave out transparent_for, and forward the word in logic",
                )
            key = cell.ports["CLK"], int(cell.parameters["CLK_POLARITY"])
            by_clock.setdefault(key, []).extend(
                self._write(name, stored.memory.width, cell) if cell.kind == "$memwr_v2" else self._read(name, cell)
            )
        for (signal, rising), lines in by_clock.items():
            edge = f"{'posedge' if rising else 'negedge'} {self._express.operand(signal).text}"
            yield from (f"    always @({edge}) begin", *lines, "    end")

    def _read(self, name: str, cell: Cell) -> list[str]:
        text = f"{self._name(cell.ports['DATA'][0].wire)} <= {name}[{self._address(cell)}];"
        return wrapped(f"        {self._enabled(cell.ports['EN'])}{text}")

    def _write(self, name: str, stored: int, cell: Cell) -> list[str]:
        """Return a list of lines of Verilog for a memory's write port, which write the enabled bits of a word."""
        enable, data = cell.ports["EN"], cell.ports["DATA"]
        bits = [cut(enable, index, 1) for index in range(width_of(enable))]
        lines, low = [], 0
        while low < len(bits):
            high = low
            while high + 1 < len(bits) and bits[high + 1] == bits[low]:
                high += 1
            width = high - low + 1
            word = selected(f"{name}[{self._address(cell)}]", stored, low, width)
            value = self._express.right_side(joined([cut(data, low, width)]), width)
            lines += wrapped(f"        {self._enabled(bits[low])}{word} <= {value};")
            low = high + 1
        return lines

    def _enabled(self, sig: Sig) -> str:
        if sig[0].is_const and value_of(sig):
            return ""
        return f"if ({self._express.operand(sig).text}) "

    def _instance(self, cell: Cell) -> list[str]:
        face = self._faces.get(cell.kind[1:])
        module = face.name if face is not None else cell.kind[1:]
        parameters = ", ".join(f".{name}({_value(value)})" for name, value in cell.parameters.items())
        lines = [f"    {module} {f'#({parameters}) ' if parameters else ''}{self.cells[cell.name]} ("]
        ports = {self._port_name(cell, port): sig for port, sig in cell.ports.items()}
        if face is not None:
            ports = {name: ports[name] for name in face.ports.values() if name in ports}
        texts = [f".{port}({self._express.operand(sig).text})" for port, sig in ports.items()]
        for index, text in enumerate(texts):
            lines += wrapped(f"        {text}{',' if index + 1 < len(texts) else ''}")
        return [*lines, "    );"]


def base(name: str) -> str:
    """Return an RTLIL name without its leading backslash and the number that Amaranth adds to repeated names."""
    return name.removeprefix("\\").partition("$")[0]


def plain(name: str) -> str:
    """Return an RTLIL name as a Verilog identifier, which can be a reserved word."""
    word = "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in base(name))
    return f"n{word}" if not word or word[0].isdigit() else word


def _bits(width: int) -> str:
    return "" if width == 1 else f"[{width - 1}:0] "


def _value(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _quoted(attributes: Mapping[str, str | int]) -> str:
    return f"(* {', '.join(f'{key} = {_value(value)}' for key, value in attributes.items())} *)"


def _attributes(wire: Wire) -> str:
    kept = {key: value for key, value in wire.attributes.items() if not key.startswith("enum_")}
    return f"{_quoted(kept)} " if kept else ""


def _table(node: Sig | Multiplexer) -> tuple[Sig, list[tuple[tuple[str, ...], int]], int] | None:
    """Return a constant table: tested signal, (patterns, constant) rows, default; ``None`` for other expressions.

    The table has the tested signal, rows of patterns with their constants, and the constant for all other values.
    """
    if not isinstance(node, Multiplexer) or len(node.arms) < TABLE or isinstance(node.other, Multiplexer):
        return None
    test = node.arms[0][0]
    rows = []
    for arm_test, patterns, arm in node.arms:
        if arm_test != test or isinstance(arm, Multiplexer) or not is_const(arm) or any("-" in p for p in patterns):
            return None
        rows.append((patterns, value_of(arm)))
    return (test, rows, value_of(node.other)) if is_const(node.other) else None


def _width(node: Sig | Multiplexer) -> int:
    """Return the width in bits of a netlist node: a signal or a multiplexer."""
    while isinstance(node, Multiplexer):
        node = node.other
    return width_of(node)


def _function(
    name: str, num_inputs: int, bits: int, width: int, rows: Sequence[tuple[str, ...]], values: Sequence[str]
) -> list[str]:
    """Return a list of lines of a Verilog function that selects, by an index, a constant or one of its inputs.

    Parameters
    ----------
    name : str
        Name of the function.
    num_inputs : int
        Number of inputs, ``v0`` and so on.
    bits, width : int
        Width of the index, and of the result, in bits.
    rows : sequence of tuple of str
        Patterns of the index for each value.
    values : sequence of str
        Constant or input of each row, followed by the value for any other index.
    """
    inputs = ", ".join(f"v{index}" for index in range(num_inputs))
    return [
        f"    function {_bits(width)}{name};",
        f"        input {_bits(bits)}index;",
        *(wrapped(f"        input {_bits(width)}{inputs};") if num_inputs else []),
        "        case (index)",
        *(
            f"            {', '.join(const(int(p, 2), bits) for p in patterns)}: {name} = {value};"
            for patterns, value in zip(rows, values[:-1], strict=True)
        ),
        f"            default: {name} = {values[-1]};",
        "        endcase",
        "    endfunction",
    ]


def _ordered(texts: Mapping[str, object], needs: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return a pair of lists of wires: all, each after the wires it reads, and those that break cycles.

    A cycle of wires is possible without a cycle of bits. A wire that breaks a cycle must be declared early.
    """
    order: list[str] = []
    early: list[str] = []
    state: dict[str, int] = {}
    for root in texts:
        stack = [(root, iter(needs[root]))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            wire, rest = stack[-1]
            for needed in rest:
                if needed in texts and needed not in state:
                    state[needed] = 1
                    stack.append((needed, iter(needs[needed])))
                    break
                if needed in texts and state[needed] == 1 and needed not in early:
                    early.append(needed)
            else:
                state[wire] = 2
                order.append(wire)
                stack.pop()
    return order, early


def wrapped(line: str) -> list[str]:
    """Return one Verilog statement as a list of lines of at most `COLUMNS` columns, broken between its words."""
    space = " " * (len(line) - len(line.lstrip()) + 4)
    lines = []
    while len(line) > COLUMNS:
        end = _break(line, len(line) - len(line.lstrip()))
        if end < 0:
            break
        lines.append(line[:end])
        line = space + line[end + 1 :]
    return [*lines, line]


def _break(line: str, indent: int) -> int:
    """Return the column of the space where to break a Verilog line, or -1 if there is none."""
    for text, start in ((" : ", COLUMNS // 3), (", ", COLUMNS // 2), (" ", indent)):
        column = line.rfind(text, start, COLUMNS)
        if column >= start + (text == " "):
            return column + len(text) - 1
    return line.find(" ", COLUMNS)


def filled(words: Iterable[str], indent: int) -> list[str]:
    """Return short Verilog statements as a list of lines of at most `COLUMNS` columns, several statements per line."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= COLUMNS:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * indent + word)
    return lines
