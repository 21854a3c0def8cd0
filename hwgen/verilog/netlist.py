"""Netlist of a module, simplified from RTLIL and arranged like handwritten Verilog, with registers grouped by clock.

Unused operators are dropped, equal operators are merged, and results are cut to the bits that are used. All registers
of a clock are assigned in one block, which groups statements under the same condition.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from hwgen.verilog.rtlil import Assign, Body, Cell, Design, Module, RtlilMemory, Sig, Switch, WireBits, unwritable

#: Set of types of RTLIL operators whose low result bits depend only on the same low bits of their operands.
MODULAR = {"$add", "$sub", "$mul", "$neg", "$not", "$and", "$or", "$xor", "$mux"}


@dataclass(frozen=True, slots=True)
class Multiplexer:
    """Multiplexer in a netlist: selects the first arm with a pattern that its signal matches, otherwise ``other``."""

    arms: tuple[tuple[Sig, tuple[str, ...], Sig | Multiplexer], ...]
    other: Sig | Multiplexer


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a wire, ``width`` bits from bit ``low``, with the signal or multiplexer that drives them."""

    low: int
    width: int
    node: Sig | Multiplexer


@dataclass(frozen=True, slots=True)
class Clock:
    """Statements that assign all of a netlist's registers on one edge (rising or falling) of one clock signal.

    The clock is ``signal``. Later statements take precedence.
    """

    signal: Sig
    rising: bool
    body: Body


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """Memory in a netlist, with its initial words and its read and write ports."""

    memory: RtlilMemory
    words: tuple[int, ...]
    reads: tuple[Cell, ...] = ()
    writes: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Netlist:
    """Netlist of one module arranged for the Verilog writer: operators, other logic, clocks, memories, instances.

    Parameters
    ----------
    module : Module
        Module in RTLIL.
    operators : dict of str to Cell
        Operators, by the wire that they drive.
    logic : dict of str to tuple of Piece
        Drivers of all other wires that are not registers.
    clocks : tuple of Clock
        Statements of each clock edge.
    registers : tuple of str
        Names of the wires that are registers.
    memories : tuple of StoredMemory
        Memories of the module.
    instances : tuple of Cell
        Instances of other modules.
    outputs : dict of str to frozenset of str
        Output ports of each instance, by the instance's name.
    aliases : tuple of Assign
        Additional names of signals, which no logic reads.
    """

    module: Module
    operators: dict[str, Cell]
    logic: dict[str, tuple[Piece, ...]]
    clocks: tuple[Clock, ...]
    registers: tuple[str, ...]
    memories: tuple[StoredMemory, ...]
    instances: tuple[Cell, ...]
    outputs: dict[str, frozenset[str]]
    aliases: tuple[Assign, ...]

    @cached_property
    def uses(self) -> Counter[str]:
        """Number of reads of each wire in the module, as a counter by the wire's RTLIL name."""
        return Counter(chunk.wire for sig in self._signals_read() for chunk in sig if chunk.wire)

    def _signals_read(self) -> Iterator[Sig]:
        for wire in self.operators:
            yield from _inputs(self.operators[wire])
        for pieces in self.logic.values():
            for piece in pieces:
                yield from node_sigs(piece.node)
        for clock in self.clocks:
            yield from (clock.signal, *_body_sigs(clock.body))
        for memory in self.memories:
            for cell in (*memory.reads, *memory.writes):
                yield from _inputs(cell)
        for cell in self.instances:
            yield from (sig for port, sig in cell.ports.items() if port not in self.outputs[cell.name])


# Signals


def width_of(sig: Sig) -> int:
    """Return the width of a netlist signal, in bits."""
    return sum(chunk.width for chunk in sig)


def is_const(sig: Sig) -> bool:
    """Return whether all bits of a netlist signal are constant."""
    return all(chunk.is_const for chunk in sig)


def value_of(sig: Sig) -> int:
    """Return the value of a constant netlist signal, as an unsigned integer."""
    value = offset = 0
    for chunk in sig:
        value |= chunk.value << offset
        offset += chunk.width
    return value


