"""Meaning of the fixed unit's instructions, with fractions, and random programs of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import floor
from random import Random

import numpy as np

from hwgen.gateware.engine.config import LANES
from hwgen.gateware.engine.fixed_unit import (
    FACTOR_BITS,
    INSTRUCTION,
    MAX_SHIFT,
    VALUE_BITS,
    Opcode,
    Rounding,
    instruction_word,
)

HALF = 1 << VALUE_BITS - 1
#: Quotient of a product, by its rounding.
ROUNDINGS = {
    Rounding.DOWN: floor,
    Rounding.UPWARDS: lambda quotient: floor(quotient + Fraction(1, 2)),
    Rounding.EVEN: round,
}


def fields(word: int) -> dict[str, int]:
    """Return the fields of an instruction's word."""
    return {name: word >> field.offset & (1 << field.width) - 1 for name, field in INSTRUCTION}


def num_constants(words: Sequence[int]) -> int:
    """Return the number of constants of a program."""
    found = map(fields, map(int, words))
    used = (now["constant"] + 1 for now in found if now["second_is_constant"] or now["shift_is_constant"])
    return max(used, default=0)


def looks_up(words: Sequence[int]) -> bool:
    """Return whether a program looks values up."""
    return any(fields(int(word))["code"] == Opcode.LOOK_UP for word in words)


