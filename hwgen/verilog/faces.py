"""Names, ports and comments of a design's Verilog modules, derived from their Amaranth components.

If the bits of a signal have different drivers, such as registers and constants, the modules on its way have a port for
each group of bits. Amaranth's RTLIL leaves it unnamed. The port is named after the fields of the signal that it
carries: ``step__ends_complete``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from amaranth import Elaboratable, Instance, Module, Shape
from amaranth.hdl import Fragment
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hwgen import frozen
from hwgen.gateware.names import reserved, unique
from hwgen.obligations.obligation import name_of_fields, name_of_slice
from hwgen.verilog import rtlil
from hwgen.verilog.module_text import Face, base, plain
from hwgen.verilog.rtlil import Design, Sig, WireBits

_UNNAMED = re.compile(r"\\port\$\d+\$\d+")


@dataclass(frozen=True)
class SignalPart:
    """Bits of a named signal or one of its fields that a wire carries: names, lowest bit, and widths in bits.

    Parameters
    ----------
    signal : str
        Name of the signal, without the numbers that Amaranth adds.
    fields : tuple of str
        Names of the field and of the structures around it, outermost first; empty for bits of the signal itself.
    low, width : int
        Lowest bit in the signal or field, and number of bits.
    size : int
        Width of the signal or field.
    at : int
        Lowest bit in the wire.
    """

    signal: str
    fields: tuple[str, ...]
    low: int
    width: int
    size: int
    at: int


def is_partial(wire: str) -> bool:
    """Return whether an RTLIL wire is an unnamed port, such as ``port$1$2``."""
    return _UNNAMED.fullmatch(wire) is not None


def carried_parts(design: Design) -> dict[str, dict[str, list[SignalPart]]]:
    """Return a dict by unnamed port (RTLIL name), then by module name, of lists of the signal parts it carries.

    A port has the same RTLIL name in all modules that it passes.
    """
    carried: dict[str, dict[str, list[SignalPart]]] = {}
    for module in design.values():
        ports = _ports(module)
        for connection in module.connections if ports else ():
            (left,) = connection.left if len(connection.left) == 1 else (None,)
            if left is not None and left.width == module.wires[left.wire].width:
                for port, part in _parts(left.wire, connection.right, ports):
                    carried.setdefault(port, {}).setdefault(module.name, []).append(part)
        for cell in module.cells:
            for port, sig in cell.ports.items():
                if is_partial(name := f"\\{port}"):
                    carried.setdefault(name, {}).setdefault(module.name, []).extend(_named_bits(module, sig))
    return carried


def _ports(module: rtlil.Module) -> dict[str, str]:
    """Return a dict from wires that unnamed ports of the module or its instances carry to the ports' RTLIL names."""
    ports = {wire: wire for wire in module.wires if is_partial(wire)}
    for cell in module.cells:
        for port, sig in cell.ports.items():
            if is_partial(name := f"\\{port}") and len(sig) == 1 and sig[0].width == module.wires[sig[0].wire].width:
                ports[sig[0].wire] = name
    return ports


def _parts(wire: str, right: Sig, ports: Mapping[str, str]) -> Iterator[tuple[str, SignalPart]]:
    """Yield pairs: an unnamed port that shares bits with a wire, and the part of the wire's signal that it carries."""
    signal, *fields = (step.partition("$")[0] for step in wire.removeprefix("\\").split("."))
    size, low = sum(chunk.width for chunk in right), 0
    for chunk in right:
        if chunk.wire in ports and not wire.startswith("$"):
            yield ports[chunk.wire], SignalPart(signal, tuple(fields), low, chunk.width, size, chunk.low)
        low += chunk.width


def _named_bits(module: rtlil.Module, sig: Sig) -> Iterator[SignalPart]:
    """Yield each `SignalPart`, a part of a named signal, that is connected to an unnamed port."""
    at = 0
    for chunk in sig:
        if chunk.wire.startswith("\\") and not is_partial(chunk.wire):
            yield _part_of(module, chunk, at)
        at += chunk.width


def _part_of(module: rtlil.Module, chunk: WireBits, at: int) -> SignalPart:
    signal, *fields = (step.partition("$")[0] for step in chunk.wire.removeprefix("\\").split("."))
    return SignalPart(signal, tuple(fields), chunk.low, chunk.width, module.wires[chunk.wire].width, at)


