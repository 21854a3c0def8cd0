"""Layers of different shape, for the estimates of resources: with seeded weights, as a network of one layer each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.convolution.parameters import CHAIN
from hwgen.gateware.pyramid.spans import TiledAxis
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, FeatureMap, IntegerType, Requantisation, Window
from hwgen.network.ops import Conv, MaxPool, Op
from hwgen.schedule.buffers import ample_rows, sizes_of
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.pyramid import in_tiles
from hwgen.templates.pyramid_tiles import RECOMPUTE, REUSE, axes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A layer, its unroll factors, and those of the layer behind it (``next_tn``, its own beats if 0).

    With a ``tip`` it works in tiles: those of a group of its own, or with a layer of the window ``behind`` it. Its
    input comes in beats of ``pixels``.
    """

    name: str
    kind: str = "conv"
    channels: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    tn: int = 1
    tm: int = 1
    tk: int = 1
    tp: int = 1
    chain: int = CHAIN
    next_tn: int = 0
    bits: int = 8
    max_weight: int = 127
    signed: bool = False
    zero_point: int = 0
    per_channel: bool = True
    exact: bool = False
    raw: bool = False
    macs_per_dsp: int = 1
    tip: tuple[int, int] | None = None
    overlap: str = REUSE
    behind: Window | None = None
    pixels: int = 1
    dilation: tuple[int, int] = (1, 1)


_PLAIN = Shape(name="plain", channels=1, outputs=1, size=(1, 1), kernel=(1, 1))
_SAME = replace(_PLAIN, kernel=(3, 3), padding=(1, 1, 1, 1))
_PACKED = replace(_SAME, size=(16, 16), macs_per_dsp=2)