def cut(sig: Sig, low: int, width: int) -> Sig:
    """Return ``width`` bits of a netlist signal starting at bit ``low``, or fewer if the signal ends earlier."""
    chunks = []
    for chunk in sig:
        skip = min(low, chunk.width)
        take = min(chunk.width - skip, width)
        low, width = low - skip, width - take
        if take and chunk.is_const:
            chunks.append(WireBits("", 0, take, chunk.value >> skip & (1 << take) - 1))
        elif take:
            chunks.append(WireBits(chunk.wire, chunk.low + skip, take))
    return tuple(chunks)


def joined(sigs: Iterable[Sig]) -> Sig:
    """Return the concatenation of netlist signals, with adjacent bits of a wire merged."""
    chunks: list[WireBits] = []
    for chunk in (chunk for sig in sigs for chunk in sig):
        last = chunks[-1] if chunks else None
        if last is not None and last.is_const and chunk.is_const:
            chunks[-1] = WireBits("", 0, last.width + chunk.width, last.value | chunk.value << last.width)
        elif last is not None and last.wire and last.wire == chunk.wire and last.low + last.width == chunk.low:
            chunks[-1] = WireBits(last.wire, last.low, last.width + chunk.width)
        else:
            chunks.append(chunk)
    return tuple(chunks)


def is_unnamed(wire: str) -> bool:
    """Return whether a wire has no name in the Amaranth source code."""
    return wire.startswith(("$", "\\$"))


def _inputs(cell: Cell) -> Iterator[Sig]:
    return (sig for port, sig in cell.ports.items() if port not in ("Y", "Q") and (port, cell.kind) != _READ)


_READ = ("DATA", "$memrd_v2")


def node_sigs(node: Sig | Multiplexer) -> Iterator[Sig]:
    """Yield all signals of a netlist node: the signal itself, or a multiplexer's tested signals and arms."""
    if isinstance(node, Multiplexer):
        for test, _, arm in node.arms:
            yield test
            yield from node_sigs(arm)
        yield from node_sigs(node.other)
    else:
        yield node


def _body_sigs(body: Body) -> Iterator[Sig]:
    for statement in body:
        if isinstance(statement, Assign):
            yield statement.right
        else:
            yield statement.test
            for _, inner in statement.cases:
                yield from _body_sigs(inner)


# From RTLIL


def netlist(module: Module, design: Design, outputs: Mapping[str, frozenset[str]]) -> Netlist:
    """Return the `Netlist` of an RTLIL module, simplified and arranged for the Verilog writer.

    Parameters
    ----------
    module : Module
        Module in RTLIL.
    design : Design
        All modules of the design.
    outputs : mapping of str to frozenset of str
        Output ports of modules that are not in the design, by module name.
    """
    return _Arrangement(module, design, outputs).result()


