"""Verilog expressions and lines that define arithmetic in proofs: numbers, fields of a payload, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amaranth import Shape
from amaranth.lib import data

Fields = data.Layout | Mapping[Any, data.Field]
"""Type of a payload's fields: an Amaranth layout, or a mapping from field name to Amaranth field."""


def choice(selector: str, entries: Sequence[object]) -> str:
    """Return a Verilog expression (text) that selects the entry with index ``selector`` from a list of entries."""
    if len(set(entries)) == 1:
        return str(entries[0])
    first = [f"{selector} == {index} ? {entry}" for index, entry in enumerate(entries[:-1])]
    return f"({' : '.join([*first, str(entries[-1])])})"


def field_bits(payload: str, fields: Fields, name: str, base: int = 0) -> str:
    """Return the Verilog slice (text) of a payload's field; the payload starts at bit ``base`` of the word."""
    return part(payload, base + fields[name].offset, fields[name].width)


def field_wires(layout: Fields, names: Iterable[str], payload: str, prefix: str) -> list[str]:
    """Return a list of Verilog lines that declare a wire ``PREFIX_NAME`` for each named field of a payload."""
    return [
        f"wire [{layout[name].width - 1}:0] {prefix}_{name} = {field_bits(payload, layout, name)};" for name in names
    ]


def in_circle(first: str, count: str, end: str, depth: int) -> str:
    """Return a Verilog condition: ``end`` is ``count`` words after ``first`` in a ring of ``depth`` words.

    No sum of addresses wraps, because one operand has 32 bits.
    """
    after = f"32'd0 + {first} + {count}"
    return f"(({after} == {end}) | ({after} == {end} + {depth}))"


def literal(value: int, bits: int) -> str:
    """Return a signed Verilog literal of ``bits`` bits, such as ``-8'sd3``."""
    return f"{'-' if value < 0 else ''}{bits}'sd{abs(value)}"


def signed_number(value: int) -> str:
    """Return a signed Verilog literal that is wide enough for the number and its negative."""
    return literal(value, abs(value).bit_length() + 2)


def part(word: str, first: int, bits: int) -> str:
    """Return Verilog text for ``bits`` bits of a word, starting at bit ``first``, such as ``word[7:4]``."""
    return f"{word}[{first + bits - 1}:{first}]"


def repeated(bits: str, count: int, width: int) -> str:
    """Return Verilog text that repeats each of ``count`` bits ``width`` times and concatenates them, lowest first."""
    return f"{{{', '.join(f'{{{width}{{{bits}[{index}]}}}}' for index in reversed(range(count)))}}}"


def value_of(bits: str, shape: Shape) -> str:
    """Return a signed Verilog expression of the value that ``bits`` represents, read with the Amaranth shape."""
    return f"$signed({bits})" if shape.signed else f"$signed({{1'b0, {bits}}})"


def table(name: str, words: Sequence[int], *, signed: bool) -> list[str]:
    """Return a list of lines of Verilog that define a constant memory, called ``name``, of signed words.

    Parameters
    ----------
    name : str
        Name of the memory.
    words : sequence of int
        Words for all values of the address, from the smallest value to the largest.
    signed : bool
        Whether the address is a two's complement number, so that the first half of the words is for negative ones.
    """
    bits = max((word if word >= 0 else ~word).bit_length() for word in words) + 1
    half = len(words) // 2 if signed else 0
    contents = [
        f"{name}[{(address - half) % len(words)}] = {bits}'h{word % (1 << bits):x};"
        for address, word in enumerate(words)
    ]
    return [f"reg signed [{bits - 1}:0] {name} [0:{len(words) - 1}];", "initial begin", *contents, "end"]
