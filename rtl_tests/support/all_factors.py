"""A search over all unroll factors of a small network, without the planner's searches and formulas.

No composed schedule has an interval below the cycles of its slowest layer. So the shortest interval that some factors
within the slices allow their slowest layer is a bound for every plan, whatever the widths of its FIFOs. Wider FIFOs
only take more slices, of requantisers. Formulas are those of docs/explanation/layers.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import product
from math import inf

from hwgen.network.graph import Network
from hwgen.network.ops import Add, Concat, Conv, Copy, Lookup, MaxPool, Op, Upsample

#: Greatest number of output pixels per cycle.
MAX_PIXELS = 16


def over(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


class AllFactors:
    """All unroll factors of a network whose products are made in DSP slices, one multiply-add per slice.

    Parameters
    ----------
    network : Network
    finishes : dict of str to int
        DSP slices of each convolution's requantiser, for each channel that is finished per cycle.
    """

    def __init__(self, network: Network, finishes: dict[str, int]):
        self.network, self._finishes = network, finishes
        self._layers = list(network.layers)
        self._index = {layer.name: index for index, layer in enumerate(self._layers)}

    def choices(self, layer: Op, pixels: int) -> Iterator[tuple[int, int, int]]:
        """Yield cycles of all windows, input beats of a pixel, and slices of each choice with ``pixels`` per cycle."""
        groups = layer.output_height * over(layer.output_width, pixels)
        if isinstance(layer, Conv):
            for tn, tm, tk in product(*(range(1, size + 1) for size in (layer.channels, layer.outputs, layer.taps))):
                folds = over(layer.channels, tn)
                steps = folds * over(layer.taps, tk)
                finished = over(tm, steps)
                slices = tn * tm * tk * pixels + self._finishes[layer.name] * finished * pixels
                yield groups * over(layer.outputs, tm) * steps, folds, slices
            return
        for tn in range(1, max(source.channels for source in layer.inputs) + 1):
            sources = layer.inputs if isinstance(layer, Concat) else layer.inputs[:1]
            folds = sum(over(source.channels, tn) for source in sources)
            for tk in range(1, layer.taps + 1):
                yield groups * folds * over(layer.taps, tk), folds, 0

    @cached_property
    def _tables(self) -> list[dict[int, list[tuple[int, int, int]]]]:
        """For each layer and number of pixels: its choices, but those that another one equals or beats in all."""
        tables = []
        for layer in self._layers:
            assert isinstance(layer, Add | Concat | Conv | Copy | Lookup | MaxPool | Upsample), layer
            table = {}
            for pixels in range(1, min(MAX_PIXELS, layer.output_width) + 1):
                kept: list[tuple[int, int, int]] = []
                for choice in sorted(set(self.choices(layer, pixels))):
                    if not any(all(a <= b for a, b in zip(other, choice, strict=True)) for other in kept):
                        kept.append(choice)
                table[pixels] = kept
            tables.append(table)
        return tables

    @cached_property
    def intervals(self) -> list[int]:
        """All cycles that some layer can take, by its windows or its input beats, rising."""
        found = set()
        for layer, table in zip(self._layers, self._tables, strict=True):
            for cycles, beats, _ in {choice for choices in table.values() for choice in choices}:
                found.add(cycles)
                found |= {self._beats(layer, beats, pixels) for pixels in range(1, layer.inputs[0].width + 1)}
        return sorted(found)

    @staticmethod
    def _beats(layer: Op, beats: int, pixels: int) -> int:
        return layer.inputs[0].height * over(layer.inputs[0].width, pixels) * beats

    def fewest(self, interval: int) -> float:
        """Return the fewest slices with which each layer takes at most ``interval`` cycles; infinite if none do.

        Layer by layer, the fewest slices are kept for each combination of the pixels of maps that are still to be read.
        """
        best: dict[tuple[int, ...], float] = {(): 0}
        last = [self._last_reader(layer.name) for layer in self._layers]
        for index, (layer, edges) in enumerate(zip(self._layers, self.network.edges, strict=True)):
            before = [other for other in range(index) if last[other] >= index]
            after = [other for other in range(index + 1) if last[other] > index]
            following: dict[tuple[int, ...], float] = {}
            for state, slices in best.items():
                known = dict(zip(before, state, strict=True))
                sources = [known[self._index[edge]] for edge in edges if edge in self._index]
                for own in self._tables[index]:
                    if not isinstance(layer, Conv | MaxPool) and {*sources} - {own}:
                        continue  # reads as many pixels per cycle as it writes
                    cost = self._cheapest(index, own, sources[0] if edges[0] in self._index else own, interval)
                    key = tuple({**known, index: own}[other] for other in after)
                    following[key] = min(following.get(key, inf), slices + cost)
            best = following
        return min(best.values(), default=inf)

    def _cheapest(self, index: int, pixels: int, incoming: int, interval: int) -> float:
        """Return the fewest slices of a layer within an interval, with ``incoming`` pixels per input beat."""
        layer = self._layers[index]
        return min(
            (
                slices
                for cycles, beats, slices in self._tables[index][pixels]
                if cycles <= interval and self._beats(layer, beats, incoming) <= interval
            ),
            default=inf,
        )

    def _last_reader(self, name: str) -> int:
        readers = [index for index, edges in enumerate(self.network.edges) if name in edges]
        return max(readers, default=-1)

    def shortest(self, slices: int) -> int:
        """Return the shortest interval of the slowest layer that some factors within ``slices`` have."""
        return next(interval for interval in self.intervals if self.fewest(interval) <= slices)
