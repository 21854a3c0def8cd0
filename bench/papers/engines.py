"""The papers' own models of engines, ratios and times: what their printed figures follow from.

Nothing here is how hwgen builds hardware; `papers.fused` compares these models' figures with the printed
ones. T is Alwani's thesis (2015), Z the baseline it compares with (Zhang et al., FPGA 2015), D is DeCoILFNet (2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, log2

from hwgen.explore.fronts import WORD_BYTES
from hwgen.explore.published import DEPTH_GROUPS
from hwgen.explore.pyramid import Pair
from hwgen.network.ops import Op
from hwgen.templates.unroll import UnrollChoice, min_factors
from hwgen.templates.work import Unroll, ceil_div
from papers.thesis import back_map

# T and Z: engines of Tm x Tn floating-point multiply-adds.


def float_dsp(tm: int, tn: int, pixels: int = 1) -> int:
    """DSP slices of an engine: 3 for a multiplier, 2 for an adder, 2 for each of ``tn`` biases (T, 3.3).

    The bias takes ``tm`` adders rather; only ``tn`` gives T's 726 and 1,610. ``pixels`` are output pixels a cycle.
    """
    return 5 * tm * tn * pixels + 2 * tn


def zhang_cycles(layers: Sequence[Op], tm: int, tn: int) -> int:
    """Cycles a frame of one engine that computes the convolutions in turn: one tap a cycle (Z)."""
    return sum(
        ceil_div(layer.outputs, tm)
        * ceil_div(layer.channels, tn)
        * layer.output_height
        * layer.output_width
        * layer.taps
        for layer in layers
        if layer.weight_count
    )


def new_outputs(layers: Sequence[Op]) -> list[Pair]:
    """Return, for each layer, the number of output rows and columns that are new in one pyramid inside the map."""
    levels = back_map(layers)
    return [level.advance for level in levels[1:]] + [(1, 1)]


def pyramid_choices(layer: Op, new: Pair) -> list[UnrollChoice]:
    """Unroll factors of a convolution for one pyramid (T, 4.3): outputs, inputs, rows and columns; no taps.

    Returns
    -------
    list of Choice
        Those that no other one beats, by rising cycles; ``unroll.tp`` is rows times columns.
    """
    found = []
    for tm in min_factors(layer.outputs // layer.groups):
        for tn in min_factors(layer.channels // layer.groups):
            for tr in min_factors(new[0]):
                for tc in min_factors(new[1]):
                    folds = ceil_div(layer.outputs // layer.groups, tm) * ceil_div(layer.channels // layer.groups, tn)
                    cycles = layer.groups * folds * ceil_div(new[0], tr) * ceil_div(new[1], tc) * layer.taps
                    found.append(UnrollChoice(cycles, float_dsp(tm, tn, tr * tc), Unroll(tn, tm, 1, tr * tc)))
    found.sort(key=lambda choice: (choice.cycles, choice.cost))
    front: list[UnrollChoice] = []
    for choice in found:
        if not front or choice.cost < front[-1].cost:
            front.append(choice)
    return front


def pyramid_macs(layers: Sequence[Op]) -> int:
    """Multiplications in one pyramid inside the map, overlaps reused."""
    return sum(layer.weight_count * new[0] * new[1] for layer, new in zip(layers, new_outputs(layers), strict=True))


def layer_ctc(layer: Op, tm: int, tn: int) -> Fraction:
    """Operations a byte for one convolution of its own (T, 3.4, of Z's engine).

    Input channels are padded to a multiple of the tile, rows and columns with the layer's padding; the input is read
    once for every tile of output channels, weights and output move once.
    """
    channels = ceil_div(layer.channels, min(tn, layer.channels)) * min(tn, layer.channels)
    top, left, bottom, right = layer.window.padding
    size = (layer.height + top + bottom) * (layer.width + left + right)
    loads = channels * size * ceil_div(layer.outputs, tm)
    weights = layer.outputs * channels * layer.taps
    return Fraction(2 * layer.macs, WORD_BYTES * (loads + weights + layer.output_words))


def operations(layers: Sequence[Op]) -> int:
    """Operations of one pyramid inside the map (T, 3.5).

    2 a MAC, bias and ReLU for each output of a convolution, ``K * K`` for each of a pool (the last two are a fit to T's
    261.19).
    """
    pointwise = sum(
        layer.outputs * rows * columns * (2 if layer.weight_count else layer.taps)
        for layer, (rows, columns) in zip(layers, new_outputs(layers), strict=True)
    )
    return 2 * pyramid_macs(layers) + pointwise


def fused_ctc(layers: Sequence[Op]) -> Fraction:
    """Operations a byte of one pyramid inside the map (T, 3.5).

    The input tile is read with its halo, the tip's outputs leave, weights stay on chip.
    """
    first, (rows, columns) = layers[0], new_outputs(layers)[0]
    (kernel, kernel_columns), (stride, stride_columns) = first.window.kernel, first.window.stride
    tile = (stride * rows + kernel - stride) * (stride_columns * columns + kernel_columns - stride_columns)
    return Fraction(operations(layers), WORD_BYTES * (first.channels * tile + layers[-1].outputs))


# D: every tap and input channel of a convolution at once, one output channel a cycle.

D_CLOCK_MHZ = 120


def convolution_latency(width: int, depth: int = 1) -> int:
    """Cycles through D's multiplier and adder tree: 9 for each level (D, III-C)."""
    return 9 * (1 + ceil(2 * log2(width)) + ceil(log2(depth)))


def depth_cycles(layer: Op, depth_groups: int = 1) -> int:
    """Cycles a frame at one output channel a cycle."""
    return layer.output_height * layer.output_width * layer.outputs * depth_groups if layer.weight_count else 0


#: Cycles a pixel at a layer's input, in the fit of `prefix_cycles`.
D_PERIODS: Mapping[str, int] = {
    "conv1_1": 1,
    **dict.fromkeys(("conv1_2", "conv1_3", "conv1_4", "pool1"), 64),
    **dict.fromkeys(("conv2_1", "conv2_2"), 256),
    "pool2": 128,
    "conv3_1": 512,
}


def prefix_cycles(layers: Sequence[Op]) -> list[int]:
    """Cycles of one frame through the first layer, the first two, and so on, in D's build (Tables II and III).

    D's main term is that of one convolution, ``224 * 224 * 64``. With the layer of two depth groups comes a second one:
    it needs 256 cycles a pixel and gets one per 128 in odd rows, none in even ones, and no buffer behind the
    pool takes up the bursts. The lags are a fit: two rows of a convolution's input, half a row of a pool's.
    """
    total = depth_cycles(layers[0])
    cycles = []
    for layer in layers:
        rows = 4 if layer.weight_count else 1  # halves
        total += rows * layer.width * D_PERIODS[layer.name] // 2
        if DEPTH_GROUPS.get(layer.name, 1) > 1:
            total += depth_cycles(layer)
        cycles.append(total)
    return cycles


def one_sided_traffic(layers: Sequence[Op]) -> int:
    """Words of D's Fig. 7 A: each convolution's input, read once; pools are merged, nothing is written."""
    return sum(layer.input_words for layer in layers if layer.weight_count)