#: The first ones are small.
SHAPES = [
    replace(_PLAIN, name="conv3x3-small", kernel=(3, 3), channels=4, outputs=8, size=(12, 12), tm=2, tk=3),
    replace(_PLAIN, name="conv1x1", channels=16, outputs=32, size=(14, 14), tn=8, tm=4, next_tn=4),
    replace(
        _PLAIN, name="pool2x2", kind="maxpool", kernel=(2, 2), stride=(2, 2),
        channels=16, outputs=16, size=(16, 16), tn=2, tm=2, tk=4, next_tn=4,
    ),
    replace(
        _SAME, name="conv3x3-strided", stride=(2, 2), channels=6, outputs=12, size=(17, 21),
        tn=3, tm=6, next_tn=3, signed=True, zero_point=3,
    ),
    replace(
        _SAME, name="conv3x3-grouped", channels=8, outputs=16, size=(13, 13), groups=2, tn=2, tm=4, tk=3, next_tn=4,
    ),
    replace(_SAME, name="conv3x3", channels=8, outputs=16, size=(16, 16), tn=2, tm=4, tk=9, next_tn=2),
    replace(
        _PLAIN, name="conv5x5", kernel=(5, 5), padding=(2, 2, 2, 2),
        channels=1, outputs=6, size=(28, 28), tm=3, tk=5, next_tn=1,
    ),
    replace(_PLAIN, name="fc", kernel=(5, 5), channels=16, outputs=24, size=(5, 5), tn=4, tm=2, tk=5),
    replace(_SAME, name="conv3x3-ceil", channels=8, outputs=10, size=(10, 13), tn=2, tm=5, tk=4, next_tn=3),
    replace(
        _PLAIN, name="pool3x3", kind="maxpool", kernel=(3, 3), stride=(2, 2),
        channels=12, outputs=12, size=(15, 15), tn=3, tm=3, tk=3, next_tn=3,
    ),
    replace(_SAME, name="conv3x3-pixels", channels=4, outputs=8, size=(14, 14), tn=2, tm=2, tk=9, tp=2, next_tn=2),
    replace(
        _PLAIN, name="conv1x1-exact", channels=24, outputs=12, size=(8, 8), tn=6, tm=12, next_tn=5,
        exact=True, per_channel=False,
    ),
    replace(_SAME, name="conv3x3-chains", channels=8, outputs=8, size=(28, 28), tn=8, tm=2, tk=9, next_tn=8),
    replace(
        _PLAIN, name="conv7x7-strided", kernel=(7, 7), stride=(2, 2), padding=(3, 3, 2, 2),
        channels=3, outputs=8, size=(32, 32), tn=3, tm=2, tk=7, next_tn=2, signed=True,
    ),
    replace(_PLAIN, name="conv3x3-raw", kernel=(3, 3), channels=6, outputs=9, size=(9, 9), tn=2, tm=3, tk=9, raw=True),
    replace(_SAME, name="conv3x3-deep", channels=64, outputs=64, size=(28, 28), tn=4, tm=8, tk=3, next_tn=8),
    replace(_SAME, name="conv3x3-first", channels=3, outputs=16, size=(32, 32), tn=3, tm=4, tk=9, next_tn=8),
    replace(
        _PLAIN, name="conv11x11", kernel=(11, 11), stride=(4, 4), channels=3, outputs=12, size=(59, 59),
        tn=1, tm=3, tk=11, next_tn=1,
    ),
    replace(
        _SAME, name="conv3x5", kernel=(3, 5), padding=(1, 0, 2, 2), channels=5, outputs=7, size=(9, 20),
        tn=5, tm=4, tk=5, next_tn=2,
    ),
    replace(
        _PLAIN, name="conv1x1-wide", channels=96, outputs=80, size=(7, 7), tn=16, tm=5, next_tn=16, signed=True,
        zero_point=-4,
    ),
    replace(
        _SAME, name="pool3x3-pixels", kind="maxpool", stride=(2, 2), channels=6, outputs=6, size=(20, 20),
        tn=2, tm=2, tk=9, tp=2, next_tn=2, signed=True,
    ),
    replace(_SAME, name="conv3x3-one", channels=20, outputs=20, size=(6, 6), next_tn=2),
    replace(_PACKED, name="packed3x3", channels=8, outputs=16, tn=2, tm=4, tk=3, next_tn=2),
    replace(_PACKED, name="packed3x3-odd", channels=6, outputs=10, tn=3, tm=5, tk=9, next_tn=2, signed=True),
    replace(
        _PACKED, name="packed1x1", kernel=(1, 1), padding=(0, 0, 0, 0), channels=24, outputs=12, tn=24, tm=6, next_tn=5,
    ),
    replace(_PACKED, name="packed3x3-whole", channels=4, outputs=8, tn=4, tm=8, tk=9, next_tn=8),
    replace(_PACKED, name="packed3x3-pixels", channels=4, outputs=8, tn=2, tm=2, tk=9, tp=2, next_tn=2),
    replace(_PACKED, name="packed3x3-deep", channels=64, outputs=64, size=(28, 28), tn=4, tm=8, tk=3, next_tn=8),
    replace(
        _SAME, name="conv3x3-int16", channels=4, outputs=6, size=(9, 9), tn=2, tm=2, tk=3, next_tn=1,
        bits=16, max_weight=32767, signed=True, zero_point=-32768,
    ),
    replace(
        _SAME, name="conv3x3-uint16", channels=8, outputs=16, size=(12, 12), tn=4, tm=4, tk=9, next_tn=2,
        bits=16, max_weight=32767,
    ),
    replace(
        _PLAIN, name="conv1x1-uint16-17", channels=12, outputs=16, size=(8, 8), tn=6, tm=4, next_tn=4,
        bits=16, max_weight=65535, zero_point=20000,
    ),
    replace(
        _SAME, name="depthwise3x3", channels=16, outputs=16, groups=16, size=(14, 14), tn=4, tm=4, tk=3, next_tn=2,
    ),
    replace(
        _SAME, name="depthwise3x3-whole", stride=(2, 2), channels=12, outputs=12, groups=12, size=(15, 15),
        tn=6, tm=6, tk=9, next_tn=6, signed=True,
    ),
    replace(
        _SAME, name="depthwise3x3-deep", channels=256, outputs=256, groups=256, size=(7, 7),
        tn=2, tm=2, tk=3, next_tn=8,
    ),
    replace(
        _PLAIN, name="fc-uint16", kernel=(5, 5), channels=16, outputs=24, size=(5, 5), tn=4, tm=2, tk=5,
        bits=16, max_weight=32767,
    ),
    replace(
        _SAME, name="conv3x3-int16-int8", channels=6, outputs=8, size=(14, 14), tn=3, tm=4, tk=3, next_tn=4,
        bits=16, signed=True, per_channel=False,
    ),
]  # fmt: skip
#: Layers in tiles.
_TILED = replace(_SAME, tip=(4, 4))
_HALVES = Window(kernel=(2, 2), stride=(2, 2))
_NINTHS = Window(kernel=(3, 3), stride=(2, 2))
_AROUND = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
TILED = [
    replace(_TILED, name="tile3x3", channels=4, outputs=8, size=(16, 16), tn=2, tm=2, tk=3, next_tn=2),
    replace(
        _TILED, name="tile-pool2x2", kind="maxpool", kernel=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0),
        channels=8, outputs=8, size=(20, 20), tn=2, tm=2, tk=4, next_tn=4, tip=(3, 3),
    ),
    replace(
        _TILED, name="tile-pool3x3", kind="maxpool", stride=(2, 2), padding=(0, 0, 0, 0), channels=12, outputs=12,
        size=(27, 27), tn=3, tm=3, tk=3, next_tn=3, tip=(2, 2), behind=_AROUND,
    ),
    replace(
        _TILED, name="tile3x3-whole", channels=4, outputs=4, size=(24, 24), tn=2, tm=2, tk=9, behind=_HALVES,
        tip=(2, 2),
    ),
    replace(_TILED, name="tile3x3-first", channels=3, outputs=8, size=(32, 32), tn=3, tm=2, tk=9, pixels=4, tip=(4, 8)),
    replace(
        _TILED, name="tile5x5", kernel=(5, 5), padding=(2, 2, 2, 2), channels=6, outputs=6, size=(28, 28), tn=1, tm=2,
        tk=5, behind=_HALVES, tip=(3, 3),
    ),
    replace(
        _TILED, name="tile3x3-again", channels=8, outputs=8, size=(16, 16), tn=4, tm=2, tk=3, overlap=RECOMPUTE,
        behind=_AROUND,
    ),
    replace(
        _TILED, name="tile1x1", kernel=(1, 1), padding=(0, 0, 0, 0), channels=16, outputs=8, size=(14, 14), tn=8, tm=4,
    ),
    replace(
        _TILED, name="tile7x7-strided", kernel=(7, 7), stride=(2, 2), padding=(3, 3, 2, 2), channels=3, outputs=4,
        size=(32, 32), tn=3, tm=2, tk=7, signed=True, tip=(2, 4), pixels=2,
    ),
    replace(
        _TILED, name="tile3x3-grouped", channels=8, outputs=8, size=(13, 13), groups=2, tn=2, tm=2, tk=3, tip=(3, 5),
        next_tn=4,
    ),
    replace(_TILED, name="tile3x3-one", channels=20, outputs=4, size=(12, 12), tk=1, tip=(3, 4)),
    replace(_TILED, name="tile3x3-taps", channels=4, outputs=6, size=(15, 11), tn=2, tm=3, tk=4, tip=(5, 3), bits=5),
    replace(_TILED, name="tile3x3-deep", channels=64, outputs=16, size=(28, 28), tn=4, tm=2, tk=3, tip=(7, 7)),
    replace(
        _TILED, name="tile3x3-wide", channels=2, outputs=4, size=(40, 64), tn=2, tm=4, tk=9, tip=(8, 16), pixels=8,
        signed=True, zero_point=5,
    ),
    replace(
        _TILED, name="tile-pool3x3-whole", kind="maxpool", stride=(2, 2), channels=6, outputs=6, size=(20, 20),
        tn=2, tm=2, tk=9, tip=(2, 3),
    ),
    replace(
        _TILED, name="tile11x11", kernel=(11, 11), stride=(4, 4), padding=(0, 0, 0, 0), channels=3, outputs=4,
        size=(59, 59), tn=3, tm=2, tk=11, pixels=4, tip=(1, 1), behind=_NINTHS,
    ),
    replace(
        _TILED, name="tile3x5", kernel=(3, 5), padding=(1, 0, 2, 2), channels=5, outputs=7, size=(9, 20), tn=5, tm=4,
        tk=5, tip=(3, 6),
    ),
    replace(
        _TILED, name="tile5x5-again", kernel=(5, 5), padding=(2, 2, 2, 2), channels=4, outputs=4, size=(30, 30), tn=2,
        tm=2, tk=25, overlap=RECOMPUTE, tip=(4, 5), behind=_NINTHS, pixels=2,
    ),
    replace(_TILED, name="tile3x3-row", channels=4, outputs=4, size=(18, 18), tn=2, tm=2, tk=3, tip=(1, 18)),
    replace(
        _TILED, name="tile3x3-16bits", channels=4, outputs=4, size=(17, 23), tn=2, tm=2, tk=3, bits=16, signed=True,
        tip=(4, 6), behind=_AROUND,
    ),
    replace(
        _TILED, name="tile3x3-strided", stride=(2, 2), channels=6, outputs=4, size=(31, 33), tn=3, tm=2, tk=9,
        tip=(3, 3), behind=_AROUND,
    ),
    replace(
        _TILED, name="tile1x1-strided", kernel=(1, 1), stride=(2, 2), padding=(0, 0, 0, 0), channels=8, outputs=8,
        size=(16, 16), tn=4, tm=2, tip=(2, 2), behind=_AROUND,
    ),
    replace(
        _TILED, name="tile2x2", kernel=(2, 2), padding=(0, 0, 0, 0), channels=9, outputs=4, size=(21, 25), tn=3, tm=2,
        tk=2, tip=(5, 6),
    ),
    replace(
        _TILED, name="tile4x4", kernel=(4, 4), padding=(1, 1, 2, 2), channels=3, outputs=4, size=(22, 22), tn=3, tm=2,
        tk=8, tip=(3, 4), pixels=4,
    ),
    replace(_TILED, name="tile3x3-column", channels=6, outputs=4, size=(19, 26), tn=3, tm=2, tk=3, tip=(19, 5)),
    replace(
        _TILED, name="tile5x5-whole", kernel=(5, 5), padding=(2, 2, 2, 2), channels=2, outputs=4, size=(30, 26), tn=1,
        tm=2, tk=25, tip=(3, 5), behind=_NINTHS,
    ),
    replace(
        _TILED, name="tile3x3-two", channels=4, outputs=6, size=(24, 36), tn=4, tm=3, tk=9, tip=(4, 6), pixels=2,
        signed=True,
    ),
    replace(
        _TILED, name="tile-pool2x2-again", kind="maxpool", kernel=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0),
        channels=6, outputs=6, size=(26, 26), tn=3, tm=3, tk=2, tip=(2, 3), behind=_AROUND, overlap=RECOMPUTE,
    ),
    replace(
        _TILED, name="tile3x3-packed", channels=8, outputs=8, size=(30, 30), tn=4, tm=4, tk=9, tip=(5, 7),
        macs_per_dsp=2, next_tn=4,
    ),
    replace(
        _TILED, name="tile1x5", kernel=(1, 5), padding=(0, 2, 0, 2), channels=7, outputs=4, size=(11, 40), tn=2, tm=2,
        tk=5, tip=(3, 8), bits=6,
    ),
]  # fmt: skip
#: Layers whose windows are dilated, row by row and in tiles.
_APART = replace(_SAME, padding=(2, 2, 2, 2), dilation=(2, 2))
_TILED_APART = replace(_APART, tip=(4, 4))
DILATED = [
    replace(_APART, name="dilated3x3", channels=4, outputs=8, size=(14, 14), tn=2, tm=2, tk=3, next_tn=2),
    replace(_TILED_APART, name="tile-dilated3x3", channels=4, outputs=4, size=(16, 16), tn=2, tm=2, tk=3),
    replace(_APART, name="dilated3x3-whole", channels=4, outputs=6, size=(12, 15), tn=2, tm=2, tk=9, signed=True),
    replace(
        _APART, name="dilated3x3-far", padding=(6, 6, 6, 6), dilation=(6, 6), channels=6, outputs=4, size=(20, 20),
        tn=3, tm=2, tk=3, next_tn=2,
    ),
    replace(_APART, name="dilated3x3-pixels", channels=4, outputs=4, size=(14, 18), tn=2, tm=2, tk=3, tp=2),
    replace(
        _APART, name="dilated3x3-taps", padding=(3, 3, 3, 3), dilation=(3, 3), channels=4, outputs=6, size=(13, 16),
        tn=2, tm=2, tk=4,
    ),
    replace(
        _PLAIN, name="dilated-pool3x2", kind="maxpool", kernel=(3, 2), stride=(2, 2), dilation=(2, 3), channels=6,
        outputs=6, size=(17, 20), tn=3, tm=3, tk=2,
    ),
    replace(
        _TILED_APART, name="tile-dilated3x3-whole", channels=4, outputs=4, size=(24, 24), tn=2, tm=2, tk=9,
        behind=_HALVES, tip=(2, 2),
    ),
    replace(
        _TILED_APART, name="tile-dilated3x3-third", padding=(3, 3, 3, 3), dilation=(3, 3), channels=3, outputs=4,
        size=(21, 24), tn=3, tm=2, tk=9, tip=(3, 6), pixels=2,
    ),
    replace(_TILED_APART, name="tile-dilated3x3-taps", channels=4, outputs=6, size=(15, 11), tn=2, tm=3, tk=4, bits=5),
]  # fmt: skip
#: Number of tiled layers, the first of the list, to which the estimates of tiles were fitted. The others test them.
TILED_FITTED = 24
#: Number of layers, the first of the list, to which the estimates were fitted. The others test them.
FITTED = 16


