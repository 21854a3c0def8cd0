"""Loops in hardware: indices that restart after their last value, and pixels' places in interleaved memory banks.

Nested loops step each other, the innermost first: a loop's last step moves the loop around it. Its index is a register,
so that all components count in the same way::

    columns, rows = Loop("column_index", range(width)), Loop("row_index", range(height))
    frame_ends = rows.step(m, columns.step(m, taken))

Neighbouring pixels are in neighbouring banks of a memory (`Interleaving`), so that several can be accessed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amaranth import Const, Module, Mux, Shape, Signal, Value
from amaranth.hdl import ShapeLike

from hwgen.gateware.lookup import bits_for_range, named, sparse_table


class Loop:
    """Loop counter in hardware: a register whose index takes the values of a range in order, and then starts again.

    Parameters
    ----------
    name : str
        Name of the index, whose last part can be ``index``.
    values : range
        Values of the index.
    index : Signal, optional
        Signal that has the index, a register. If not given, it is as wide as its values need.
    last : Value, optional
        Last value, where it differs from one run of the loop to the next. It is in ``values``.

    Attributes
    ----------
    index : Signal
        Index of the current iteration.
    is_last : Value
        Whether the current iteration is the last one.
    """

    def __init__(self, name: str, values: range, *, index: Signal | None = None, last: Value | None = None):
        self._values = values
        self._item = name.removesuffix("_index").removesuffix("_offset")
        self.index = (
            Signal(bits_for_range(values[0], values[-1]), name=name, init=values[0]) if index is None else index
        )
        self.is_last = named(self.index == (values[-1] if last is None else last), f"is_last_{self._item}")

    @property
    def following(self) -> Value:
        """Amaranth `Value`: the loop index of the next iteration; the first value follows the last one."""
        return Mux(self.is_last, self._values[0], self.index + self._values.step)

    def step(self, m: Module, moves: Value) -> Value:
        """Move the loop index to its next value if ``moves``; return a bit: this move ends the loop."""
        ends = named(moves & self.is_last, f"{self._item}s_end")
        with m.If(ends):
            m.d.sync += self.index.eq(self._values[0])
        with m.Elif(moves):
            m.d.sync += self.index.eq(self.index + self._values.step)
        return ends


class Place(NamedTuple):
    """Place of a pixel in interleaved memory banks, as signals: its bank, and its first word's address in the bank."""

    bank: Value
    word: Value

    def eq(self, other: Place) -> list:
        """Return a list of the Amaranth assignments that copy another place's bank and word address to this place."""
        return [self.bank.eq(other.bank), self.word.eq(other.word)]

    def unless(self, condition: Value, other: Place) -> Place:
        """Return a `Place` that is ``other`` while ``condition`` is high, and this place otherwise (multiplexers)."""
        return Place(Mux(condition, other.bank, self.bank), Mux(condition, other.word, self.word))


class Interleaving(NamedTuple):
    """Interleaving of pixels among memory banks, so that neighbouring pixels are in neighbouring banks.

    Parameters
    ----------
    banks : int
        Number of banks. Pixel ``x`` is in bank ``x mod banks``.
    pitch : int
        Number of words from a pixel to the next pixel in the same bank.
    """

    banks: int
    pitch: int

    def register(self, name: str, words: ShapeLike, pixel: int = 0) -> Place:
        """Return a `Place`: new signals for a bank index and a word address, initialised to the place of a pixel.

        ``words`` is the shape of word addresses.
        """
        word, bank = divmod(pixel, self.banks)
        first = Const(word * self.pitch, Shape.cast(words)).value
        return Place(
            Signal(range(self.banks), name=f"{name}_bank_index", init=bank),
            Signal(words, name=f"{name}_word_address", init=first),
        )

    def place_of(self, pixel: int) -> Place:
        """Return a `Place`: the memory bank and the word address of the pixel with index ``pixel``, as constants."""
        word, bank = divmod(pixel, self.banks)
        return Place(Const(bank), Const(word * self.pitch))

    def ahead(self, here: Place, pixels: int) -> Place:
        """Return the `Place` (bank, word address) of the pixel ``pixels`` pixels after the one at ``here``.

        A table says whether the bank wraps, because the logic that reads it has a carry chain of its own.
        """
        words, turn = divmod(pixels, self.banks)
        if not turn:
            return Place(here.bank, here.word + words * self.pitch)
        wraps = sparse_table(here.bank, {bank: int(bank + turn >= self.banks) for bank in range(self.banks)})
        return Place(
            named(Mux(wraps, here.bank + turn - self.banks, here.bank + turn), "bank_phase_ahead"),
            here.word + named(Mux(wraps, (words + 1) * self.pitch, words * self.pitch), "words_ahead"),
        )

    def words_ahead(self, first: Value, bank: int, offsets: Sequence[int]) -> Value:
        """Return the offset in words from the first pixel's word to the word that ``bank`` reads at once with it.

        Parameters
        ----------
        first : Value
            Bank of the first pixel.
        bank : int
            Bank that reads the word.
        offsets : sequence of int
            Offsets of the pixels that are read, from the first pixel.
        """
        if offsets[-1] < self.banks:
            return named(Mux(bank < first, self.pitch, 0), "words_ahead")
        words = {}
        for first_bank in range(self.banks):
            rounds = (divmod(first_bank + offset, self.banks) for offset in offsets)
            words[first_bank] = next((index * self.pitch for index, pixel_bank in rounds if pixel_bank == bank), 0)
        return sparse_table(first, words)


def banks_apart(offsets: Sequence[int], minimum: int = 1) -> int:
    """Return the smallest number of interleaved memory banks that stores pixels at the ``offsets`` in different banks.

    A pixel at position ``x`` is in bank ``x`` modulo the number of banks. The result is at least ``minimum``.
    """
    banks = max(len(offsets), minimum)
    while len({offset % banks for offset in offsets}) < len(offsets):
        banks += 1
    return banks
