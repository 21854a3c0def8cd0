"""Polynomials over bits, with their value ranges, which describe words exactly in the proof method ``algebra``.

A bit is 0 or 1, so that its square is itself, and every polynomial is linear in each bit. Coefficients are multiples of
``2**-64``: the upper bits of a word are the word, less its lower bits, divided by a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Monomial = frozenset[int]
"""Type of a product of bits: the set of the bits' indices."""

FRACTION = 64
#: Stored coefficient of the value 1; all coefficients are stored as integers, multiplied by ``2**64``.
ONE = 1 << FRACTION
_NO_BITS: Monomial = frozenset()
"""Set of no bits: the monomial of the constant term."""
#: Maximum number of bits to evaluate all values of, to find the range of a polynomial.
MAX_BITS = 17
#: Maximum number of bits of one factor in products of two words, to evaluate all its values.
MAX_FACTOR_BITS = 12


@dataclass(frozen=True)
class Polynomial:
    """Integer polynomial over bits, whose value is known exactly, or modulo a power of two.

    Parameters
    ----------
    terms : dict of frozenset to int
        Coefficients other than 0, multiplied by `ONE`, by monomial. A monomial is the set of the indices of its bits.
    modulus : int, optional
        Power of two, multiplied by `ONE`, up to whose multiples the value is known; 0 if the value is exact.
    """

    terms: Mapping[Monomial, int]
    modulus: int = 0

    @classmethod
    def constant(cls, value: int) -> Polynomial:
        """Return the constant `Polynomial` of an integer."""
        return cls({_NO_BITS: value * ONE} if value else {})

    def plus(self, other: Polynomial, factor: int = ONE) -> Polynomial:
        """Return a `Polynomial`: the sum of this polynomial and ``other`` scaled by ``factor / ONE``.

        Raises
        ------
        ArithmeticError
            If a coefficient is not a multiple of ``2**-64``.
        """
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total = terms.get(monomial, 0) + _exact(coefficient * factor)
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        scaled = _exact(other.modulus * (factor & -factor)) if factor else 0
        return Polynomial(terms, _coarser(self.modulus, scaled))

    def times(self, other: Polynomial) -> Polynomial:
        """Return a `Polynomial`: the product of two polynomials.

        Raises
        ------
        ArithmeticError
            If one of them is not exact, so that the product is not known.
        """
        if self.modulus or other.modulus:
            raise ArithmeticError("a factor is known only up to multiples of a power of two")
        terms: dict[Monomial, int] = {}
        for one, of_one in self.terms.items():
            for two, of_two in other.terms.items():
                both = one | two
                terms[both] = terms.get(both, 0) + _exact(of_one * of_two)
        return Polynomial({monomial: value for monomial, value in terms.items() if value})

    def modulo(self, modulus: int) -> Polynomial:
        """Return the same `Polynomial`, with a value known only modulo ``modulus / ONE``."""
        return Polynomial(self.terms, _coarser(self.modulus, modulus))

    def remainders(self, modulus: int) -> Iterator[Polynomial]:
        """Yield two exact polynomials (`Polynomial`) that equal this one modulo ``modulus / ONE``.

        Their coefficients are remainders: first those with the coefficients' signs, then the remainders nearest to 0.
        """
        half = modulus >> 1
        for remainder in (
            lambda value: abs(value) % modulus * (1 if value > 0 else -1),
            lambda value: (value + half) % modulus - half,
        ):
            terms = {bits: remainder(value) for bits, value in self.terms.items()}
            yield Polynomial({bits: value for bits, value in terms.items() if value})

    def is_multiple(self, modulus: int) -> bool:
        """Return whether all coefficients, and so the value for all bits, are multiples of ``modulus / ONE``."""
        known = not self.modulus or self.modulus >= modulus
        return known and all(value % modulus == 0 for value in self.terms.values())

    @property
    def range(self) -> tuple[int, int]:
        """Pair: lower and upper bound of the integer value over all values of the bits; exact if products are few."""
        low = high = self.terms.get(_NO_BITS, 0)
        for group in _groups(self.terms):
            smallest, largest = _range_of_group(group)
            low, high = low + smallest, high + largest
        return -(-low // ONE), high // ONE


def _exact(product: int) -> int:
    """Return a scaled product of two coefficients; ArithmeticError if it is not a multiple of ``2**-64``.

    Raises
    ------
    ArithmeticError
        If it is not a multiple of ``2**-64``.
    """
    if product & ONE - 1:
        raise ArithmeticError("a coefficient is too small")
    return product >> FRACTION


def _coarser(one: int, other: int) -> int:
    """Return the modulus (an integer) of a sum, the smaller of its two addends' moduli; 0 stands for an exact value."""
    return min(one, other) if one and other else one or other


def _groups(terms: Mapping[Monomial, int]) -> Iterator[dict[Monomial, int]]:
    """Yield groups of terms (coefficients by monomial) that share no bit, so that the groups' value ranges add up."""
    joined = {bit for monomial in terms if len(monomial) > 1 for bit in monomial}
    groups: list[tuple[Monomial, dict[Monomial, int]]] = []
    for monomial, coefficient in terms.items():
        if joined.isdisjoint(monomial):
            if monomial:
                yield {monomial: coefficient}
            continue
        bits, members, separate = monomial, {monomial: coefficient}, []
        for other, group in groups:
            if bits.isdisjoint(other):
                separate.append((other, group))
            else:
                bits |= other
                members |= group
        groups = [*separate, (bits, members)]
    for _, members in groups:
        yield members


def _range_of_group(terms: Mapping[Monomial, int]) -> tuple[int, int]:
    """Return a pair: the smallest and largest value of a sum of terms over all values of their bits."""
    if len(terms) == 1:
        (value,) = terms.values()
        return min(value, 0), max(value, 0)
    bits = {bit: index for index, bit in enumerate(sorted({bit for monomial in terms for bit in monomial}))}
    unit = math.gcd(*terms.values())
    key = sorted((tuple(sorted(bits[bit] for bit in monomial)), value // unit) for monomial, value in terms.items())
    low, high = _range_of_terms(tuple(key), len(bits))
    return low * unit, high * unit


@lru_cache(maxsize=1 << 14)
def _range_of_terms(terms: tuple[tuple[tuple[int, ...], int], ...], count: int) -> tuple[int, int]:
    """Return a pair: bounds of the value of terms (bit indices, coefficient) over ``count`` bits, exact if feasible."""
    values = [value for _, value in terms]
    if sum(map(abs, values)) < 1 << 62:
        first = _two_sides(terms, count)
        if first is not None and len(first) <= MAX_FACTOR_BITS:
            return _range_of_products(terms, first)
        if count <= MAX_BITS:
            return _range_by_enumeration(terms, count)
    return sum(value for value in values if value < 0), sum(value for value in values if value > 0)


def _two_sides(terms: tuple[tuple[tuple[int, ...], int], ...], count: int) -> list[int] | None:
    """Return a list: the smaller of two sets of bits, with no term holding two bits of one; ``None`` if none exist."""
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for bits, _ in terms:
        if len(bits) > 2:
            return None
        for bit in bits:
            neighbours[bit].update(set(bits) - {bit})
    side = {0: False}
    ahead = [0]
    while ahead:
        bit = ahead.pop()
        for other in neighbours[bit]:
            if side.setdefault(other, not side[bit]) == side[bit]:
                return None
            if other not in ahead and any(third not in side for third in neighbours[other]):
                ahead.append(other)
    if len(side) != count or any(side[bit] == side[other] for bit in range(count) for other in neighbours[bit]):
        return None
    sides = [[bit for bit in range(count) if side[bit] == which] for which in (False, True)]
    return min(sides, key=len)


def _range_of_products(terms: tuple[tuple[tuple[int, ...], int], ...], first: list[int]) -> tuple[int, int]:
    """Return a pair: the smallest and largest value of terms that are products of a bit in ``first`` and another bit.

    For each value of the bits in ``first``, every other bit has a coefficient, and is best chosen by its sign.
    """
    rows = {bit: row for row, bit in enumerate(first)}
    others = sorted({bit for bits, _ in terms for bit in bits} - set(first))
    columns = {bit: column for column, bit in enumerate(others)}
    matrix = np.zeros((len(first) + 1, len(others) + 1), np.int64)
    for bits, value in terms:
        row = next((rows[bit] for bit in bits if bit in rows), len(first))
        column = next((columns[bit] for bit in bits if bit in columns), len(others))
        matrix[row, column] += value
    choices = np.arange(1 << len(first))[:, None] >> np.arange(len(first)) & 1
    chosen = np.concatenate([choices, np.ones((len(choices), 1), np.int64)], axis=1) @ matrix
    alone, coefficients = chosen[:, -1], chosen[:, :-1]
    low = alone + np.minimum(coefficients, 0).sum(axis=1)
    high = alone + np.maximum(coefficients, 0).sum(axis=1)
    return int(low.min()), int(high.max())


def _range_by_enumeration(terms: tuple[tuple[tuple[int, ...], int], ...], count: int) -> tuple[int, int]:
    """Return a pair: the smallest and largest value of terms, by evaluating all values of ``count`` bits."""
    index = np.arange(1 << count)
    values = [(index >> bit & 1).astype(bool) for bit in range(count)]
    total = np.zeros(1 << count, np.int64)
    for bits, value in terms:
        total += value * np.logical_and.reduce([values[bit] for bit in bits])
    return int(total.min()), int(total.max())
