"""Sums of products in a module as Yosys reads it: all addends at once, in whatever order they are added.

Both texts of a dot product add the same products, but one can add ``a + (b + c)`` and the other ``(a + b) + c``.
Proving that such sums of many products are equal is hard, where additions are logic. Here a tree of additions is one
function of its addends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
    """Sums in which products are added, each with all of its addends.

    Parameters
    ----------
    document : mapping
        Entry of the module in a file that Yosys' ``write_json`` wrote.
    """

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
