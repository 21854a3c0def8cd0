"""Small elementwise arithmetic and pools whose proofs are tested: one configuration of each class, and variants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hwgen.gateware.average import SumConfig
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.max_pool import MaxPoolConfig
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.table_sum import TableSumConfig
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
#: One configuration of each class.
ARITHMETIC: tuple[Any, ...] = (
    MAX_POOL, AVERAGE, GLOBAL_SUM, TABLE_SUM, PRODUCT, MAXIMUM, RECODE, CHANNEL_TABLE
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
    "global sum of one fold": whole_map(1, signed=True),
    "global sum of two folds": whole_map(2),
    "global sum in block RAM": whole_map(300, lanes=1, signed=True),
    "global sum of pixels in two spans": whole_map(2, lanes=1, pixels=16),
    "global sum of signed pixels": whole_map(2, lanes=1, pixels=4, signed=True),
    "sum without a fraction": replace(TABLE_SUM, fraction=0, rounding=(0, 1) * 128),
    "sum of unsigned values": replace(TABLE_SUM, signed=False, low=1, high=14),
    "product with one pixel": replace(PRODUCT, window=JoinConfig(inputs=(UNSIGNED, _ONE_PIXEL), spread=True)),
    "minimum": replace(MAXIMUM, greatest=False),
    "minimum without tables": ExtremeConfig(
        window=JoinConfig(inputs=(UNSIGNED, UNSIGNED)), tables=((), ()), greatest=False, bits=4, signed=False
    ),
    "one table": replace(RECODE, window=JoinConfig(inputs=(UNSIGNED,), in_turn=True), tables=RECODE.tables[:1]),
    "tables of one beat": replace(CHANNEL_TABLE, window=JoinConfig(inputs=(replace(UNSIGNED, lanes=3),), in_turn=True)),
    "tables in LUTs": replace(CHANNEL_TABLE, tables_in="lut"),
}
