"""Tile buffers of small pyramids, whose proofs are tested: shapes by name."""

from __future__ import annotations

from collections.abc import Sequence

from small_circuits import AROUND, POOL, line_buffer

from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.spans import TiledAxis
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool
from hwgen.options import RECOMPUTE, REUSE
from hwgen.templates.pyramid_tiles import axes


def _axes(
    size: tuple[int, int], windows: Sequence[Window], tip: tuple[int, int], overlap: str
) -> list[tuple[TiledAxis, TiledAxis]]:
    """Return rows and columns of each layer's tiles, of a group of layers with these windows over a map of ``size``."""
    layers = []
    for window in windows:
        after = window.output_size(*size)
        maps = [FeatureMap(channels=1, height=height, width=width, type=UINT8) for height, width in (size, after)]
        layers.append(MaxPool(name=f"pool{len(layers)}", input=maps[0], output=maps[1], window=window))
        size = after
    return axes(layers, tip, overlap)


def tile_buffer(tip=(2, 2), overlap=REUSE, behind=(), **options) -> PyramidBufferConfig:
    """Return the tile buffer of the first of a group of layers.

    Parameters
    ----------
    tip : tuple of int, optional
        Rows and columns of the group's output in each pyramid.
    overlap : str, optional
        What becomes of pixels that neighbouring tiles share.
    behind : sequence of Window, optional
        Windows of the layers behind.
    **options
        Parameters of the layer's window, as of `line_buffer`.
    """
    window = line_buffer(**options)
    first = Window(kernel=window.kernel, stride=window.stride, padding=window.padding, dilation=window.dilation)
    rows, columns = _axes((window.input.height, window.input.width), (first, *behind), tip, overlap)[0]
    return PyramidBufferConfig(window=window, rows=rows, columns=columns)


_POOL = Window(kernel=(2, 2), stride=(2, 2))

#: Tile buffers by name: what differs from windows of 2 x 2 on a map of 4 x 4, in pyramids of 2 x 2, with reuse.
TILES = {
    "plain": {},
    "one tile": {"tip": (3, 3)},
    "tiles of a window": {"tip": (1, 1)},
    "tiles of rows": {"tip": (1, 3)},
    "tiles of columns": {"tip": (3, 1)},
    "recompute": {"overlap": RECOMPUTE},
    "recompute, window behind": {"size": (5, 5), "overlap": RECOMPUTE, "behind": (_POOL,), "tip": (1, 1)},
    "reuse, window behind": {"size": (5, 5), "behind": (_POOL,), "tip": (1, 1)},
    "1 x 1": {"size": (3, 3), "kernel": (1, 1)},
    "3 x 2": {"size": (5, 3), "kernel": (3, 2), "tip": (2, 1)},
    "3 x 3": {"size": (5, 5), "kernel": (3, 3)},
    "three bits": {"size": (3, 3), "bits": 3, "signed": True, "tip": (1, 2)},
    "two lanes": {"size": (3, 3), "channels": 2, "lanes": 2, "bits": 2, "tip": (1, 2)},
    "two folds": {"size": (3, 3), "channels": 2, "tip": (1, 2)},
    "three folds": {"size": (3, 3), "channels": 3, "output_folds": 2, "tip": (2, 1)},
    "padding": AROUND,
    "padding, recompute": {**AROUND, "overlap": RECOMPUTE},
    "padding of a value": {**AROUND, "size": (3, 3), "bits": 2, "signed": True, "pad_value": -2},
    "padding at the top": {"padding": (1, 0, 0, 0)},
    "padding at the right": {"padding": (0, 0, 0, 1)},
    "padding at the bottom": {"padding": (0, 0, 1, 0), "tip": (1, 2)},
    "tiles in the padding": {"size": (2, 2), "kernel": (2, 2), "padding": (2, 2, 2, 2), "tip": (1, 1)},
    "flags of padding": {**AROUND, "size": (3, 3), "inside": True},
    "padding, three taps": {**AROUND, "taps": 3},
    "padding, one tap": {**AROUND, "size": (3, 3), "taps": 1},
    "four of nine taps": {**AROUND, "size": (3, 3), "taps": 4},
    "one of four taps": {"taps": 1},
    "two of four taps": {"taps": 2},
    "stride": {"size": (5, 5), "kernel": (3, 3), "stride": (2, 2), "tip": (1, 1)},
    "stride, padding": {**AROUND, "size": (5, 5), "stride": (2, 2)},
    "stride over pixels": {"size": (5, 5), "kernel": (1, 1), "stride": (2, 2)},
    "stride down": {"stride": (2, 1), "tip": (1, 2)},
    "pool": {**POOL, "channels": 2, "output_folds": 2, "tip": (1, 2)},
    "pool, one tap": {**POOL, "channels": 2, "output_folds": 2, "taps": 1, "tip": (1, 1)},
    "dilation": {"size": (4, 5), "dilation": (2, 2)},
    "dilation, padding": {**AROUND, "size": (5, 5), "padding": (2, 2, 2, 2), "dilation": (2, 2)},
    "dilation, three taps": {"kernel": (3, 3), "size": (5, 6), "dilation": (2, 2), "taps": 3, "tip": (1, 1)},
    "groups": {"size": (3, 3), "channels": 4, "groups": 2, "output_folds": 4, "tip": (1, 2)},
    "channelwise": {**AROUND, "size": (3, 3), "channels": 3, "output_folds": 3, "channelwise": True},
    "two pixels a beat": {"size": (3, 5), "beat_pixels": 2, "tip": (1, 2)},
    "two pixels a beat, recompute": {"size": (3, 5), "beat_pixels": 2, "tip": (1, 2), "overlap": RECOMPUTE},
    "two pixels a beat, padding": {**AROUND, "size": (3, 6), "beat_pixels": 2, "tip": (2, 2)},
    "three pixels a beat": {"size": (3, 7), "beat_pixels": 3, "tip": (1, 3), "channels": 2},
    "block RAM": {"size": (1, 36), "kernel": (1, 2), "tip": (1, 35), "channels": 2},
    "block RAM with registers": {"size": (1, 5), "kernel": (1, 5), "padding": (0, 0, 0, 252), "tip": (1, 253)},
}