class _Arrangement:
    """Mutable state of one RTLIL module while it is simplified, step by step, to a `Netlist`."""

    def __init__(self, module: Module, design: Design, outputs: Mapping[str, frozenset[str]]) -> None:
        self.module = module
        self.operators: dict[str, Cell] = {}
        self.flip_flops: dict[str, Cell] = {}
        self.bodies: dict[str, Body] = {}
        self.ports: dict[str, list[Cell]] = {name: [] for name in module.memories}
        self.words: dict[str, tuple[int, ...]] = {}
        self.aliases: list[Assign] = []
        self.instances = [cell for cell in module.cells if cell.kind.startswith("\\")]
        self._collect()
        self.outputs = {cell.name: _outputs_of(cell, design, outputs) for cell in self.instances}

    def result(self) -> Netlist:
        self._simplify()
        self._move_processes()
        self._drop_unused()
        self._narrow()
        return Netlist(
            module=self.module,
            operators=self.operators,
            logic={wire: pieces(body) for wire, body in self.bodies.items() if wire not in self.flip_flops},
            clocks=tuple(self._clocks()),
            registers=tuple(self.flip_flops),
            memories=tuple(self._memory(name) for name in self.ports),
            instances=tuple(self.instances),
            outputs=self.outputs,
            aliases=tuple(self.aliases),
        )

    def _collect(self) -> None:
        for cell in self.module.cells:
            if cell.kind == "$dff":
                if cell.ports["Q"]:
                    self.flip_flops[cell.ports["Q"][0].wire] = cell
            elif cell.kind in ("$memrd_v2", "$memwr_v2"):
                self.ports[str(cell.parameters["MEMID"])].append(cell)
            elif cell.kind == "$meminit_v2":
                self.words[str(cell.parameters["MEMID"])] = _words(cell)
            elif not cell.kind.startswith("\\"):
                if "Y" not in cell.ports:
                    raise unwritable(cell, f"cells of type {cell.kind[1:]}", "build the circuit without them")
                if cell.ports["Y"]:
                    self.operators[cell.ports["Y"][0].wire] = cell
        for process in self.module.processes:
            first = process.body[0]
            assert isinstance(first, Assign), "a process begins with what its signal is by default"
            if first.left:
                self.bodies[first.left[0].wire] = process.body
        for connection in self.module.connections:
            if connection.left and self.module.wires[connection.left[0].wire].port == "output":
                self.bodies[connection.left[0].wire] = (connection,)
            elif connection.left:
                self.aliases.append(connection)

    def _rewrite(self, change: Callable[[Sig], Sig]) -> None:
        """Replace each signal that an operator, register, memory or instance reads by ``change(signal)``."""
        for wire, cell in self.operators.items():
            self.operators[wire] = _change_inputs(cell, change)
        for wire, cell in self.flip_flops.items():
            self.flip_flops[wire] = _change_inputs(cell, change)
        self.bodies = {wire: _changed_body(body, change) for wire, body in self.bodies.items()}
        self.ports = {name: [_change_inputs(cell, change) for cell in cells] for name, cells in self.ports.items()}
        self.instances = [
            replace(
                cell,
                ports={
                    port: sig if port in self.outputs[cell.name] else change(sig) for port, sig in cell.ports.items()
                },
            )
            for cell in self.instances
        ]

    def _simplify(self) -> None:
        """Remove operators that equal a wire or a constant, and merge equal operators.

        An operator comes after the operators that it reads, so that one pass is sufficient for operators. All other
        readers are changed at the end.
        """
        first: dict[object, Sig] = {}
        same: dict[str, Sig] = {}

        def change(sig: Sig) -> Sig:
            if not any(chunk.wire in same for chunk in sig):
                return sig
            return joined(
                cut(same[chunk.wire], chunk.low, chunk.width) if chunk.wire in same else (chunk,) for chunk in sig
            )

        for wire, cell in list(self.operators.items()):
            cell = self.operators[wire] = simpler(_change_inputs(cell, change))
            inputs = tuple((port, sig) for port, sig in cell.ports.items() if port != "Y")
            if cell.kind == "$pos":
                equal = inputs[0][1]
            else:
                key = (cell.kind, tuple(cell.parameters.items()), inputs)
                equal = first.setdefault(key, cell.ports["Y"])
            if is_unnamed(wire) and equal != cell.ports["Y"]:
                same[wire] = equal
                del self.operators[wire]
            elif cell.kind == "$pos":
                del self.operators[wire]
                self.bodies[wire] = (Assign(cell.ports["Y"], equal),)
        self._rewrite(change)
        self.bodies = {wire: settled(body) for wire, body in self.bodies.items()}

    def _move_processes(self) -> None:
        """Merge each process whose result is read by only one register into the register's statements."""
        uses = self._uses()
        for wire, cell in self.flip_flops.items():
            data = cell.ports["D"]
            source = data[0].wire if len(data) == 1 else ""
            left = WireBits(wire, 0, self.module.wires[wire].width)
            if source in self.bodies and is_unnamed(source) and uses[source] == 1:
                self.bodies[wire] = _retargeted(self.bodies.pop(source), wire, data[0])
            else:
                self.bodies[wire] = (Assign((left,), data),)

    def _uses(self) -> Counter[str]:
        counted: Counter[str] = Counter()

        def count(sig: Sig) -> Sig:
            counted.update(chunk.wire for chunk in sig)
            return sig

        self._rewrite(count)
        return counted

    # What is not used

    def _drop_unused(self) -> None:
        readers = {chunk.wire: name for name in self.ports for c in self._reads(name) for chunk in c.ports["DATA"]}
        wires = self.module.wires
        todo = [name for name, wire in wires.items() if wire.port == "output"]
        todo += [
            chunk.wire
            for cell in self.instances
            for port, sig in cell.ports.items()
            if port not in self.outputs[cell.name]
            for chunk in sig
        ]
        live: set[str] = set()
        kept: set[str] = set()
        while todo:
            wire = todo.pop()
            if wire in live or not wire:
                continue
            live.add(wire)
            todo.extend(chunk.wire for sig in self._driven_by(wire) for chunk in sig)
            memory = readers.get(wire)
            if memory is not None and memory not in kept:
                kept.add(memory)
                todo.extend(chunk.wire for cell in self.ports[memory] for sig in _inputs(cell) for chunk in sig)
        self.operators = {wire: cell for wire, cell in self.operators.items() if wire in live}
        self.flip_flops = {wire: cell for wire, cell in self.flip_flops.items() if wire in live}
        self.bodies = {wire: body for wire, body in self.bodies.items() if wire in live}
        self.ports = {name: cells for name, cells in self.ports.items() if name in kept}

    def _reads(self, memory: str) -> list[Cell]:
        return [cell for cell in self.ports[memory] if cell.kind == "$memrd_v2"]

    def _driven_by(self, wire: str) -> Iterator[Sig]:
        if wire in self.operators:
            yield from _inputs(self.operators[wire])
        if wire in self.flip_flops:
            yield self.flip_flops[wire].ports["CLK"]
        yield from _body_sigs(self.bodies.get(wire, ()))

    def _narrow(self) -> None:
        """Shorten unnamed results of operators, and then their operands, to the bits that are read."""
        for _ in range(8):
            top: dict[str, int] = {}

            def see(sig: Sig, top: dict[str, int] = top) -> Sig:
                for chunk in sig:
                    top[chunk.wire] = max(top.get(chunk.wire, 0), chunk.low + chunk.width)
                return sig

            self._rewrite(see)
            changed = False
            for wire, cell in self.operators.items():
                width = top.get(wire, 0)
                if is_unnamed(wire) and cell.kind in MODULAR and 0 < width < width_of(cell.ports["Y"]):
                    self.module.wires[wire] = replace(self.module.wires[wire], width=width)
                    ports = {port: sig if port == "S" else cut(sig, 0, width) for port, sig in cell.ports.items()}
                    self.operators[wire] = replace(cell, ports=ports)
                    changed = True
            if not changed:
                break

    # Registers

    def _clocks(self) -> Iterator[Clock]:
        by_clock: dict[tuple[Sig, bool], list[Body]] = {}
        for wire, cell in self.flip_flops.items():
            key = cell.ports["CLK"], bool(cell.parameters["CLK_POLARITY"])
            by_clock.setdefault(key, []).append(_without_hold(self.bodies[wire]))
        for (signal, rising), bodies in by_clock.items():
            yield Clock(signal, rising, together(bodies))

    def _memory(self, name: str) -> StoredMemory:
        writes = tuple(cell for cell in self.ports[name] if cell.kind == "$memwr_v2")
        return StoredMemory(self.module.memories[name], self.words.get(name, ()), tuple(self._reads(name)), writes)


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$lt": operator.lt,
    "$le": operator.le,
    "$gt": operator.gt,
    "$ge": operator.ge,
}


