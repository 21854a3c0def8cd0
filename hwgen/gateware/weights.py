"""Constant weights of a convolution, with the sums and extremes that planning needs."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import Any, TypeVar

Result = TypeVar("Result")
"""Type variable of a result that is computed once from a convolution's weights, and cached."""


class Weights:
    """Constant weights of a convolution, whose sums, extremes and digest are computed once, on demand.

    All configurations of a layer share one object, because planning makes hundreds of configurations and a layer can
    have millions of weights. Two objects are equal if their weights are equal.

    Parameters
    ----------
    values : iterable of int
        Weights of shape ``(M, C // groups, Kh, Kw)``, flat in row-major order. Bytes are read as C integers.
    """

    def __init__(self, values: Iterable[int]):
        self._array = array("i", values)

    @cached_property
    def values(self) -> memoryview:
        """Weights of the convolution as a flat, read-only view in row-major order."""
        return memoryview(self._array).toreadonly()

    def __getstate__(self) -> dict[str, object]:
        """Return a dict from name to attribute to pickle, without cached results and the view, which cannot be."""
        return {name: value for name, value in vars(self).items() if name not in ("values", "_results")}

    @cached_property
    def extremes(self) -> tuple[int, int]:
        """Smallest and largest weight of the convolution, a pair of integers."""
        different = set(self._array)
        return min(different), max(different)

    @cached_property
    def nonzero(self) -> bool:
        """Whether no weight of the convolution is 0."""
        return 0 not in self._array

    @cached_property
    def _sums(self) -> dict[int, tuple[tuple[int, int], ...]]:
        return {}

    def sums(self, channels: int) -> tuple[tuple[int, int], ...]:
        """Return a tuple of pairs, one per output channel: sum of its negative weights, sum of its positive weights.

        ``channels`` is the number of output channels.
        """
        if channels not in self._sums:
            size = len(self) // channels
            filters = [self._array[first : first + size] for first in range(0, size * channels, size)]
            totals = [(sum(weights), sum(map(abs, weights))) for weights in filters]
            self._sums[channels] = tuple(((total - size) // 2, (total + size) // 2) for total, size in totals)
        return self._sums[channels]

    def remembered(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the result cached for these weights under ``key``; if there is none, compute and cache it."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    @cached_property
    def _results(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def digest(self) -> bytes:
        """Bytes of the SHA-256 digest of the convolution's weights, written as C integers."""
        return hashlib.sha256(self._array).digest()

    def __len__(self) -> int:
        return len(self._array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Weights):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{len(self)} weights, SHA-256 {self.digest.hex()[:8]}>"


class Bounds(Weights):
    """Stand-in for the weights of a convolution that knows only their number, their extremes and whether any is 0.

    Parameters
    ----------
    count : int
        Number of weights.
    extremes : tuple of int
        Smallest and largest weight.
    nonzero : bool
        Whether no weight is 0.

    Raises
    ------
    AttributeError
        By ``values`` and everything that needs the weights themselves.
    """

    def __init__(self, count: int, extremes: tuple[int, int], nonzero: bool = False):
        self._count, self._extremes, self._nonzero = count, extremes, nonzero

    @property
    def values(self) -> memoryview:
        """Raise AttributeError, because a stand-in for a convolution's weights has no values."""
        raise AttributeError("nothing is known of these weights but their bounds")

    @property
    def extremes(self) -> tuple[int, int]:
        """Smallest and largest weight of the convolution, a pair, as given to the stand-in."""
        return self._extremes

    @property
    def nonzero(self) -> bool:
        """Whether no weight of the convolution is 0, as given to the stand-in."""
        return self._nonzero

    @property
    def digest(self) -> bytes:
        """Bytes of the SHA-256 digest of the stand-in's number of weights, extremes and flag for zeros."""
        known = (self._count, self._extremes, *((True,) if self._nonzero else ()))
        return hashlib.sha256(repr(known).encode()).digest()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{self._count} weights from {self._extremes[0]} to {self._extremes[1]}>"