def part_name(width: int, carried: Mapping[str, Sequence[SignalPart]], module: str, members: Collection[str]) -> str:
    """Return a name for an unnamed port, after what it carries; empty if it carries no bits of a named signal.

    Parameters
    ----------
    width : int
        Width of the port.
    carried : mapping of str to sequence of SignalPart
        What the port carries, by module, from `carried_parts`.
    module : str
        Module of the port.
    members : collection of str
        Names of the component's ports with the same direction. The port is part of one of them, if its name is known.
    """
    own_first = sorted(carried.items(), key=lambda entry: entry[0] != module)
    candidates = [part for _, each in own_first for part in each]
    own = [part for part in candidates if part.signal in members]
    names = [_of_fields(width, own), _of_signals(width, own), _of_slice(width, own)]
    names += [_of_signals(width, candidates), _of_slice(width, candidates)]
    return next(filter(None, names), "")


def _of_fields(width: int, candidates: Sequence[SignalPart]) -> str:
    """Return a name for a port that carries some whole fields of one signal; empty for any other port."""
    for signal in dict.fromkeys(part.signal for part in candidates):
        fields = {part.at: part for part in candidates if part.signal == signal and len(part.fields) == 1}
        whole = [fields[at] for at in sorted(fields) if fields[at].width == fields[at].size]
        if _width(whole) == width:
            return name_of_fields(signal, [part.fields[0] for part in whole])
    return ""


def _of_signals(width: int, candidates: Sequence[SignalPart]) -> str:
    """Return the joined names of the signals that a port carries whole; empty if it carries anything else."""
    wholes = {part.at: part for part in reversed(candidates) if not part.fields and part.width == part.size}
    return "_".join(wholes[at].signal for at in sorted(wholes)) if _width(wholes.values()) == width else ""


def _of_slice(width: int, candidates: Sequence[SignalPart]) -> str:
    """Return a name for a port that carries a slice of one signal; empty for any other port."""
    return next(
        (name_of_slice(part.signal, part.low, width) for part in candidates if not part.fields and part.width == width),
        "",
    )


def _width(adjacent: Iterable[SignalPart]) -> int:
    return sum(part.width for part in adjacent)


#: Maximum length of a component parameter's value in a Verilog comment, in characters.
LONGEST = 100
#: Maximum length of a sequence parameter whose integers a comment lists one by one.
SHORT = 4
#: Maximum length of a Verilog comment line, in columns.
COLUMNS = 116
#: Names of ports for clocks and resets, which come first among a Verilog module's ports.
CLOCKS = ("aclk", "aresetn", "clk", "rst")


class Elaborated(Elaboratable):
    """Proxy of an Amaranth component that keeps the `Fragment` (Amaranth's hierarchy) from its elaboration."""

    def __init__(self, component: wiring.Component) -> None:
        self._component = component
        self.fragment: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)

    def elaborate(self, platform: Any) -> Fragment:
        self.fragment = Fragment.get(self._component, platform)
        return self.fragment


def components(fragment: Any, top: str) -> dict[str, Elaboratable]:
    """Return a dict from each module's RTLIL name to the Amaranth object, usually a component, that it came from.

    Parameters
    ----------
    fragment : Fragment
        Fragment of the top component.
    top : str
        Name of the top module.
    """
    return dict(_components(fragment, top))


def _components(fragment: Any, path: str) -> Iterator[tuple[str, Elaboratable]]:
    origins = list(fragment.origins or ())
    for origin in [*(origin for origin in origins if isinstance(origin, wiring.Component)), *origins][:1]:
        yield path, origin
    for index, (child, name, _) in enumerate(fragment.subfragments):
        yield from _components(child, f"{path}.{name or f'U${index}'}")


def outputs(fragment: Any) -> dict[str, frozenset[str]]:
    """Return a dict from the name of each instantiated foreign module to the set of its output ports' names."""
    foreign: dict[str, frozenset[str]] = {}
    for child, *_ in fragment.subfragments:
        foreign |= outputs(child)
        ports = child.ports.items() if isinstance(child, Instance) else ()  # type: ignore[attr-defined]
        if ports:
            module = child.type  # type: ignore[attr-defined]
            foreign[module] = frozenset(port for port, (_, direction) in ports if direction == "o")
    return foreign


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeparateModule:
    """Base class of a design's modules whose Verilog is written separately from the other modules' and reused.

    Parameters
    ----------
    inside : str
        Name of the module that contains the instance, in RTLIL.
    name : str
        Name of the instance.
    component : Elaboratable
        Component that the module was made of.
    ports : tuple of str
        Names of the module's ports, in order.
    """

    inside: str
    name: str
    component: Elaboratable
    ports: tuple[str, ...]


