"""Small elementwise arithmetic and pools whose proofs are tested: one configuration of each class, and variants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hwgen.gateware.average import FloatSumConfig, SumConfig
from hwgen.gateware.bias import AddBiasConfig
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.max_pool import MaxPoolConfig
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.rounding import to_float32
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.gateware.weights import Weights
from hwgen.gateware.whole_map import RunningSumConfig, WholeMapConfig

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
    READER, MAX_POOL, AVERAGE, FLOAT_AVERAGE, GLOBAL_SUM, TABLE_SUM, FLOAT_SUM, PRODUCT, MAXIMUM, RECODE, CHANNEL_TABLE
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
