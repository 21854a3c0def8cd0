"""Reuse buffers of small pyramids, whose proofs are tested: shapes by name."""

from __future__ import annotations

from small_circuits import AROUND
from small_tiles import TILES, tile_buffer

from hwgen.gateware.pyramid.reuse import PyramidReuseBufferConfig
from hwgen.network.maps import Window


def reuse_buffer(**options) -> PyramidReuseBufferConfig:
    """Return the reuse buffer of the first of a group of layers; ``options`` as of `tile_buffer`."""
    tiles = tile_buffer(**options)
    return PyramidReuseBufferConfig(input=tiles.window.input, rows=tiles.rows, columns=tiles.columns)


_POOL, _CONV = Window(kernel=(2, 2), stride=(2, 2)), Window(kernel=(3, 3), padding=(1, 1, 1, 1))

#: Shapes of `small_tiles.TILES` whose reuse buffers differ from each other.
_SHARED = (
    "plain", "one tile", "tiles of a window", "tiles of rows", "tiles of columns", "reuse, window behind", "3 x 2",
    "3 x 3", "three bits", "two lanes", "two folds", "three folds", "padding", "padding of a value",
    "padding at the top", "padding at the right", "padding at the bottom", "tiles in the padding", "stride",
    "stride, padding", "stride over pixels", "stride down", "dilation", "dilation, padding", "dilation, three taps",
    "groups", "channelwise", "two pixels a beat", "two pixels a beat, padding", "three pixels a beat", "block RAM",
)  # fmt: skip

#: Reuse buffers by name: what differs from windows of 2 x 2 on a map of 4 x 4, in pyramids of 2 x 2.
REUSE_BUFFERS = {
    **{name: TILES[name] for name in _SHARED},
    "two bits": {"bits": 2},
    "stride across": {"stride": (1, 2), "tip": (2, 1)},
    "two layers behind": {"size": (10, 10), "kernel": (3, 3), "behind": (_CONV, _POOL), "tip": (1, 1)},
    "padding, two layers behind": {**AROUND, "size": (8, 8), "behind": (_CONV, _POOL), "tip": (2, 1)},
    "five folds": {"size": (3, 3), "channels": 5, "tip": (1, 1)},
    "two lanes, two pixels a beat": {"size": (3, 5), "channels": 2, "lanes": 2, "beat_pixels": 2, "tip": (1, 2)},
    "four pixels a beat": {"size": (3, 9), "beat_pixels": 4, "tip": (2, 4)},
    "block RAM of rows": {"size": (4, 40), "kernel": (3, 3), "tip": (1, 38)},
    "block RAM of columns": {"size": (40, 4), "kernel": (3, 3), "tip": (38, 1)},
    "memory in a module": {"size": (3, 66), "channels": 8, "lanes": 8, "bits": 8, "tip": (1, 65)},
    "both bands in block RAM": {"size": (36, 36), "kernel": (3, 3), "tip": (33, 17)},
}
