"""Accumulators and float32 factors whose product lies next to a tie, as arrays of pairs.

A pair is made backwards: an accumulator and a tie ask for a factor, and the nearest one that a float32 can hold gives a
product so close to the tie that rounding it to float32 matters, or just doesn't.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIGNIFICAND = 24


@dataclass(frozen=True)
class Pairs:
    """Accumulators, int64 ``(n,)``, and significands and shifts of the factors they meet."""

    totals: np.ndarray
    significands: np.ndarray
    shifts: np.ndarray

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def factors(self) -> np.ndarray:
        """float32, exactly."""
        return np.ldexp(self.significands.astype(np.float32), -self.shifts.astype(np.int32))

    def __getitem__(self, chosen: np.ndarray) -> Pairs:
        return Pairs(self.totals[chosen], self.significands[chosen], self.shifts[chosen])


def join(*many: Pairs) -> Pairs:
    fields = ([getattr(pairs, name) for pairs in many] for name in ("totals", "significands", "shifts"))
    return Pairs(*map(np.concatenate, fields))


def by_float32(pairs: Pairs) -> np.ndarray:
    """Return the products of the pairs in NumPy's float32, rounded to int64."""
    return np.rint(pairs.totals.astype(np.float32) * pairs.factors).astype(np.int64)


def beside(rng: np.random.Generator, count: int, bits: tuple[int, int], most: int = 256) -> Pairs:
    """Accumulators of ``bits[0]`` to ``bits[1]`` bits; ties from 1/2 to ``most``; both signs."""
    width = rng.integers(bits[0], bits[1] + 1, count)
    totals = rng.integers(1 << (width - 1), 1 << width)
    # Every binade is as likely as any other.
    reach = rng.integers(0, most.bit_length(), count)
    lower = np.minimum(rng.integers(1 << reach >> 1, 1 << reach), most - 1)
    # The factor is (2 * lower + 1) / (2 * total), between 2**23 and 2**24 once it is shifted.
    ratio = (2 * lower + 1) / (2 * totals)
    shifts = SIGNIFICAND - np.frexp(ratio)[1]
    significands = np.rint(np.ldexp(ratio, shifts)).astype(np.int64) + rng.choice([-1, 0, 0, 0, 0, 1], count)
    shifts = np.where(significands >> SIGNIFICAND, shifts - 1, shifts)
    significands = np.clip(significands, 1 << 23, (1 << 24) - 1)
    return Pairs(totals * rng.choice([-1, 1], count), significands, shifts.astype(np.int64))


def at_ends(rng: np.random.Generator, count: int, most: int = 256) -> Pairs:
    """Products exactly half a float32 step from a tie, above and below it; accumulators below 2**24."""
    totals, significands, shifts = [], [], []
    while len(totals) < count:
        lower = int(rng.integers(1, most))
        place = SIGNIFICAND - lower.bit_length()  # of 1/2 of a product of 25 bits: lower < 2**(25 - place)
        product = ((2 * lower + 1) << place) + int(rng.choice([-1, 1]))
        divisors = [odd for odd in range(3, 2000, 2) if product % odd == 0 and product // odd < 1 << SIGNIFICAND]
        if not divisors:
            continue
        odd = int(rng.choice(divisors))
        significand = product // odd
        zeros = SIGNIFICAND - significand.bit_length()
        more = int(rng.integers(0, SIGNIFICAND - odd.bit_length() + 1))
        totals.append(int(rng.choice([-1, 1])) * odd << more)
        significands.append(significand << zeros)
        shifts.append(place + 1 + zeros + more)
    return Pairs(np.array(totals), np.array(significands), np.array(shifts))
