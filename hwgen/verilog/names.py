"""Names for emitted ports that carry part of a signal, which Amaranth's RTLIL leaves unnamed.

If the bits of a signal have different drivers, such as registers and constants, the modules on its way have a port for
each group of bits. The port is named after the fields of the signal that it carries: ``step__ends_complete``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwgen.obligations.port_names import name_of_fields, name_of_slice
from hwgen.verilog.rtlil import Design, Module, Sig, WireBits

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


def _ports(module: Module) -> dict[str, str]:
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


def _named_bits(module: Module, sig: Sig) -> Iterator[SignalPart]:
    """Yield each `SignalPart`, a part of a named signal, that is connected to an unnamed port."""
    at = 0
    for chunk in sig:
        if chunk.wire.startswith("\\") and not is_partial(chunk.wire):
            yield _part_of(module, chunk, at)
        at += chunk.width


def _part_of(module: Module, chunk: WireBits, at: int) -> SignalPart:
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