def signed(value: int, bits: int) -> int:
    """Return the integer that the lowest bits of ``value`` are in two's complement."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def calculated(now: dict[str, int], first: int, second: int, constant: int, lookups: Sequence[int]) -> int:
    """Return the result of an instruction that writes a slot, of one lane and pixel.

    ``constant`` is the constant's word; if the instruction has one, it replaces the second operand.
    """
    code, value = Opcode(now["code"]), second
    if now["second_is_constant"]:
        value = signed(constant & (1 << VALUE_BITS) - 1, VALUE_BITS)
    if code == Opcode.ADD:
        return first + value
    if code == Opcode.ADD_FLOAT:
        assert -HALF <= first + value < HALF, "sums fit the values of the unit"
        return int(np.float32(float(first + value)))
    if code == Opcode.SUBTRACT:
        return first - value
    if code == Opcode.MINIMUM:
        return min(first, value)
    if code == Opcode.MAXIMUM:
        return max(first, value)
    if code == Opcode.LOOK_UP:
        return int(lookups[(first + now["base"]) % len(lookups)])
    assert code == Opcode.MULTIPLY
    shift = constant >> VALUE_BITS & MAX_SHIFT if now["shift_is_constant"] else now["shift"]
    factor = signed(value, FACTOR_BITS)
    assert factor == value, "factors have few bits"
    return ROUNDINGS[Rounding(now["rounding"])](Fraction(first * factor, 1 << shift))


def run(
    words: Sequence[int],
    slots: dict[int, np.ndarray],
    constants: np.ndarray,
    lookups: Sequence[int],
    columns: int,
) -> dict[tuple[int, int], int]:
    """Execute a program: return the output bytes, by place behind the output's base and by lane.

    Parameters
    ----------
    words : sequence of int
        Program.
    slots : dict of ndarray
        Values of each slot, object ``(pixels, LANES)``, changed in place; ``(1, LANES)`` for one pixel.
    constants : ndarray
        Words of constants, ``(n, LANES)``.
    columns : int
        Columns of the tile.
    """
    outputs = {}
    pixels = max(len(values) for values in slots.values())
    for word in words:
        now = fields(int(word))
        result = np.empty((pixels, LANES), object)
        for pixel, lane in np.ndindex(pixels, LANES):
            is_unary = now["second_is_constant"] or now["code"] in (Opcode.LOOK_UP, Opcode.WRITE)
            first, second = (
                slots[now[name]][0 if now[f"{name}_is_pixel"] else pixel, lane] if not is_left_out else 0
                for name, is_left_out in (("first", False), ("second", is_unary))
            )
            if now["code"] == Opcode.WRITE:
                row, column = divmod(pixel, columns)
                place = (row * (now["second"] + 1) + now["target"]) * columns + column
                byte = first >> 8 * now["shift"] & 0xFF
                outputs[place, lane] = signed(byte ^ (0x80 if now["rounding"] else 0), 8)
                continue
            constant = int(constants[now["constant"], lane]) if len(constants) else 0
            result[pixel, lane] = value = calculated(now, first, second, constant, lookups)
            assert -HALF <= value < HALF, "results fit the values of the unit"
        if now["code"] != Opcode.WRITE:
            slots[now["target"]] = result
    return outputs


def constant_word(value: int, shift: int = 0) -> int:
    return value % (1 << VALUE_BITS) | shift << VALUE_BITS


class RandomProgram:
    """Random program of instructions whose results fit, with the values of its input slots.

    Parameters
    ----------
    inputs : list of ndarray
        Values of the input slots, ``(pixels or 1, LANES)``.
    """

    def __init__(
        self,
        random: Random,
        inputs: list[np.ndarray],
        count: int,
        lookups: int,
        most_constants: int,
        *,
        float_sums: bool,
    ):
        self.words: list[int] = []
        self.constants = np.zeros((0, LANES), object)
        self.lookups = [random.randint(-HALF, HALF - 1) for _ in range(lookups)]
        self._random, self._most_constants = random, most_constants
        absent = {Opcode.WRITE} | ({Opcode.LOOK_UP} if not lookups else set())
        self._codes = [code for code in Opcode if code not in absent and (float_sums or code != Opcode.ADD_FLOAT)]
        slots = dict(enumerate(inputs))
        self.num_slots = len(inputs) + 2
        self._pixels = {slot for slot, values in slots.items() if len(values) == 1}
        while len(self.words) < count:
            word = self._random_word(slots)
            trial = {slot: values.copy() for slot, values in slots.items()}
            try:
                run([word], trial, self.constants, self.lookups or [0], 1)
            except AssertionError:
                continue
            slots = trial
            self._pixels -= {fields(word)["target"]}
            self.words.append(word)
        planes = random.randint(1, 4)
        for row in range(planes):
            first = random.choice([slot for slot in slots if slot not in self._pixels])
            self.words.append(
                instruction_word(
                    code=Opcode.WRITE,
                    first=first,
                    second=planes - 1,
                    target=row,
                    shift=random.randrange(4),
                    rounding=random.randrange(2),
                )
            )

    def _random_word(self, slots: dict[int, np.ndarray]) -> int:
        random = self._random
        first, second = random.choice(list(slots)), random.choice(list(slots))
        code = random.choice(self._codes)
        target = random.choice([slot for slot in range(self.num_slots) if slot not in self._pixels])
        extra = {"second_is_constant": 0}
        if random.random() < 0.5 and len(self.constants) < self._most_constants:
            reach = 1 << random.randint(1, FACTOR_BITS - 1 if code == Opcode.MULTIPLY else VALUE_BITS - 2)
            row = [constant_word(random.randint(-reach, reach - 1), random.randint(20, 50)) for _ in range(LANES)]
            self.constants = np.array([*self.constants, row], object)
            extra = {"second_is_constant": 1, "constant": len(self.constants) - 1}
            extra["shift_is_constant"] = random.randrange(2)
        return instruction_word(
            code=code,
            first=first,
            first_is_pixel=first in self._pixels,
            second=second,
            second_is_pixel=second in self._pixels,
            target=target,
            shift=random.choice((0, random.randint(0, 30), random.randint(20, 50))),
            rounding=random.randrange(3),
            base=random.randrange(1 << 11),
            **extra,
        )


def byte_beats(values: np.ndarray, size: int, *, is_signed: bool) -> Iterator[np.ndarray]:
    """Yield the stored bytes of values ``(pixels, LANES)``, the highest first, as sums of 8 bits."""
    for place in reversed(range(size)):
        flips = place < size - 1 or not is_signed
        yield np.vectorize(
            lambda value, place=place, flips=flips: signed((int(value) >> 8 * place & 0xFF) ^ 0x80 * flips, 8)
        )(values)
