"""The weights of a convolution, and what planning asks of them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from functools import cached_property


class Weights:
    """Integers that don't change, and what follows from all of them; that is computed once, when it is asked for.

    All configurations of a layer share one object: planning makes hundreds of them, and a layer may have millions of
    weights. Two objects are equal if their weights are.

    Parameters
    ----------
    values : iterable of int
        As they lie in the model, ``(M, C // groups, Kh, Kw)``, flat in row-major order. Bytes are taken as C integers.
    """

    def __init__(self, values: Iterable[int]):
        self._array = array("i", values)

    @cached_property
    def values(self) -> memoryview:
        """The integers, to be read only."""
        return memoryview(self._array).toreadonly()

    def __getstate__(self) -> dict[str, object]:
        """Without the view, which can't be pickled."""
        return {name: value for name, value in vars(self).items() if name != "values"}

    @cached_property
    def extremes(self) -> tuple[int, int]:
        """The least and the greatest weight."""
        different = set(self._array)
        return min(different), max(different)

    @cached_property
    def _sums(self) -> dict[int, tuple[tuple[int, int], ...]]:
        return {}

    def sums(self, channels: int) -> tuple[tuple[int, int], ...]:
        """Of the weights of each of so many output channels the sum of the negative and that of the positive ones."""
        if channels not in self._sums:
            size = len(self) // channels
            parts = [self._array[first : first + size] for first in range(0, size * channels, size)]
            totals = [(sum(part), sum(map(abs, part))) for part in parts]
            self._sums[channels] = tuple(((total - size) // 2, (total + size) // 2) for total, size in totals)
        return self._sums[channels]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of them, as C integers."""
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
    """Weights of which no more is known than how many and how large they are. Whoever asks for more gets an error.

    Parameters
    ----------
    count : int
    extremes : tuple of int
        The least and the greatest.
    """

    def __init__(self, count: int, extremes: tuple[int, int]):
        self._count, self._extremes = count, extremes

    @property
    def values(self) -> memoryview:
        raise AttributeError("nothing is known of these weights but their bounds")

    @property
    def extremes(self) -> tuple[int, int]:
        return self._extremes

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(repr((self._count, self._extremes)).encode()).digest()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{self._count} weights from {self._extremes[0]} to {self._extremes[1]}>"
