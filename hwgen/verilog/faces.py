"""What modules are called from outside, and what is said above them: from the components that they are made of."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from amaranth import Elaboratable, Instance, Module, Shape
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hwgen.gateware.names import reserved, unique
from hwgen.verilog import rtlil
from hwgen.verilog.module_text import Face, base, plain
from hwgen.verilog.rtlil import Design

__all__ = ["Apart", "components", "face", "faces", "outputs"]

#: Characters of a parameter's value at most; longer ones are counted.
LONGEST = 100
#: Numbers of a sequence that is written out.
SHORT = 4
COLUMNS = 116
#: Signals of Amaranth's clock domains, which come first.
CLOCKS = ("aclk", "aresetn", "clk", "rst")


def components(fragment: Any, top: str) -> dict[str, Elaboratable]:
    """What each module was made of, a component mostly, by the module's name in RTLIL.

    Parameters
    ----------
    fragment : Fragment
        Of the top component.
    top : str
        The top module's name.
    """
    return dict(_components(fragment, top))


def _components(fragment: Any, path: str) -> Iterator[tuple[str, Elaboratable]]:
    origins = list(fragment.origins or ())
    for origin in [*(each for each in origins if isinstance(each, wiring.Component)), *origins][:1]:
        yield path, origin
    for number, (child, name, _) in enumerate(fragment.subfragments):
        yield from _components(child, f"{path}.{name or f'U${number}'}")


def outputs(fragment: Any) -> dict[str, frozenset[str]]:
    """Outputs of the instances of modules that are not Amaranth's, by the modules' names."""
    found: dict[str, frozenset[str]] = {}
    for child, *_ in fragment.subfragments:
        found |= outputs(child)
        ports = child.ports.items() if isinstance(child, Instance) else ()  # type: ignore[attr-defined]
        if ports:
            kind = child.type  # type: ignore[attr-defined]
            found[kind] = frozenset(port for port, (_, direction) in ports if direction == "o")
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Apart:
    """A module of a design that is written by itself.

    Parameters
    ----------
    inside : str
        The module that its instance is in.
    name : str
        Of its instance.
    component : Elaboratable
        What it was made of.
    ports : tuple of str
        Names of its ports, in order.
    """

    inside: str
    name: str
    component: Elaboratable
    ports: tuple[str, ...]


def faces(
    design: Design, known: Mapping[str, Elaboratable], apart: Mapping[str, Apart] | None = None
) -> dict[str, Face]:
    """Names, ports and comments of all modules of a design, by their names in RTLIL.

    Those ``apart`` are among them, by the kinds of their instances.
    """
    apart = apart or {}
    paths = [*design, *(f"{each.inside}.{each.name}" for each in apart.values())]
    names = unique(_word("_".join(plain(part) for part in name.split("."))) for name in paths)
    top = next(iter(design))
    found = {
        old: face(module, new, known.get(_path(old)), outermost=old == top)
        for (old, module), new in zip(design.items(), names, strict=False)
    }
    for (kind, each), new in zip(apart.items(), names[len(design) :], strict=True):
        found[kind] = Face(new, {f"\\{port}": port for port in each.ports}, tuple(_head(new, each.component)))
    return found


def _path(name: str) -> str:
    """Of a module, without the numbers that Amaranth adds where a signal has the name of an instance."""
    return re.sub(r"(?<!\.U)\$\d+(?=\.|$)", "", name)


def _word(name: str) -> str:
    word = plain(name)
    return f"{word}_" if word in reserved() else word


def face(module: rtlil.Module, name: str, component: Elaboratable | None, *, outermost: bool = False) -> Face:
    """What a module is called from outside that was made of a component."""
    members = _members(component)
    ports = [wire for wire in module.wires.values() if wire.port and wire.width]
    aliases = _aliases(module)
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for wire in ports:
        names = [base(wire.name), *(base(alias) for alias in aliases.get(wire.name, ()))]
        fitting = [each for each in names if members.get(each, (None,))[0] == wire.port and each not in taken]
        chosen[wire.name] = plain(wire.name) if outermost else (fitting or [plain(wire.name)])[0]
        taken.add(chosen[wire.name])
    own = "" if outermost else _word(module.name.rpartition(".")[2])
    kinds = [module.wires[wire].port.removesuffix("put") for wire in chosen]
    words = unique(
        each if each in CLOCKS else f"{each}_{kind}" if each == own else _word(each)
        for each, kind in zip(chosen.values(), kinds, strict=True)
    )
    places = {member: place for place, member in enumerate((*CLOCKS, *members))}
    order = sorted(zip(chosen, words, strict=True), key=lambda pair: places.get(pair[1], len(places)))
    notes = {word: members[word][1] for word in words if word in members}
    return Face(name, dict(order), tuple(_head(name, component)), notes, own)


def _members(component: Elaboratable | None) -> dict[str, tuple[str, str]]:
    """Direction of each port and what travels through it, in order."""
    if not isinstance(component, wiring.Component):
        return {}
    found = {}
    for path, member, _ in component.signature.flatten(component):
        direction = "input" if member.flow == In else "output"
        found["__".join(map(str, path))] = direction, described(member.shape)
    return found


def _aliases(module: rtlil.Module) -> dict[str, list[str]]:
    """Other names of whole wires, either way."""
    found: dict[str, list[str]] = {}
    for connection in module.connections:
        left, right = connection.left, connection.right
        if len(left) == len(right) == 1 and right[0].wire and right[0].width == module.wires[right[0].wire].width:
            if "." not in left[0].wire and "[" not in left[0].wire:
                found.setdefault(right[0].wire, []).append(left[0].wire)
            found.setdefault(left[0].wire, []).append(right[0].wire)
    return found


# Comments


def described(shape: Any) -> str:
    """What bits mean: ``last [16], data [15:0]: 2 x 8 bits``; empty for plain unsigned numbers."""
    if isinstance(shape, data.StructLayout):
        fields = sorted(((field.offset, key, field) for key, field in shape), reverse=True, key=lambda each: each[0])
        return ", ".join(_field(str(key), offset, field) for offset, key, field in fields if field.width)
    if isinstance(shape, data.ArrayLayout):
        return _array(shape)
    plain_shape = Shape.cast(shape)
    return "signed" if plain_shape.signed else ""


def _field(key: str, offset: int, field: data.Field) -> str:
    place = f"[{offset + field.width - 1}:{offset}]" if field.width > 1 else f"[{offset}]"
    inner = described(field.shape)
    return f"{key} {place}{f': {inner}' if inner else ''}"


def _array(shape: Any) -> str:
    lengths = []
    while isinstance(shape, data.ArrayLayout):
        lengths.append(shape.length)
        shape = shape.elem_shape
    width, signed = Shape.cast(shape).width, Shape.cast(shape).signed
    counts = " x ".join(str(length) for length in lengths)
    return f"{counts} of {width} {'bit' if width == 1 else 'bits'}{', signed' if signed else ''}"


def _head(name: str, component: Elaboratable | None) -> list[str]:
    text = _first_sentence(component) or "A part of the module that it is in."
    lines = _wrapped([f"Module {name}:", *text.split()])
    config = getattr(component, "config", None)
    if dataclasses.is_dataclass(config):
        values = ((each.name, getattr(config, each.name)) for each in dataclasses.fields(config) if each.repr)
        texts = [text for key, value in values if (text := _parameter(key, value))]
        lines += [f"  {line}" for line in _wrapped([*(f"{text}," for text in texts[:-1]), *texts[-1:]])]
        lines += _latency(config)
    return lines


def _wrapped(texts: Iterable[str]) -> list[str]:
    """Return ``texts`` side by side, in lines that break between two of them only.

    A comment that begins with a tool's name is a directive (``// verilator ..``, ``// synopsys ..``). So no line begins
    within a text, as it may hold a user's name.
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
    return text.partition(". ")[0].rstrip(".") + "." if text else ""


def _latency(config: Any) -> list[str]:
    try:
        latency = config.latency
    except (AttributeError, TypeError, ValueError):
        return []
    if not isinstance(latency, int):
        return []
    return [f"  latency: {latency} {'cycle' if latency == 1 else 'cycles'}"]


def _parameter(key: str, value: Any) -> str:
    """``lanes = 4``; of sequences how many values they have, as these may be in memory files, and change alone."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) > SHORT or not all(isinstance(each, int) for each in value):
            return f"{key}: {len(value)} {'value' if len(value) == 1 else 'values'}"
    elif not isinstance(value, int | str | Shape) and not dataclasses.is_dataclass(value):
        return ""
    text = repr(value)
    return f"{key} = {text}" if value is not False and value != () and len(text) <= LONGEST else ""
