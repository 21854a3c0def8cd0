"""Small components and designs whose proofs are tested: configurations, and shapes of buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from accelerators import size_buffers
from amaranth import unsigned
from graphs import normalisation
from programs import SMALL
from proofs import chain, wrapped_chain
from tiles import pools

from hwgen.gateware.average import FloatSumConfig, SumConfig
from hwgen.gateware.bias import AddBiasConfig
from hwgen.gateware.bus.lite import BankConfig
from hwgen.gateware.bus.registers import registers_of
from hwgen.gateware.bus.repack import Pieces, RepackConfig
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.fixed_point import (
    AddCircuit,
    ExtremumCircuit,
    FixedPointConfig,
    LimitsCircuit,
    MultiplyCircuit,
    ShiftCircuit,
    TableCircuit,
)
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.guard import GuardConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import LoadedMemory
from hwgen.gateware.load.loader import LoaderConfig
from hwgen.gateware.max_pool import MaxPoolConfig
from hwgen.gateware.multipliers import PLAIN
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.reuse import PyramidReuseBufferConfig
from hwgen.gateware.pyramid.spans import TiledAxis
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.rounding import to_float32
from hwgen.gateware.stream import BeatFormat, Port
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.gateware.unload import UnloadConfig
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.gateware.weights import Weights
from hwgen.gateware.whole_map import RunningSumConfig, WholeMapConfig
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import LRN, AveragePool, DepthToSpace, MaxPool, Op, Resample, Select
from hwgen.options import RECOMPUTE, REUSE
from hwgen.templates.compose import compose
from hwgen.templates.layers import with_buffers
from hwgen.templates.pyramid_tiles import axes
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll
from hwgen.verilog.emitted import ENGINE, engine_files, files

FIFO = FifoConfig(lanes=1, bits=2, signed=False, beats=3, depth=5)
DEEP_FIFO = FifoConfig(lanes=1, bits=2, signed=False, beats=3, depth=9, memory_in="block")
#: FIFO whose LUT RAM has more than 4,096 bits, and so a module of its own.
WIDE_FIFO = FifoConfig(lanes=9, bits=8, signed=False, beats=3, depth=64, memory_in="lut")
REGROUP = RegroupConfig(
    counts=(3, 2), lanes=3, output=BeatFormat(channels=5, height=1, width=2, lanes=4, bits=2, signed=False)
)
#: Width converter before a FIFO.
GATHER = RegroupConfig(
    counts=(2, 1, 2),
    lanes=2,
    output=BeatFormat(channels=5, height=1, width=2, lanes=3, bits=2, signed=False),
    always_ready=True,
)
GUARD = GuardConfig(beat=BeatFormat(channels=2, height=1, width=3, lanes=1, bits=2, signed=False), beats=6)
#: Guard of packets of several frames, of two beats each.
PACKETS = GuardConfig(
    beat=BeatFormat(channels=2, height=1, width=1, lanes=1, bits=2, signed=False), beats=2, packets=True
)
UNLOAD = UnloadConfig(channels=5, lanes_in=3, lanes_out=1, shape=unsigned(2))

_BEAT = BeatFormat(channels=2, height=1, width=2, lanes=1, bits=2, signed=False)
JOIN = JoinConfig(inputs=(_BEAT, _BEAT))
UPSAMPLING = UpsampleConfig(input=_BEAT, factors=(2, 3))


def repack(takes, gives, bits=2):
    sides = [Pieces(sizes=sizes, count=count, final=final) for sizes, count, final in (takes, gives)]
    return RepackConfig(shape=unsigned(bits), takes=sides[0], gives=sides[1])


#: Frames of 5 values: 2, 1 and 2 come, 4 and 1 leave.
REPACK = repack(((2, 1), 3, 2), ((4,), 2, 1))
_IN = BeatFormat(channels=1, height=1, width=6, lanes=1, bits=8, signed=False)
_OUT = BeatFormat(channels=3, height=1, width=1, lanes=2, bits=5, signed=False)
SHELL = ShellConfig(
    inputs=ends_of([Port("i", _IN, _IN.raster)], "s_axis"), outputs=ends_of([Port("o", _OUT, _OUT.raster)], "m_axis")
)
LOADER = LoaderConfig(digest=0x1234_5678_9ABC_DEF0, words=3)
#: Link of run-time weights, with words of two parts and of one.
LINK = DistributeConfig(
    stores=(LoadedMemory(name="weights", width=40, depth=3), LoadedMemory(name="bias", width=20, depth=2))
)
#: Link whose widest word fills its parts, so that the assembled word and the memory's data are one register.
FULL_LINK = DistributeConfig(
    stores=(LoadedMemory(name="weights", width=64, depth=3), LoadedMemory(name="bias", width=20, depth=2))
)
BANK = BankConfig(registers=registers_of(("s_axis",), ("m_axis",), 5))


def line_buffer(
    size=(4, 4), channels=1, lanes=1, bits=1, signed=False, beat_pixels=1, groups=1, kernel=(2, 2), rows=None, **options
):
    """Return a line buffer of a small map; parameters that are not given are those of a plain walk."""
    source = BeatFormat(
        channels=channels,
        height=size[0],
        width=size[1],
        lanes=lanes,
        bits=bits,
        signed=signed,
        pixels=beat_pixels,
        groups=groups,
    )
    dilation = options.get("dilation", (1, 1))
    given = {
        "stride": (1, 1),
        "padding": (0, 0, 0, 0),
        "pad_value": 0,
        "taps": kernel[0] * kernel[1],
        "output_folds": 1,
        "channelwise": False,
        "rows": rows or min((kernel[0] - 1) * dilation[0] + 1, size[0]),
        **options,
    }
    return LineBufferConfig(input=source, kernel=kernel, **given)


AROUND = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
POOL = {"stride": (2, 2), "channelwise": True}
#: Shapes by name: what differs from a window of 2 x 2 on a map of 4 x 4 with one channel of one bit.
GRID = {
    "plain": {},
    "one pixel": {"size": (1, 1), "kernel": (1, 1)},
    "one row": {"size": (1, 5), "kernel": (1, 3)},
    "one column": {"size": (5, 1), "kernel": (3, 1)},
    "1 x 1": {"size": (3, 3), "kernel": (1, 1)},
    "1 x 1, folds": {"size": (2, 3), "kernel": (1, 1), "channels": 3, "output_folds": 2},
    "2 x 3": {"size": (3, 5), "kernel": (2, 3)},
    "3 x 2": {"size": (5, 3), "kernel": (3, 2)},
    "3 x 3": {"size": (4, 5), "kernel": (3, 3)},
    "window of the map": {"size": (3, 3), "kernel": (3, 3)},
    "one row more": {"rows": 3},
    "two rows more": {"rows": 4},
    "ring of more than a frame": {"size": (3, 3), "rows": 5},
    "three bits": {"size": (3, 3), "bits": 3, "signed": True},
    "two lanes": {"size": (3, 3), "channels": 2, "lanes": 2, "bits": 2},
    "two folds": {"size": (3, 3), "channels": 2},
    "three folds": {"size": (3, 3), "channels": 3, "output_folds": 2},
    "a lane too many": {"size": (3, 3), "channels": 3, "lanes": 2, "bits": 2},
    "four output folds": {"size": (3, 3), "output_folds": 4},
    "padding": AROUND,
    "padding of a value": {**AROUND, "size": (3, 3), "bits": 2, "signed": True, "pad_value": -2},
    "padding at the top": {"padding": (1, 0, 0, 0)},
    "padding at the left": {"padding": (0, 1, 0, 0)},
    "padding at the bottom": {"padding": (0, 0, 1, 0)},
    "padding at the right": {"padding": (0, 0, 0, 1)},
    "padding wider than the map": {"size": (2, 2), "kernel": (3, 3), "padding": (2, 2, 2, 2)},
    "a row cropped at the top": {"padding": (-1, 0, 0, 0)},
    "a column cropped at the left": {"padding": (0, -1, 0, 0)},
    "a row cropped at the top, padding at the left": {"padding": (-1, 1, 0, 0)},
    "a row cropped at the top, four of nine taps": {"kernel": (3, 3), "taps": 4, "padding": (-1, 0, 0, 0)},
    "padding, three taps": {**AROUND, "taps": 3},
    "padding, one tap": {**AROUND, "size": (3, 3), "taps": 1},
    "four of nine taps": {**AROUND, "size": (3, 3), "taps": 4},
    "two of nine taps": {"kernel": (3, 3), "taps": 2},
    "one of four taps": {"taps": 1},
    "two of four taps": {"taps": 2},
    "stride": {"stride": (2, 2)},
    "stride, padding": {**AROUND, "size": (5, 5), "stride": (2, 2)},
    "stride down": {"stride": (2, 1)},
    "stride across": {"stride": (1, 2), "rows": 3},
    "stride over pixels": {"size": (5, 5), "kernel": (1, 1), "stride": (2, 2)},
    "pool": {**POOL, "channels": 2, "output_folds": 2},
    "pool, one tap": {**POOL, "channels": 2, "output_folds": 2, "taps": 1},
    "pool that overlaps": {"kernel": (3, 3), "stride": (2, 2), "size": (5, 5), "channelwise": True},
    "dilation": {"size": (4, 5), "dilation": (2, 2)},
    "dilation down": {"size": (5, 4), "dilation": (3, 1)},
    "dilation, padding": {**AROUND, "size": (5, 5), "padding": (2, 2, 2, 2), "dilation": (2, 2)},
    "dilation, three taps": {"kernel": (3, 3), "size": (5, 5), "dilation": (2, 2), "taps": 3},
    "groups": {"size": (3, 3), "channels": 4, "groups": 2, "output_folds": 4},
    "groups of two lanes": {"size": (3, 3), "channels": 4, "lanes": 2, "groups": 2, "output_folds": 2},
    "channelwise": {**AROUND, "size": (3, 3), "channels": 3, "output_folds": 3, "channelwise": True},
    "two windows": {"pixels": 2, "kernel": (2, 2)},
    "two windows, padding": {**AROUND, "pixels": 2},
    "two windows, the last alone": {"size": (3, 4), "pixels": 2},
    "two pixels a beat": {"beat_pixels": 2},
    "two pixels a beat, the last alone": {"size": (3, 5), "beat_pixels": 2},
    "two of both": {"size": (3, 5), "beat_pixels": 2, "pixels": 2},
    "three pixels a beat": {**AROUND, "size": (3, 4), "beat_pixels": 3, "pixels": 2},
    "block RAM": {"memory_in": "block"},
    "block RAM, padding": {**AROUND, "memory_in": "block", "channels": 2, "output_folds": 2},
}


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


def reuse_buffer(**options) -> PyramidReuseBufferConfig:
    """Return the reuse buffer of the first of a group of layers; ``options`` as of `tile_buffer`."""
    tiles = tile_buffer(**options)
    return PyramidReuseBufferConfig(input=tiles.window.input, rows=tiles.rows, columns=tiles.columns)


_CONV = Window(kernel=(3, 3), padding=(1, 1, 1, 1))

#: Shapes of `TILES` whose reuse buffers differ from each other.
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


_RNG = np.random.default_rng(0)
#: Maps of three channels, two of two pixels a beat: of unsigned and of signed values of four bits.
UNSIGNED = BeatFormat(channels=3, height=2, width=4, lanes=2, bits=4, signed=False, pixels=2)
SIGNED = replace(UNSIGNED, signed=True)


def _table(low: int, high: int, length: int = 16) -> tuple[int, ...]:
    return tuple(_RNG.integers(low, high, length).tolist())


def pooled(
    kernel: tuple[int, int], taps: int, *, bits: int = 4, signed: bool = False, lanes: int = 2, pixels: int = 1
) -> LineBufferConfig:
    """Return a line buffer of pooling windows, ``taps`` taps a cycle. Its padding is the smallest value."""
    source = BeatFormat(channels=4, height=16, width=16, lanes=lanes, bits=bits, signed=signed, pixels=pixels)
    return LineBufferConfig(
        input=source,
        kernel=kernel,
        stride=(2, 2),
        padding=(0, 0, 0, 0),
        pad_value=source.value_range[0],
        taps=taps,
        output_folds=4 // lanes,
        channelwise=True,
        rows=kernel[0] + 2,
        pixels=pixels,
    )


def whole_map(folds: int, *, lanes: int = 2, pixels: int = 1, signed: bool = False) -> RunningSumConfig:
    source = BeatFormat(channels=folds * lanes, height=3, width=5, lanes=lanes, bits=4, signed=signed, pixels=pixels)
    return RunningSumConfig(window=WholeMapConfig(input=source))


MAX_POOL = MaxPoolConfig(window=pooled((3, 3), 3))
AVERAGE = SumConfig(window=pooled((3, 3), 3))
GLOBAL_SUM = whole_map(3, pixels=2)
TABLE_SUM = TableSumConfig(
    window=JoinConfig(inputs=(UNSIGNED, SIGNED)),
    tables=(_table(-60, 60), _table(-50, 50)),
    fraction=3,
    rounding=(5, 4) * 128,
    zero_point=-1,
    low=-8,
    high=6,
    bits=4,
    signed=True,
)
PRODUCT = ProductConfig(window=JoinConfig(inputs=(UNSIGNED, SIGNED)), zeros=(3, -2))
MAXIMUM = ExtremeConfig(
    window=JoinConfig(inputs=(UNSIGNED, SIGNED, UNSIGNED)),
    tables=(_table(-8, 8), (), _table(-8, 8)),
    greatest=True,
    bits=4,
    signed=True,
)
RECODE = RecodeConfig(
    window=JoinConfig(inputs=(UNSIGNED, SIGNED, replace(UNSIGNED, bits=3)), in_turn=True),
    tables=(_table(-8, 8), (), _table(-8, 8, 8)),
    bits=4,
    signed=True,
)
CHANNEL_TABLE = ChannelTableConfig(
    window=JoinConfig(inputs=(UNSIGNED,), in_turn=True),
    tables=Weights(list(_table(-8, 8, 3 * 16))),
    bits=4,
    signed=True,
)

#: All kinds of steps whose results are proved, with a table and a factor by channel.
FIXED_POINT = FixedPointConfig(
    window=JoinConfig(inputs=(UNSIGNED, SIGNED)),
    steps=(
        TableCircuit(
            operands=(0,), low=0, tables=tuple(tuple(n * (n + c) % 61 - 30 for n in range(16)) for c in (7, 8, 9))
        ),
        MultiplyCircuit(operands=(1,), shift=2, factor=(13, -9, 7)),
        AddCircuit(operands=(2, 3), sign=-1),
        ShiftCircuit(operands=(3,), shift=-1),
        ExtremumCircuit(operands=(4, 5), greatest=True),
        AddCircuit(operands=(6,), offset=(3, -4, 5)),
        LimitsCircuit(operands=(7,), low=5, high=31),
        ShiftCircuit(operands=(8,), shift=1),
    ),
)


def _averaged(*, unit: int, padding: int = 0, bits: int = 4, **options: Any) -> FloatSumConfig:
    """Return the float32 sums of pooling windows of 2 x 2 taps, whose zero point is 3, with a count if padded."""
    window = replace(pooled((2, 2), 4, bits=bits, **options), pad_value=3, padding=(padding,) * 4, inside=padding > 0)
    return FloatSumConfig(window=window, zero_point=3, unit=unit)


#: Average of values whose sums have more than 24 bits.
FLOAT_AVERAGE = _averaged(unit=(1 << 24) - 3, lanes=1)


def _terms(scale: int, zero: int) -> tuple[int, ...]:
    return tuple(to_float32((value - zero) * scale) for value in range(16))


def joined(*scales: int) -> FloatJoinConfig:
    """Return a float32 sum of maps of these scales."""
    source = replace(UNSIGNED, lanes=1, pixels=1)
    tables = tuple(_terms(scale, zero) for zero, scale in enumerate(scales))
    return FloatJoinConfig(window=JoinConfig(inputs=(source,) * len(scales)), tables=tables)


#: Sum of three maps. The rounding of the first sum drops few bits, and that of the second one many.
FLOAT_SUM = joined(0x9E3779, 0x9E3779 << 4, 12345 << 17)
#: Reader of a global pool, of maps whose rows end inside of a beat.
READER = GLOBAL_SUM.window
#: One configuration of each class.
ARITHMETIC: tuple[Any, ...] = (
    READER, MAX_POOL, AVERAGE, FLOAT_AVERAGE, GLOBAL_SUM, TABLE_SUM, FLOAT_SUM, PRODUCT, MAXIMUM, RECODE, CHANNEL_TABLE,
    FIXED_POINT,
)  # fmt: skip

_ONE_PIXEL = BeatFormat(channels=3, height=1, width=1, lanes=2, bits=3, signed=True)
#: Further shapes of these classes.
VARIANTS: dict[str, Any] = {
    "max pool of one step": MaxPoolConfig(window=pooled((2, 2), 4, pixels=2)),
    "max pool of one tap a step": MaxPoolConfig(window=pooled((2, 2), 1, signed=True)),
    "max pool whose taps don't divide the kernel": MaxPoolConfig(window=pooled((3, 3), 2, signed=True)),
    "average of one step": SumConfig(window=pooled((3, 3), 9, signed=True, pixels=2)),
    "average of one tap a step": SumConfig(window=pooled((2, 2), 1, bits=8)),
    "average of many taps": SumConfig(window=pooled((8, 8), 64, bits=8, lanes=1)),
    "reader of one fold": whole_map(1).window,
    "reader of whole beats": whole_map(2, pixels=5).window,
    "global sum of one fold": whole_map(1, signed=True),
    "global sum of two folds": whole_map(2),
    "global sum in block RAM": whole_map(300, lanes=1, signed=True),
    "global sum of pixels in two spans": whole_map(2, lanes=1, pixels=16),
    "global sum of signed pixels": whole_map(2, lanes=1, pixels=4, signed=True),
    "sum without a fraction": replace(TABLE_SUM, fraction=0, rounding=(0, 1) * 128),
    "sum of unsigned values": replace(TABLE_SUM, signed=False, low=1, high=14),
    "float average of several lanes and pixels": _averaged(unit=5, signed=True, pixels=2),
    "float average with counts": _averaged(unit=(1 << 24) - 3, padding=1, lanes=1),
    "float average of lanes with counts": _averaged(unit=7, padding=1),
    "float sum of two maps": joined(0x9E3779, 0x9E3779 << 4),
    "float sum of five maps": joined(0x9E3779, 0x9E3779 << 4, 12345 << 8, 3, 1 << 20),
    "product with one pixel": replace(PRODUCT, window=JoinConfig(inputs=(UNSIGNED, _ONE_PIXEL), spread=True)),
    "minimum": replace(MAXIMUM, greatest=False),
    "minimum without tables": ExtremeConfig(
        window=JoinConfig(inputs=(UNSIGNED, UNSIGNED)), tables=((), ()), greatest=False, bits=4, signed=False
    ),
    "one table": replace(RECODE, window=JoinConfig(inputs=(UNSIGNED,), in_turn=True), tables=RECODE.tables[:1]),
    "tables of one beat": replace(CHANNEL_TABLE, window=JoinConfig(inputs=(replace(UNSIGNED, lanes=3),), in_turn=True)),
    "tables in LUTs": replace(CHANNEL_TABLE, tables_in="lut"),
}


def _rows(count: int, thresholds: int, bits: int) -> tuple[tuple[int, ...], ...]:
    half = 1 << bits - 1
    return tuple(tuple(sorted(_RNG.integers(-half, half, thresholds).tolist())) for _ in range(count))


def _threshold(count: int, thresholds: int, accumulator_bits: int, bits: int, **options: Any) -> ThresholdConfig:
    return ThresholdConfig(
        **{
            "lanes": 1,
            "beats": ((0,),),
            "signed": True,
            "low": -(1 << bits - 1),
            "accumulator_bits": accumulator_bits,
            "thresholds": _rows(count, thresholds, accumulator_bits),
            "bits": bits,
            **options,
        }
    )


THRESHOLDS = _threshold(1, 15, 10, 4, lanes=2, beats=((0, 1), (2,)))
BIASES = AddBiasConfig(lanes=2, accumulator_bits=12, bias=(100, -200, 7), beats=((0, 1), (2,)), bits=16)
#: Last stages of layers that compare sums or add biases.
LAST_STAGES: dict[str, Any] = {
    "thresholds": THRESHOLDS,
    "thresholds of pixels": replace(THRESHOLDS, pixels=2, beats=((0, 1),)),
    "thresholds by channel": _threshold(3, 15, 12, 4, lanes=2, beats=((0, 1), (2,)), by_channel=True),
    "thresholds by count": _threshold(
        3, 30, 14, 5, low=0, signed=False, beats=((0,), (1,)), counts=(4, 6, 9), count_bits=4
    ),
    "thresholds of wide sums": _threshold(1, 31, 36, 6),
    "no thresholds": _threshold(1, 0, 12, 4, low=3),
    "biases": BIASES,
    "biases that wrap": replace(BIASES, accumulator_bits=32, bias=(1 << 30, -5, 7), bits=32),
    "one bias": replace(BIASES, bias=(5, 5), beats=((0, 1),)),
    "biases in block RAM": replace(
        BIASES, lanes=1, bias=tuple(range(100)), beats=tuple((index,) for index in range(100))
    ),
}


#: Configuration, name of its top module, and Verilog of a design whose components are proved.
Design = tuple[Any, str, str]
_ONE = Window(kernel=(1, 1))
_MAP = FeatureMap(channels=4, height=2, width=2, type=UINT8, zero_point=0, scale=0.5)


def layer_alone(layer: Op, taps: int = 1) -> Design:
    """Return the accelerator of one layer, one channel and some taps of its windows a cycle."""
    network = Network(name="dut", layers=(layer,))
    plans = (replace(layer_plan(stage_of(layer), Unroll(1, 1, taps, 1), 1, PLAIN, 1), fifo_depths=(1000,)),)
    config = compose(network, with_buffers(plans, *size_buffers(compose(network, plans))))
    return config, "dut", files(config, top="dut")["dut.v"].decode()


def select() -> Design:
    layer = Select(name="part", input=_MAP, output=replace(_MAP, channels=2), window=_ONE, index=(3, 1))
    return layer_alone(layer)


def depth_to_space() -> Design:
    output = replace(_MAP, channels=1, height=4, width=4)
    return layer_alone(DepthToSpace(name="wide", input=_MAP, output=output, window=_ONE, blocks=(2, 2)))


def uneven_resize() -> Design:
    """Return a Resize to nearest neighbours of two rows to three, and of two columns to three."""
    output = replace(_MAP, height=3, width=3)
    layer = Resample(name="wide", input=_MAP, output=output, window=_ONE, rows=(0, 0, 1), columns=(0, 1, 1))
    return layer_alone(layer)


def response_normalisation() -> Design:
    scale, falls = normalisation(4, 3, 1e-3, 0.5, 0.5)
    layer = LRN(name="lrn", input=_MAP, output=_MAP, window=_ONE, scale=scale, falls=falls, low=0, high=255)
    return layer_alone(layer)


def float_average() -> Design:
    """Return an average pool that adds a whole window in one step, because float32 rounds after each addition."""
    layer = AveragePool(
        name="pool",
        input=_MAP,
        output=replace(_MAP, height=1, width=1),
        window=Window(kernel=(2, 2)),
        x_scale=float(np.float32(0.1)),
        y_scale=0.25,
        include_padding=False,
    )
    return layer_alone(layer, taps=4)


def tiles() -> Design:
    config = pools().config
    return config, "dut", files(config, top="dut")["dut.v"].decode()


def engine_of(config: EngineConfig) -> Design:
    return EngineDesign(engine=config), ENGINE, engine_files(config)[f"{ENGINE}.v"].decode()


#: Designs, by what they show: functions that return each.
DESIGNS: dict[str, Callable[[], Design]] = {
    "layers": lambda: (chain(lut_lanes=1)[0], "dut", chain(lut_lanes=1)[1]),
    "bus wrapper": lambda: (wrapped_chain()[0], "dut_axi", wrapped_chain()[1]),
    "select": select,
    "blocks": depth_to_space,
    "uneven resize": uneven_resize,
    "running scale": response_normalisation,
    "tiles": tiles,
    "engine": lambda: engine_of(SMALL),
    "engine that keeps maps": lambda: engine_of(replace(SMALL, kept_words=4096)),
}
#: Components alone.
COMPONENTS = (JOIN, UPSAMPLING, REPACK, SHELL, BANK, LOADER, LINK, *ARITHMETIC)
