"""Import of ONNX ConvTranspose as a convolution with one output channel per phase of the strides.

Output ``o`` of an axis depends on input ``i`` through tap ``k`` if ``o + pad = i * stride + k * dilation``. Write
``o`` as ``q * stride + phase``. Then the input is ``q + delta``, and ``delta`` depends only on the phase and the tap.
The outputs of one phase are thus the outputs of a convolution without stride, with some of the taps. All phases are
output channels of one convolution. Its window holds the taps of all phases, and zeros where a phase has no tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import onnx

from hwgen.errors import ConfigError
from hwgen.network.maps import MAX_SIDE, MAX_WEIGHTS, Window, check_map, check_window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, by, title
from hwgen.network.onnx.qdq import plain_operand
from hwgen.network.onnx.select import emit_depth_to_space
from hwgen.network.onnx.values import AccumulatorState, PhaseChannels
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.onnx.windows import padding_mode
from hwgen.network.ops import Crop

#: Maximum number of skipped outputs before a ConvTranspose's output map that are tried in search of the fewest taps.
MAX_TRIED = 64


@dataclass(frozen=True)
class Phases:
    """One axis of a transposed convolution as stride-1 convolutions, one per phase (output index modulo stride).

    Parameters
    ----------
    stride : int
        Number of phases.
    taps : int
        Number of taps of the convolution's window.
    padding : tuple of int
        Padding of the convolution, before and after the map.
    tap_positions : tuple of (int, int, int)
        Phase, tap of the transposed convolution, and tap of the convolution.
    skipped : tuple of int
        Outputs of all phases together that the node doesn't have, before and after its own.
    """

    stride: int
    taps: int
    padding: tuple[int, int]
    tap_positions: tuple[tuple[int, int, int], ...]
    skipped: tuple[int, int]

    @classmethod
    def of(cls, size: int, outputs: int, stride: int, kernel: int, dilation: int, pad: int) -> Phases:
        """Return `Phases`: one axis of a transposed convolution split into the phases that need the fewest taps.

        Among such phases, they skip the fewest outputs.

        Parameters
        ----------
        size, outputs : int
            Size of the input map, and of the output map.
        stride, kernel, dilation : int
            Attributes of the transposed convolution.
        pad : int
            Number of outputs that are left out before the map.
        """
        # The number of taps is lowest where the first tap belongs to phase 0. Fewer skipped outputs are tried sooner.
        firsts = {*range(min(stride, MAX_TRIED)), pad % stride}
        candidates = (cls._skipping(first, size, outputs, stride, kernel, dilation, pad) for first in sorted(firsts))
        return min(candidates, key=lambda phases: (phases.taps, sum(phases.skipped)))

    @classmethod
    def _skipping(
        cls, first: int, size: int, outputs: int, stride: int, kernel: int, dilation: int, pad: int
    ) -> Phases:
        """Return the `Phases` of one axis of a transposed convolution, beginning ``first`` outputs before output 0.

        If padding would become negative, the phases begin some rounds of phases earlier.
        """
        phases = [(tap * dilation + first - pad) % stride for tap in range(kernel)]
        deltas = [(phase - first + pad - tap * dilation) // stride for tap, phase in enumerate(phases)]
        # Padding must not be negative. Pixels left out at either end of the map are skipped outputs instead.
        early = max(min(deltas), 0)
        deltas, first = [delta - early for delta in deltas], first + early * stride
        low, high = min(deltas), max(deltas)
        rounds = max(-(-(outputs + first) // stride), size - high)
        return cls(
            stride=stride,
            taps=high - low + 1,
            padding=(-low, rounds - 1 + high - (size - 1)),
            tap_positions=tuple(
                (phase, tap, delta - low) for tap, (phase, delta) in enumerate(zip(phases, deltas, strict=True))
            ),
            skipped=(first, rounds * stride - outputs - first),
        )


def _conv_transpose(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX ConvTranspose as sums of a convolution with one output channel per phase and output channel."""
    operand = plain_operand(build, node)
    if build.spatial_axes(node) != (ROWS, COLUMNS):
        raise build.refusal(node, f"must take (N, C, H, W), but its input is laid out as {build.view}")
    kernels = build.constants.float_weights(node, 1)
    groups = _groups(build, node, kernels.values)
    rows, columns = _phases(build, node, kernels.values.shape[2:])
    outputs = kernels.values.shape[1] * groups
    count = outputs * rows.stride * columns.stride
    build.check_outputs(node, count, "channels for all phases")
    if (count := count * len(kernels.values) // groups * rows.taps * columns.taps) > MAX_WEIGHTS:
        raise build.refusal(node, f"must have at most {MAX_WEIGHTS:,} weights for all phases, not {count:,}")
    weights, channels = _by_phase(kernels.values, groups, rows, columns)
    scale = np.tile(kernels.scale, groups) if kernels.scale.size > 1 else kernels.scale
    bias = build.bias(node, outputs, operand.scale * scale)
    window = Window(
        kernel=(rows.taps, columns.taps),
        padding=(rows.padding[0], columns.padding[0], rows.padding[1], columns.padding[1]),
    )
    height, width = build.map.height, build.map.width
    check_window(f"ConvTranspose node {title(node)!r}", window, 1, height, width)
    sums = AccumulatorState(
        node,
        window,
        weights,
        bias.steps[channels],
        operand.scale,
        scale[channels] if scale.size > 1 else scale,
        kernels.type,
        window.output_size(height, width),
        groups=groups,
    )
    sums.residue = bias.residue[channels]
    # ONNX Runtime leaves the bias in floats if the number of scales is neither 1 nor the number of outputs.
    sums.rounded = build.optimised and bias.may_round and not operand.in_floats and kernels.scale.size in (1, outputs)
    sizes = [count * axis.stride - sum(axis.skipped) for count, axis in zip(sums.size, (rows, columns), strict=True)]
    emit = partial(_open, build, node, channels, rows, columns)
    sums.opened = PhaseChannels(channels, emit)
    build.state, build.view = sums, View.channels_first((outputs, sizes[0], sizes[1]))


def _groups(build: Builder, node: onnx.NodeProto, weights: np.ndarray) -> int:
    """Check a ConvTranspose's weights and groups against its input, and return the number of channel groups."""
    channels, groups = build.map.channels, int(attribute(node, "group", 1))
    if weights.ndim != 4:
        raise build.refusal(node, f"must be two-dimensional, not {weights.ndim - 2}-dimensional")
    if groups < 1 or channels % groups:
        raise build.refusal(node, f"group must divide its {channels} input channels, not {groups}")
    if len(weights) != channels:
        raise build.refusal(node, f"weights must have {channels} input channels, not {len(weights)}")
    kernel = tuple(attribute(node, "kernel_shape", weights.shape[2:]))
    if kernel != weights.shape[2:]:
        raise build.refusal(node, f"kernel_shape must be {by(weights.shape[2:])} like the weights, not {by(kernel)}")
    return groups


def _phases(build: Builder, node: onnx.NodeProto, kernel: Sequence[int]) -> tuple[Phases, Phases]:
    """Check a ConvTranspose's attributes, and return a pair: its phases along rows and its phases along columns."""
    strides, dilations = (tuple(attribute(node, name, (1, 1))) for name in ("strides", "dilations"))
    more = tuple(attribute(node, "output_padding", (0, 0)))
    for name, values, lowest in (("strides", strides, 1), ("dilations", dilations, 1), ("output_padding", more, 0)):
        if len(values) != 2 or not lowest <= min(values) <= max(values) <= MAX_SIDE:
            raise build.refusal(node, f"{name} must be two numbers, {lowest} to {MAX_SIDE:,}, not {values}")
    sizes = build.map.height, build.map.width
    full = [
        (size - 1) * stride + extra + (taps - 1) * dilation + 1
        for size, stride, extra, taps, dilation in zip(sizes, strides, more, kernel, dilations, strict=True)
    ]
    pads = _pads(build, node, full, [size * stride for size, stride in zip(sizes, strides, strict=True)])
    outputs = [whole - pads[axis] - pads[axis + 2] for axis, whole in enumerate(full)]
    if min(outputs) < 1:
        raise build.refusal(node, f"padding {pads} crops away all of {by(full)} output pixels")
    try:
        check_map(f"ConvTranspose node {title(node)!r}: its output", 1, *outputs)
    except ConfigError as error:
        raise build.refusal(node, str(error)) from None
    rows, columns = (
        Phases.of(sizes[axis], outputs[axis], strides[axis], kernel[axis], dilations[axis], pads[axis])
        for axis in (0, 1)
    )
    return rows, columns


def _pads(build: Builder, node: onnx.NodeProto, full: Sequence[int], same: Sequence[int]) -> list[int]:
    """Return a list of how many rows and columns a ConvTranspose drops from its full output: top, left, bottom, right.

    Parameters
    ----------
    full : sequence of int
        Rows and columns before any are left out.
    same : sequence of int
        Rows and columns of the output with ``auto_pad`` SAME.
    """
    try:
        mode = padding_mode(node)
    except ConfigError as error:
        raise build.refusal(node, str(error)) from None
    wanted = attribute(node, "output_shape", None)
    if wanted is None and mode.startswith("SAME"):
        wanted = same
    if wanted is None:
        pads = list(attribute(node, "pads", (0,) * 4)) if mode == "NOTSET" else [0] * 4
        if len(pads) != 4 or min(pads) < 0:
            raise build.refusal(node, f"padding must be four numbers, 0 or more, not {pads}")
        return pads
    wanted = list(wanted)[-2:]
    left = [whole - size for whole, size in zip(full, wanted, strict=False)]
    if len(left) != 2 or min(left) < 0:
        raise build.refusal(node, f"output must be at most {by(full)} pixels, not {by(wanted)}")
    less = [total // 2 for total in left]
    rest = [total - half for total, half in zip(left, less, strict=True)]
    return [*less, *rest] if mode == "SAME_UPPER" else [*rest, *less]


def _by_phase(weights: np.ndarray, groups: int, rows: Phases, columns: Phases) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of arrays: weights of one convolution for all phases, and each output's channel in the node.

    The second array has, for each channel of the convolution, the node's output channel. The weights are ``(channels,
    C // groups, Kh, Kw)``; the phases of a group are neighbours.
    """
    inputs, outputs, *kernel = weights.shape
    grouped = weights.reshape(groups, inputs // groups, outputs, *kernel)
    shape = (groups, rows.stride, columns.stride, outputs, inputs // groups, rows.taps, columns.taps)
    result = np.zeros(shape, np.int64)
    for (down, row, y), (right, column, x) in product(rows.tap_positions, columns.tap_positions):
        result[:, down, right, :, :, y, x] = grouped[..., row, column].swapaxes(1, 2)
    channels = np.broadcast_to(np.arange(groups * outputs).reshape(groups, 1, 1, outputs), shape[:4])
    return result.reshape(-1, *shape[4:]), channels.ravel()


def _open(build: Builder, node: onnx.NodeProto, channels: np.ndarray, rows: Phases, columns: Phases) -> None:
    """Append layers that turn a ConvTranspose's phases, which are channels so far, into neighbouring pixels."""
    build.emit_select(node, _phase_by_phase(channels, rows.stride * columns.stride))
    emit_depth_to_space(build, node, (rows.stride, columns.stride))
    (top, bottom), (left, right) = rows.skipped, columns.skipped
    window = Window(kernel=(1, 1), padding=(-top, -left, -bottom, -right))
    if any(window.padding):
        here = build.map
        size = window.output_size(here.height, here.width)
        build.emit(node, Crop, window, here.sized(here.channels, *size))


def _phase_by_phase(channels: np.ndarray, phases: int) -> list[int]:
    """Return a list of channel indices that sorts the outputs of a ConvTranspose's convolution by phase.

    Within a phase they have the order of the node's channels.
    """
    # The phases of a channel are in rising order.
    return np.argsort(channels, kind="stable").reshape(-1, phases).T.ravel().tolist()


OPERATORS = {"ConvTranspose": _conv_transpose}
"""Dictionary of functions that import ConvTranspose, by the ONNX operator's name."""