def network_of(shape: Shape) -> Network:
    """Return a network of one layer of this shape, with random weights and equal bits of input and output."""
    rng = np.random.default_rng(sum(shape.name.encode()))
    window = Window(kernel=shape.kernel, stride=shape.stride, padding=shape.padding, dilation=shape.dilation)
    height, width = window.output_size(*shape.size)
    kind = IntegerType(bits=shape.bits, signed=shape.signed)
    zero = shape.zero_point
    before = FeatureMap(channels=shape.channels, height=shape.size[0], width=shape.size[1], type=kind, zero_point=zero)
    after = replace(before, channels=shape.outputs, height=height, width=width)
    layer: Op
    if shape.kind == "maxpool":
        layer = MaxPool(name=shape.name, input=before, output=after, window=window)
    else:
        layer = Conv(
            name=shape.name,
            input=before,
            output=replace(after, type=INT32, zero_point=0) if shape.raw else after,
            window=window,
            weights=rng.integers(
                -shape.max_weight,
                shape.max_weight + 1,
                (shape.outputs, shape.channels // shape.groups, *shape.kernel),
            ),
            bias=rng.integers(-(1 << 12), 1 << 12, shape.outputs) << (0 if shape.bits == 8 else 12),
            requantisation=None,
            groups=shape.groups,
        )
        if not shape.raw:
            excess = max(0, layer.accumulator_bound.bit_length() - shape.bits)
            count = shape.outputs
            significand = rng.integers(1 << 23, 1 << 24, count if shape.per_channel else 1)
            if shape.exact:
                significand = np.array([1 << 23])
            significand = np.broadcast_to(significand, count)
            shift = np.full(count, 23 + excess - 1)
            layer = replace(
                layer,
                requantisation=Requantisation(
                    significand=significand,
                    shift=shift,
                    zero_point=zero,
                    low=zero if shape.signed else kind.minimum,
                    high=kind.maximum,
                ),
            )
    return Network(name=shape.name, layers=(layer,))


def _tiles(shape: Shape, network: Network) -> tuple[TiledAxis, TiledAxis]:
    """Return the row and column tiles of a layer, in a group that can have a second layer behind it."""
    assert shape.tip is not None
    (layer,) = network.layers
    group = [layer]
    if shape.behind is not None:
        height, width = shape.behind.output_size(layer.output.height, layer.output.width)
        after = replace(layer.output, height=height, width=width)
        group.append(MaxPool(name="behind", input=layer.output, output=after, window=shape.behind))
    return axes(group, shape.tip, shape.overlap)[0]


def config_of(shape: Shape) -> AcceleratorConfig:
    """Return the accelerator of one layer of this shape, with buffers sized by the planner."""
    network = network_of(shape)
    (layer,) = network.layers
    plan = LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=shape.tn,
        tm=shape.tm,
        tk=shape.tk,
        tp=shape.tp,
        chain=shape.chain,
        line_rows=ample_rows(layer.window, layer.input.width, -(-shape.channels // shape.tn)),
        fifo_depths=(shape.outputs * 16,),
        macs_per_dsp=shape.macs_per_dsp,
    )
    config = compose(network, (plan,), shape.pixels)
    if shape.tip is not None:
        config = in_tiles(config, [_tiles(shape, network)])
    sizes = sizes_of(config)
    if shape.tip is not None:
        config = replace(config, layers=(replace(config.layers[0], fifo_depths=sizes.depths[0]),))
    else:
        config = compose(network, with_buffers((plan,), sizes.rows, sizes.depths))
    if shape.next_tn:
        (one,) = config.layers
        outputs = (replace(one.output, lanes=shape.next_tn),)
        config = replace(config, layers=(replace(one, outputs=outputs),))
    return config