def _number(cell: Cell, port: str) -> int:
    """Return a constant operand as an integer, negative if the operator is signed and the top bit is set."""
    sig = cell.ports[port]
    value, width = value_of(sig), width_of(sig)
    return value - (1 << width) if cell.parameters["A_SIGNED"] and width and value >> (width - 1) else value


def _decided(cell: Cell) -> bool | None:
    """Return a comparison's result as a bool if the ranges of its operands decide it; otherwise ``None``."""
    ranges = []
    for port in "AB":
        sig = cell.ports[port]
        if is_const(sig):
            ranges.append((_number(cell, port),) * 2)
        elif cell.parameters["A_SIGNED"]:
            ranges.append((-(1 << width_of(sig) - 1), (1 << width_of(sig) - 1) - 1))
        else:
            ranges.append((0, (1 << width_of(sig)) - 1))
    (low, high), (other_low, other_high) = ranges
    if cell.kind in ("$eq", "$ne"):
        return cell.kind == "$ne" if high < other_low or other_high < low else None
    compare = _COMPARISONS[cell.kind]
    results = {compare(a, b) for a in (low, high) for b in (other_low, other_high)}
    return results.pop() if len(results) == 1 else None


def simpler(cell: Cell) -> Cell:
    """Return an equivalent netlist `Cell` of a simpler type, ``$pos`` for a plain wire, or the cell itself.

    ``$pos`` stands for a plain wire.
    """
    ports, width = cell.ports, width_of(cell.ports["Y"])
    a, b = ports.get("A", ()), ports.get("B", ())
    if cell.kind == "$mux":
        return _simpler_choice(cell, ports["S"])
    if cell.kind in _COMPARISONS and is_const(a) and is_const(b):
        return _unary(
            cell, "$pos", (WireBits("", 0, 1, int(_COMPARISONS[cell.kind](_number(cell, "A"), _number(cell, "B")))),)
        )
    if cell.kind in _COMPARISONS and (is_const(a) or is_const(b)) and (decided := _decided(cell)) is not None:
        return _unary(cell, "$pos", (WireBits("", 0, 1, int(decided)),))
    if cell.kind in ("$eq", "$ne") and max(width_of(a), width_of(b)) == 1 and (is_const(a) or is_const(b)):
        other, value = (a, value_of(b)) if is_const(b) else (b, value_of(a))
        if not is_const(other):
            return _unary(cell, "$pos" if (cell.kind == "$eq") == bool(value) else "$not", other)
    if cell.kind in ("$shl", "$shr", "$shift") and not value_of(b) and is_const(b) and width_of(a) >= width:
        return _unary(cell, "$pos", cut(a, 0, width))
    if cell.kind in ("$reduce_or", "$reduce_bool", "$reduce_and", "$reduce_xor") and width_of(a) == 1:
        return _unary(cell, "$pos", a)
    if cell.kind in ("$reduce_or", "$reduce_bool") and is_const(a):
        return _unary(cell, "$pos", (WireBits("", 0, 1, int(value_of(a) != 0)),))
    if cell.kind == "$reduce_and" and is_const(a):  # all of no bits are set
        return _unary(cell, "$pos", (WireBits("", 0, 1, int(value_of(a) == (1 << width_of(a)) - 1)),))
    if cell.kind == "$add" and width == width_of(a) == 1 and is_const(b) and value_of(b) & 1:
        return _unary(cell, "$not", a)
    if cell.kind in ("$add", "$sub", "$or", "$xor") and is_const(b) and not value_of(b) and not is_const(a):
        if width_of(a) >= width:
            return _unary(cell, "$pos", cut(a, 0, width))
        if not cell.parameters["A_SIGNED"]:
            return _unary(cell, "$pos", joined([a, (WireBits("", 0, width - width_of(a)),)]))
    if cell.kind == "$and" and width == 1 and (is_const(a) or is_const(b)):
        other, value = (a, value_of(b)) if is_const(b) else (b, value_of(a))
        return _unary(cell, "$pos", other if value else (WireBits("", 0, 1),))
    return cell


