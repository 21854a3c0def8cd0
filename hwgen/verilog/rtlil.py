"""Reader of RTLIL, the netlist language of Yosys that Amaranth writes.

The reader accepts the constructs that Amaranth writes; for the language see
https://yosyshq.readthedocs.io/projects/yosys/en/latest/appendix/rtlil_text.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hwgen.errors import ToolError


@dataclass(frozen=True, slots=True)
class WireBits:
    """Adjacent bits of an RTLIL wire, or a constant. A constant has an empty ``wire``, and its bits in ``value``."""

    wire: str
    low: int
    width: int
    value: int = 0

    @property
    def is_const(self) -> bool:
        """Whether the bits are a constant, not bits of a wire."""
        return not self.wire


Sig = tuple[WireBits, ...]
"""RTLIL signal: a tuple of `WireBits` (bits of wires, and constants), the lowest first."""


@dataclass(slots=True)
class Wire:
    """Wire of an RTLIL module: its name, width, port direction, attributes, and initial value if it is a register.

    ``port`` is ``input``, ``output`` or empty. ``init`` is the initial value of a register.
    """

    name: str
    width: int
    signed: bool
    port: str
    attributes: dict[str, str | int]
    init: int | None = None


@dataclass(slots=True)
class RtlilMemory:
    """Memory of an RTLIL module: ``depth`` words of ``width`` bits."""

    name: str
    width: int
    depth: int
    attributes: dict[str, str | int]


@dataclass(slots=True)
class Cell:
    """Cell of an RTLIL module: an operator, a register, a memory port, or an instance of a module.

    ``kind`` is the cell's type, which starts with a backslash for an instance. ``source`` is the cell's place in the
    source code, ``file:line``.
    """

    kind: str
    name: str
    parameters: dict[str, str | int]
    ports: dict[str, Sig] = field(default_factory=dict)
    source: str = ""


def unwritable(cell: Cell, what: str, help: str) -> ToolError:
    """Return (not raise) a `ToolError`: hwgen can't write a cell as Verilog; ``help`` says what to do instead."""
    where = f"{cell.source}: " if cell.source else ""
    return ToolError(f"{where}hwgen writes no Verilog for {what}; {help}")


@dataclass(frozen=True, slots=True)
class Assign:
    """RTLIL assignment of the signal ``right`` to the bits ``left``."""

    left: Sig
    right: Sig


@dataclass(frozen=True, slots=True)
class Switch:
    """RTLIL switch statement, which selects the first case with a pattern that matches the signal ``test``.

    A pattern has a ``0``, ``1`` or ``-`` (any bit) per bit. A case without patterns always matches.
    """

    test: Sig
    cases: tuple[tuple[tuple[str, ...], Body], ...]


Body = tuple["Assign | Switch", ...]
"""Tuple of RTLIL statements (`Assign`, `Switch`); later ones take precedence."""


@dataclass(frozen=True, slots=True)
class Process:
    """RTLIL process: a sequence of statements that assign one signal."""

    body: Body


@dataclass(slots=True)
class Module:
    """RTLIL module with its wires, memories, cells, processes and connections."""

    name: str
    wires: dict[str, Wire] = field(default_factory=dict)
    memories: dict[str, RtlilMemory] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    connections: list[Assign] = field(default_factory=list)


Design = dict[str, Module]
"""Dictionary of a design's RTLIL modules by name, the top module first."""