def faces(
    design: Design, known: Mapping[str, Elaboratable], separate: Mapping[str, SeparateModule] | None = None
) -> dict[str, Face]:
    """Return a dict by RTLIL name or cell type of each module's `Face` (Verilog name, ports and comments).

    Parameters
    ----------
    design : Design
        Modules of the design.
    known : mapping of str to Elaboratable
        Components by the modules' names, from `components`.
    separate : mapping of str to SeparateModule, optional
        Modules that are written separately, by the cell type of their instances.
    """
    separate = separate or {}
    paths = [*design, *(f"{module.inside}.{module.name}" for module in separate.values())]
    names = unique(_word("_".join(plain(step) for step in name.split("."))) for name in paths)
    top, partial = next(iter(design)), carried_parts(design)
    by_name = {
        old: face(module, new, known.get(_path(old)), outermost=old == top, partial=partial)
        for (old, module), new in zip(design.items(), names, strict=False)
    }
    for (cell_type, module), new in zip(separate.items(), names[len(design) :], strict=True):
        ports = {f"\\{port}": port for port in module.ports}
        by_name[cell_type] = Face(new, ports, tuple(_head(new, module.component)))
    return by_name


def _path(name: str) -> str:
    """Return the hierarchical path in a module's RTLIL name, without the numbers that Amaranth adds.

    It adds them if a signal has the name of an instance.
    """
    return re.sub(r"(?<!\.U)\$\d+(?=\.|$)", "", name)


def _word(name: str) -> str:
    word = plain(name)
    return f"{word}_" if word in reserved() else word


def face(
    module: rtlil.Module,
    name: str,
    component: Elaboratable | None,
    *,
    outermost: bool = False,
    partial: Mapping[str, Mapping[str, Sequence[SignalPart]]] | None = None,
) -> Face:
    """Return the `Face` (Verilog name, ports and comments) of a module that was elaborated from a component.

    ``outermost`` is true for the top module, whose ports keep their names. ``partial`` says what ports without a name
    carry.
    """
    members = _members(component)
    ports = [wire for wire in module.wires.values() if wire.port and wire.width]
    chosen = {wire.name: plain(wire.name) for wire in ports}
    if not outermost:
        chosen |= _partial_names(module, ports, partial or {}, members)
        chosen |= _member_names(ports, _aliases(module), members)
    own = "" if outermost else _word(module.name.rpartition(".")[2])
    directions = [module.wires[wire].port.removesuffix("put") for wire in chosen]
    words = unique(
        port if port in CLOCKS else f"{port}_{direction}" if port == own else _word(port)
        for port, direction in zip(chosen.values(), directions, strict=True)
    )
    ranks = {member: rank for rank, member in enumerate((*CLOCKS, *members))}
    order = sorted(zip(chosen, words, strict=True), key=lambda pair: ranks.get(pair[1], len(ranks)))
    notes = {word: members[word].meaning for word in words if word in members}
    return Face(name, dict(order), tuple(_head(name, component)), notes, own)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Member:
    """Port of an Amaranth component: its direction, width in bits, and a description of its bits."""

    direction: str
    width: int
    meaning: str


def _partial_names(
    module: rtlil.Module,
    ports: Sequence[rtlil.Wire],
    partial: Mapping[str, Mapping[str, Sequence[SignalPart]]],
    members: Mapping[str, _Member],
) -> dict[str, str]:
    """Return, as a dictionary by wire, a Verilog name for each module port that carries part of a signal."""
    names = {}
    for wire in ports:
        same = [name for name, member in members.items() if member.direction == wire.port]
        if wire.name in partial:
            names[wire.name] = part_name(wire.width, partial[wire.name], module.name, same) or plain(wire.name)
    return names


def _member_names(
    ports: Sequence[rtlil.Wire], aliases: Mapping[str, Sequence[str]], members: Mapping[str, _Member]
) -> dict[str, str]:
    """Return, as a dictionary by wire, the component's port that the wire is, which has its direction and width.

    A wire can have the name of an inner component's port as well: a layer's ``load_i`` is ``i`` of the component
    inside. Therefore the wires with the fewest names choose first.
    """
    fitting = {}
    for wire in ports:
        names = dict.fromkeys([base(wire.name), *(base(alias) for alias in aliases.get(wire.name, ()))])
        same = (wire.port, wire.width)
        fitting[wire.name] = [
            name for name in names if name in members and (members[name].direction, members[name].width) == same
        ]
    chosen: dict[str, str] = {}
    for wire, names in sorted(fitting.items(), key=lambda entry: len(entry[1])):
        free = [name for name in names if name not in chosen.values()]
        if free:
            chosen[wire] = free[0]
    return chosen