def _simpler_choice(cell: Cell, test: Sig) -> Cell:
    a, b = cell.ports["A"], cell.ports["B"]
    if is_const(test):
        return _unary(cell, "$pos", b if value_of(test) else a)
    if a == b:
        return _unary(cell, "$pos", a)
    if width_of(a) == 1 and is_const(a) and is_const(b):
        return _unary(cell, "$pos" if value_of(b) else "$not", test)
    return cell


def _unary(cell: Cell, kind: str, operand: Sig) -> Cell:
    return Cell(kind, cell.name, {"A_SIGNED": 0}, {"A": operand, "Y": cell.ports["Y"]})


def _outputs_of(cell: Cell, design: Design, outputs: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return a set of the names of the output ports of an instance."""
    child = design.get(cell.kind[1:])
    if child is None:
        return outputs[cell.kind[1:]]
    return frozenset(port for port in cell.ports if child.wires[f"\\{port}"].port == "output")


def _words(cell: Cell) -> tuple[int, ...]:
    width, depth = int(cell.parameters["WIDTH"]), int(cell.parameters["WORDS"])
    digits = f"{value_of(cell.ports['DATA']):0{depth * width}b}"
    return tuple(int(digits[end - width : end], 2) for end in range(depth * width, 0, -width)) if width else ()


def _change_inputs(cell: Cell, change: Callable[[Sig], Sig]) -> Cell:
    outputs = {"Y", "Q"} | ({"DATA"} if cell.kind == "$memrd_v2" else set())
    return replace(cell, ports={port: sig if port in outputs else change(sig) for port, sig in cell.ports.items()})


def _changed_body(body: Body, change: Callable[[Sig], Sig]) -> Body:
    return tuple(
        Assign(each.left, change(each.right))
        if isinstance(each, Assign)
        else Switch(change(each.test), tuple((patterns, _changed_body(b, change)) for patterns, b in each.cases))
        for each in body
    )


def settled(body: Body) -> Body:
    """Return RTLIL statements (`Body`) without switch cases that cannot match as tested bits are constant."""
    return tuple(statement if isinstance(statement, Assign) else _settled_switch(statement) for statement in body)


def _settled_switch(switch: Switch) -> Switch:
    known = "".join(
        f"{chunk.value:0{chunk.width}b}" if chunk.is_const else "-" * chunk.width for chunk in reversed(switch.test)
    )
    cases = []
    for patterns, body in switch.cases:
        left = tuple(
            "".join("-" if bit == fixed else bit for bit, fixed in zip(pattern, known, strict=True))
            for pattern in patterns
            if all("-" in (bit, fixed) or bit == fixed for bit, fixed in zip(pattern, known, strict=True))
        )
        if patterns and not left:
            continue
        always = not patterns or any(not pattern.strip("-") for pattern in left)
        cases.append((() if always else left, settled(body)))
        if always:
            break
    if cases and not cases[0][0]:
        return Switch((), (cases[0],))
    return Switch(switch.test, tuple(cases))


def _retargeted(body: Body, wire: str, part: WireBits) -> Body:
    """Return a wire's assignments as statements (`Body`) that assign the register ``wire`` instead.

    Only the bits ``part`` are kept, which become bit 0 and up.
    """
    statements: list[Assign | Switch] = []
    for statement in body:
        if isinstance(statement, Assign):
            start, width = statement.left[0].low, width_of(statement.left)
            low, high = max(start, part.low), min(start + width, part.low + part.width)
            if low < high:
                left = WireBits(wire, low - part.low, high - low)
                statements.append(Assign((left,), cut(statement.right, low - start, high - low)))
        else:
            cases = tuple((patterns, _retargeted(inner, wire, part)) for patterns, inner in statement.cases)
            if any(inner for _, inner in cases):
                statements.append(Switch(statement.test, cases))
    return tuple(statements)


def _without_hold(body: Body) -> Body:
    """Return a register's statements (`Body`) without an initial assignment of the register to itself.

    Registers keep their values.
    """
    first = body[0]
    keeps = isinstance(first, Assign) and [(c.wire, c.low, c.width) for c in first.right] == [
        (c.wire, c.low, c.width) for c in first.left
    ]
    return body[1:] if keeps else body


def together(bodies: Iterable[Body]) -> Body:
    """Return the statements of several registers as one `Body`, which groups statements under equal conditions.

    Unconditional assignments are first, then conditional ones, and last the final switch that all registers share: the
    reset.
    """
    always: list[Assign] = []
    groups: dict[object, list[Switch]] = {}
    alone: list[Body] = []
    ends: dict[object, list[Switch]] = {}
    for body in bodies:
        rest = list(body)
        end = None
        if len(rest) > 1 and isinstance(rest[-1], Switch) and len(rest[-1].cases) == 1:
            end = rest.pop()
        switches = [each for each in rest if isinstance(each, Switch)]
        if len(switches) > 1:
            alone.append(tuple(rest))
        else:
            always.extend(each for each in rest if isinstance(each, Assign))
            for each in switches:
                groups.setdefault(_key(each), []).append(each)
        if isinstance(end, Switch):
            ends.setdefault(_key(end), []).append(end)
    merged = [_merged(group) for group in groups.values()]
    singles = [statement for body in alone for statement in body]
    return (*always, *merged, *singles, *(_merged(group) for group in ends.values()))


def _key(switch: Switch) -> object:
    return switch.test, tuple(patterns for patterns, _ in switch.cases)


def _merged(group: list[Switch]) -> Switch:
    if len(group) == 1:
        only = group[0]
        return Switch(only.test, tuple((patterns, together([body])) for patterns, body in only.cases))
    cases = []
    for number, (patterns, _) in enumerate(group[0].cases):
        cases.append((patterns, together([each.cases[number][1] for each in group if each.cases[number][1]])))
    return Switch(group[0].test, tuple(cases))


# Logic


def pieces(body: Body) -> tuple[Piece, ...]:
    """Return a tuple of each `Piece` (adjacent bits with one driver) of a wire, from statements that assign it."""
    bounds = sorted({bound for low, width in _assigned(body) for bound in (low, low + width)})
    result: list[Piece] = []
    for low, high in pairwise(bounds):
        node = _node(body, low, high - low, ())
        last = result[-1] if result else None
        if last is not None and not isinstance(last.node, Multiplexer) and not isinstance(node, Multiplexer):
            result[-1] = Piece(last.low, high - last.low, joined([last.node, node]))
        else:
            result.append(Piece(low, high - low, node))
    return tuple(result)


def _assigned(body: Body) -> Iterator[tuple[int, int]]:
    """Yield pairs in bits, (lowest bit, width), for each part of a wire that statements assign."""
    for statement in body:
        if isinstance(statement, Assign):
            yield statement.left[0].low, width_of(statement.left)
        else:
            for _, inner in statement.cases:
                yield from _assigned(inner)


def _node(body: Body, low: int, width: int, before: Sig | Multiplexer) -> Sig | Multiplexer:
    """Return what drives some bits of a wire after statements: a signal or `Multiplexer`; ``before`` drove them."""
    for each in body:
        if isinstance(each, Assign):
            start = each.left[0].low
            if start <= low and low + width <= start + width_of(each.left):
                before = cut(each.right, low - start, width)
        else:
            before = _switch_node(each, low, width, before)
    return before


def _switch_node(switch: Switch, low: int, width: int, before: Sig | Multiplexer) -> Sig | Multiplexer:
    arms = []
    other = before
    for patterns, body in switch.cases:
        node = _node(body, low, width, before)
        if not patterns:
            other = node
            break
        arms.append((switch.test, patterns, node))
    else:
        if _complete(switch):
            other = arms.pop()[2]
    while arms and arms[-1][2] == other:
        arms.pop()
    if distinct(arms):
        by_node: dict[Sig | Multiplexer, list[str]] = {}
        for _, patterns, node in arms:
            by_node.setdefault(node, []).extend(patterns)
        arms = [(switch.test, tuple(patterns), node) for node, patterns in by_node.items() if node != other]
    if all(arm[2] == other for arm in arms):
        return other
    if isinstance(other, Multiplexer):
        return Multiplexer((*arms, *other.arms), other.other)
    return Multiplexer(tuple(arms), other)


def distinct(arms: Sequence[tuple[Sig, tuple[str, ...], Sig | Multiplexer]]) -> bool:
    """Return whether a multiplexer's arms exclude each other: all test one signal for different single values."""
    patterns = [pattern for _, patterns, _ in arms for pattern in patterns]
    whole = not any("-" in pattern for pattern in patterns)
    return whole and len({*patterns}) == len(patterns) and len({test for test, *_ in arms}) == 1


def _complete(switch: Switch) -> bool:
    """Return whether the cases of a switch statement list every value of its tested signal, of at most 16 bits."""
    bits = width_of(switch.test)
    patterns = {pattern for patterns, _ in switch.cases for pattern in patterns}
    return bits <= 16 and not any("-" in pattern for pattern in patterns) and len(patterns) == 1 << bits
