"""Simplification of a network before the engine's compiler: layers that combine functions of one map become lookups."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap, Window
from hwgen.network.ops import Lookup, Op
from hwgen.network.ops.join import MAX_BITS


@lru_cache(maxsize=16)
def simplified(network: Network) -> Network:
    """Return an equivalent `Network` where each elementwise function of a single map is one `Lookup` layer.

    For example, the product of a map and its sigmoid, each quantised, is such a function, and so are a sum of a map
    with itself, and a lookup of another lookup's output. Functions that differ by channel stay several layers. A lookup
    that no layer reads any more is left out. Other layers keep their names.
    """
    functions = _Functions(network)
    layers, edges = [], []
    for layer, taken in zip(network.layers, network.edges, strict=True):
        layer, taken = functions.simplify(layer, taken)
        layers.append(layer)
        edges.append(taken)
    read = set(network.output_layers)
    kept = []
    for layer, taken in reversed([*zip(layers, edges, strict=True)]):
        if layer.name in read:
            kept.append((layer, taken))
            read.update(taken)
    layers, edges = (tuple(column) for column in zip(*reversed(kept), strict=True))
    return replace(network, layers=layers, edges=edges, outputs=network.output_layers)


class _Functions:
    """Finder of the maps that are elementwise functions of one other map, with the functions as tables."""

    def __init__(self, network: Network) -> None:
        self._maps: dict[str, FeatureMap] = network.maps
        self._tables: dict[str, tuple[str, np.ndarray]] = {}

    def simplify(self, layer: Op, edges: tuple[str, ...]) -> tuple[Op, tuple[str, ...]]:
        """Return a pair: a layer, or a lookup if its output depends on one map's values, and its inputs' names."""
        if layer.valuewise and all(edge in self._tables or self._is_narrow(self._maps[edge]) for edge in edges):
            sources = [self._source(edge) for edge in edges]
            roots = {root for root, _ in sources}
            if len(roots) == 1:
                (root,) = roots
                table = self._table(layer, [table for _, table in sources])
                self._tables[layer.name] = root, table
                if len(table) == 1 and edges != (root,) and self._is_narrow(layer.output):
                    return self._lookup(layer, root, table), (root,)
        return layer, edges

    @staticmethod
    def _is_narrow(feature_map: FeatureMap) -> bool:
        """Return whether a map's integer type has few enough bits for a lookup table with an entry for each value."""
        return feature_map.type.bits <= MAX_BITS

    def _source(self, edge: str) -> tuple[str, np.ndarray]:
        """Return a pair: name of the map that determines a map, and the function as a table ``(1 or C, 2**bits)``."""
        if edge in self._tables:
            return self._tables[edge]
        kind = self._maps[edge].type
        return edge, np.arange(kind.minimum, kind.maximum + 1)[None]

    @staticmethod
    def _table(layer: Op, tables: list[np.ndarray]) -> np.ndarray:
        """Return a layer's outputs as a table of the one map that determines its inputs, int64 ``(n, 2**bits)``.

        ``n`` is 1 if all channels have the same function, otherwise the number of channels.
        """
        channels = layer.output.channels if layer.by_channel else 1
        channels = max(channels, *(len(table) for table in tables))
        frames = [
            np.broadcast_to(table[:, None], (channels, 1, table.shape[1])).astype(source.type.dtype)
            for table, source in zip(tables, layer.inputs, strict=True)
        ]
        return layer.compute(*frames)[:, 0].astype(np.int64)

    def _lookup(self, layer: Op, root: str, table: np.ndarray) -> Lookup:
        """Return the `Lookup` layer with the given table that replaces a layer, reading the map ``root`` directly."""
        source = self._maps[root]
        return Lookup(name=layer.name, input=source, output=layer.output, window=Window(kernel=(1, 1)), table=table)