def _members(component: Elaboratable | None) -> dict[str, _Member]:
    """Return a dictionary of the ports of an Amaranth component by name, in the order of its signature."""
    if not isinstance(component, wiring.Component):
        return {}
    members = {}
    for path, member, _ in component.signature.flatten(component):
        direction = "input" if member.flow == In else "output"
        name = "__".join(map(str, path))
        width = Shape.cast(member.shape).width
        members[name] = _Member(direction=direction, width=width, meaning=described(member.shape))
    return members


def _aliases(module: rtlil.Module) -> dict[str, list[str]]:
    """Return a dict from each whole wire of an RTLIL module to its other names: the wires connected to it."""
    aliases: dict[str, list[str]] = {}
    for connection in module.connections:
        left, right = connection.left, connection.right
        if len(left) == len(right) == 1 and right[0].wire and right[0].width == module.wires[right[0].wire].width:
            if "." not in left[0].wire and "[" not in left[0].wire:
                aliases.setdefault(right[0].wire, []).append(left[0].wire)
            aliases.setdefault(left[0].wire, []).append(right[0].wire)
    return aliases


# Comments


def described(shape: Any) -> str:
    """Return a text on a port's bits, from its Amaranth shape, such as ``last [16], data [15:0]: 2 x 8 bits``.

    The result is empty for an unsigned integer.
    """
    if isinstance(shape, data.StructLayout):
        fields = sorted(((field.offset, key, field) for key, field in shape), reverse=True, key=lambda entry: entry[0])
        return ", ".join(_field(str(key), offset, field) for offset, key, field in fields if field.width)
    if isinstance(shape, data.ArrayLayout):
        return _array(shape)
    plain_shape = Shape.cast(shape)
    return "signed" if plain_shape.signed else ""


def _field(key: str, offset: int, field: data.Field) -> str:
    bits = f"[{offset + field.width - 1}:{offset}]" if field.width > 1 else f"[{offset}]"
    inner = described(field.shape)
    return f"{key} {bits}{f': {inner}' if inner else ''}"


def _array(shape: Any) -> str:
    lengths = []
    while isinstance(shape, data.ArrayLayout):
        lengths.append(shape.length)
        shape = shape.elem_shape
    width, signed = Shape.cast(shape).width, Shape.cast(shape).signed
    sizes = " x ".join(map(str, [*lengths, width]))
    return f"{sizes} {'bit' if width == 1 else 'bits'}{', signed' if signed else ''}"


def _head(name: str, component: Elaboratable | None) -> list[str]:
    """Return a list of comment lines above a Verilog module: its component's first sentence, parameters, latency.

    A layer is described by its operation and sizes (`Layer.about`), another component by its first sentence.
    """
    text = getattr(component, "about", "") or _first_sentence(component) or "Submodule of the module that uses it."
    lines = _wrapped([f"Module {name}:", *text.split()])
    config = getattr(component, "config", None)
    if dataclasses.is_dataclass(config):
        values = (
            (field.name, getattr(config, field.name))
            for field in dataclasses.fields(config)
            if field.repr and frozen.is_digested(config, field)
        )
        texts = [text for key, value in values if (text := _parameter(key, value))]
        lines += [f"  {line}" for line in _wrapped([*(f"{text}," for text in texts[:-1]), *texts[-1:]])]
        lines += _latency(config)
    return lines


def _wrapped(texts: Iterable[str]) -> list[str]:
    """Return a list of the texts as comment lines of at most `COLUMNS` columns, broken only between two texts.

    A comment that begins with a tool's name is a directive (``// verilator ..``, ``// synopsys ..``). A text can
    contain a user's name, so no line begins within a text.
    """
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + 1 + len(text) <= COLUMNS:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return lines


def _first_sentence(component: Elaboratable | None) -> str:
    if component is None or isinstance(component, Module):
        return ""
    text = " ".join((inspect.getdoc(type(component)) or "").partition("\n\n")[0].split()).replace("``", "")
    text = text.removeprefix("Component that ").partition(". ")[0].rstrip(".")
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _latency(config: Any) -> list[str]:
    with suppress(AttributeError, TypeError, ValueError):
        if isinstance(latency := config.latency, int):
            return [f"  latency: {latency} {'cycle' if latency == 1 else 'cycles'}"]
    return []


def _parameter(key: str, value: Any) -> str:
    """Return a component's parameter as text for a comment, such as ``lanes = 4``; empty for long data.

    Data, such as a layer's biases, can be in memory files, and then change without the Verilog.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) > SHORT or not all(isinstance(element, int) for element in value):
            return ""
    elif not isinstance(value, int | str | Shape) and not dataclasses.is_dataclass(value):
        return ""
    text = repr(value)
    return f"{key} = {text}" if value is not False and value != () and len(text) <= LONGEST else ""
