"""Order in which a search for unroll factors adds the layers of a group, and what it must remember between them.

Layers are coupled by the number of output pixels per cycle (``Tp``) of the layers that they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hwgen.templates.work import LayerWork

Pixels = tuple[int, ...]
"""State of a search: output pixels per cycle (``Tp``) of each layer whose output is still to be read."""


@dataclass(frozen=True)
class Step:
    """Step of a search, which adds one layer. Positions are indices of layers in the state (`Pixels`).

    Parameters
    ----------
    index : int
        Index of the layer that is added. Steps of equal positions are equal.
    source : int
        Position of the layer that it reads first; -1 if there is none.
    equal : tuple of int
        Positions of the layers that must have the same ``Tp``.
    read_later : tuple of int
        Positions of the layers that are still to be read afterwards, the added layer last.
    """

    index: int = field(compare=False)
    source: int
    equal: tuple[int, ...]
    read_later: tuple[int, ...]


class Sweep:
    """Order in which a search adds the layers of a group, and the layers that are still to be read at each step.

    Parameters
    ----------
    works : sequence of LayerWork
    """

    def __init__(self, works: Sequence[LayerWork]):
        self.works = tuple(works)

    @cached_property
    def steps(self) -> list[Step]:
        """Steps of the search, one per layer."""
        entries, unread, done = [], [], set()
        for index in self.order:
            before = index - self.works[index].back[0]
            source = unread.index(before) if before in unread else -1
            equal = tuple(at for at, layer in enumerate(unread) if self._alike[layer] == self._alike[index])
            done.add(index)
            unread.append(index)
            read_later = tuple(at for at, layer in enumerate(unread) if not self._readers[layer] <= done)
            entries.append(Step(index, source, equal, read_later))
            unread = [unread[position] for position in read_later]
        return entries

    @cached_property
    def order(self) -> list[int]:
        """Indices of the layers in the search's order, which greedily keeps few layers still to be read."""
        count = len(self.works)
        if all(readers <= {index + 1} for index, readers in enumerate(self._readers)):
            return list(range(count))
        before = [{index - back for back in work.back if back <= index} for index, work in enumerate(self.works)]
        order: list[int] = []
        done: set[int] = set()
        unread: list[int] = []

        def behind(index: int) -> int:
            """Return the number of independent ``Tp`` of the layers still to be read after layer ``index`` is added."""
            known = {*done, index}
            return len({self._alike[layer] for layer in (*unread, index) if not self._readers[layer] <= known})

        while len(order) < count:
            ready = [index for index in range(count) if index not in done and before[index] <= done]
            order.append(min(ready, key=lambda index: (behind(index), index)))
            done.add(order[-1])
            unread = [layer for layer in (*unread, order[-1]) if not self._readers[layer] <= done]
        return order

    @cached_property
    def _alike(self) -> list[int]:
        """Index, for each layer, of the first layer that must have the same ``Tp``, as other layers join their maps.

        Branches that meet are known to be equal before they meet, so that few combinations are examined.
        """
        first = list(range(len(self.works)))
        for index, work in enumerate(self.works):
            met = {first[index], *(first[index - back] for back in work.back[: work.in_step] if back <= index)}
            first = [min(met) if layer in met else layer for layer in first]
        return first

    @cached_property
    def _readers(self) -> list[set[int]]:
        """Set of the indices of the layers that read each layer's output, by index of layer."""
        readers: list[set[int]] = [set() for _ in self.works]
        for index, work in enumerate(self.works):
            for back in work.back:
                if back <= index:
                    readers[index - back].add(index)
        return readers