def parse(text: str) -> Design:
    """Return a `Design`: the modules of an RTLIL text (Yosys's netlist language), as a dict by name.

    Raises
    ------
    ValueError
        If the text has a construct that Amaranth does not write.
    """
    return _Reader(text).design()


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = (line.strip() for line in text.splitlines())
        self._attributes: dict[str, str | int] = {}
        self._module = Module("")

    def design(self) -> Design:
        modules = {}
        for line in self._words():
            word, _, rest = line.partition(" ")
            if word == "attribute":
                self._attribute(rest)
            elif word == "module":
                self._take_attributes()
                self._read_module(rest)
                modules[self._module.name] = self._module
            else:
                raise ValueError(f"no RTLIL at the top: {line!r}")
        return modules

    def _words(self) -> Iterator[str]:
        return (line for line in self._lines if line)

    def _attribute(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        self._attributes[name.removeprefix("\\")] = _value(value)

    def _take_attributes(self) -> dict[str, str | int]:
        taken, self._attributes = self._attributes, {}
        return taken

    def _read_module(self, name: str) -> None:
        module = self._module = Module(name.removeprefix("\\"))
        for line in self._words():
            word, _, rest = line.partition(" ")
            if word == "attribute":
                self._attribute(rest)
            elif word == "wire":
                self._wire(rest.split())
            elif word == "memory":
                _, width, _, depth, name = rest.split()
                attributes = self._take_attributes()
                attributes.pop("src", None)
                module.memories[name] = RtlilMemory(name, int(width), int(depth), attributes)
            elif word == "cell":
                module.cells.append(self._cell(*rest.split()))
            elif word == "process":
                self._take_attributes()
                body, _ = self._body("end")
                module.processes.append(Process((*body[:1], *_without_empty_assignments(body[1:]))))
            elif word == "connect":
                module.connections.append(self._assign(rest))
            elif word == "end":
                return
            else:
                raise ValueError(f"no RTLIL of a module: {line!r}")

    def _wire(self, words: list[str]) -> None:
        attributes = self._take_attributes()
        init = attributes.pop("init", None)
        attributes.pop("src", None)
        port = next((word for word in words if word in ("input", "output", "inout")), "")
        if port == "inout":
            raise ValueError(f"ports that are inputs and outputs at once are not supported: {words[-1]}")
        name = words[-1]
        self._module.wires[name] = Wire(
            name, int(words[1]), "signed" in words, port, attributes, None if init is None else int(init)
        )

    def _cell(self, cell_type: str, name: str) -> Cell:
        source = str(self._take_attributes().get("src", ""))
        cell = Cell(cell_type, name.removeprefix("\\"), {}, source=source)
        for line in self._words():
            word, _, rest = line.partition(" ")
            if word == "end":
                return cell
            if word == "parameter":
                rest = rest.removeprefix("signed ")
                key, _, value = rest.partition(" ")
                cell.parameters[key.removeprefix("\\")] = _value(value)
            elif word == "connect":
                key, _, value = rest.partition(" ")
                cell.ports[key.removeprefix("\\")] = self._sig(value)
            else:
                break
        raise ValueError(f"no RTLIL of a cell: {cell_type} {name}")

    def _body(self, *ends: str) -> tuple[Body, str]:
        """Read RTLIL statements up to a line that begins with a word in ``ends``; return a pair: them, and the line."""
        body: list[Assign | Switch] = []
        for line in self._words():
            word, _, rest = line.partition(" ")
            if word in ends:
                return tuple(body), line
            if word == "assign":
                body.append(self._assign(rest))
            elif word == "switch":
                body.append(self._switch(rest))
            elif word == "attribute":
                continue
            else:
                break
        raise ValueError("no RTLIL of a process")

    def _switch(self, test: str) -> Switch:
        cases = []
        _, line = self._body("case", "end")
        while line != "end":
            patterns = tuple(text.strip().partition("'")[2] for text in line[5:].split(",") if text.strip())
            body, line = self._body("case", "end")
            cases.append((patterns, _without_empty_assignments(body)))
        return Switch(self._sig(test), tuple(cases))

    def _assign(self, rest: str) -> Assign:
        words = rest.split()
        end = _first_sig(words)
        return Assign(self._sig_of(words[:end]), self._sig_of(words[end:]))

    def _sig(self, text: str) -> Sig:
        return self._sig_of(text.split())

    def _sig_of(self, words: list[str]) -> Sig:
        if words[0] in ("{", "{}"):
            words = words[1:-1]
        chunks: list[WireBits] = []
        for word in words:
            if word[0] in "\\$":
                chunks.append(WireBits(word, 0, self._module.wires[word].width))
            elif word[0] == "[":
                high, _, low = word[1:-1].partition(":")
                chunks[-1] = WireBits(chunks[-1].wire, int(low or high), int(high) - int(low or high) + 1)
            else:
                width, _, bits = word.partition("'")
                chunks.append(_const(int(width), bits) if bits else WireBits("", 0, 32, int(width)))
        return tuple(reversed(chunks))


def _without_empty_assignments(body: Body) -> Body:
    """Return RTLIL statements (`Body`) without assignments to zero bits."""
    return tuple(statement for statement in body if not isinstance(statement, Assign) or statement.left)


def _first_sig(words: list[str]) -> int:
    """Return how many words of an RTLIL assignment belong to the first of its two signals."""
    if words[0] == "{":
        return words.index("}") + 1
    return 2 if words[1][0] == "[" else 1


def _const(width: int, bits: str) -> WireBits:
    return WireBits("", 0, width, int(bits.replace("x", "0") or "0", 2))


_ESCAPED = {"t": "\t", "r": "\r", "n": "\n"}


def _value(text: str) -> str | int:
    """Return the value of an RTLIL parameter or attribute: a string, or an integer of any width."""
    if text.startswith('"'):
        return re.sub(r"\\(.)", lambda match: _ESCAPED.get(match[1], match[1]), text[1:-1])
    width, _, bits = text.partition("'")
    return int(bits.replace("x", "0") or "0", 2) if bits or "'" in text else int(width)
