"""ConvTranspose: a convolution for each phase of its strides, whose channels become pixels.

Output ``o`` of an axis takes input ``i`` with tap ``k`` where ``o + pad = i * stride + k * dilation``. With ``o`` as
``q * stride + phase`` that is input ``q + delta``, and ``delta`` depends on the phase and the tap alone: so outputs of
one phase are those of a convolution without stride, with some of the taps. All phases are output channels of one
convolution; its window holds the taps of all of them, and zeros where a phase has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import onnx

from hwgen.errors import ConfigError
from hwgen.network.maps import MOST_SIDE, MOST_WEIGHTS, Window, check_map, check_window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.depth import emit_depth_to_space
from hwgen.network.onnx.file import attribute, by, title
from hwgen.network.onnx.qdq import plain_operand
from hwgen.network.onnx.values import Opened, Sums
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.onnx.windows import padding_mode
from hwgen.network.ops import Crop

#: Outputs that are skipped in front, tried in turn for the fewest taps.
MOST_TRIED = 64


@dataclass(frozen=True)
class Phases:
    """One axis of a transposed convolution as phases of a convolution.

    Parameters
    ----------
    stride : int
        Phases.
    taps : int
        Of the convolution's window.
    padding : tuple of int
        Of the convolution, before and behind the map.
    places : tuple of (int, int, int)
        Phase, tap of the transposed convolution, and tap of the convolution.
    skipped : tuple of int
        Outputs of all phases together that are none of the node's, before and behind these.
    """

    stride: int
    taps: int
    padding: tuple[int, int]
    places: tuple[tuple[int, int, int], ...]
    skipped: tuple[int, int]

    @classmethod
    def of(cls, size: int, outputs: int, stride: int, kernel: int, dilation: int, pad: int) -> Phases:
        """Those with the fewest taps, and then with the fewest outputs that are skipped.

        Parameters
        ----------
        size, outputs : int
            Of the input and of the output map.
        pad : int
            Outputs that are left out before the map.
        """
        # Where the first tap meets phase 0 there are as few taps as can be; the least skipped come sooner.
        firsts = {*range(min(stride, MOST_TRIED)), pad % stride}
        found = (cls._skipping(first, size, outputs, stride, kernel, dilation, pad) for first in sorted(firsts))
        return min(found, key=lambda phases: (phases.taps, sum(phases.skipped)))

    @classmethod
    def _skipping(
        cls, first: int, size: int, outputs: int, stride: int, kernel: int, dilation: int, pad: int
    ) -> Phases:
        """Those whose phase 0 begins so many outputs before the first one, or some rounds of phases more."""
        phases = [(tap * dilation + first - pad) % stride for tap in range(kernel)]
        deltas = [(phase - first + pad - tap * dilation) // stride for tap, phase in enumerate(phases)]
        # Padding must not be negative: what is left out of the map at either end is skipped behind it.
        early = max(min(deltas), 0)
        deltas, first = [delta - early for delta in deltas], first + early * stride
        low, high = min(deltas), max(deltas)
        rounds = max(-(-(outputs + first) // stride), size - high)
        return cls(
            stride=stride,
            taps=high - low + 1,
            padding=(-low, rounds - 1 + high - (size - 1)),
            places=tuple(
                (phase, tap, delta - low) for tap, (phase, delta) in enumerate(zip(phases, deltas, strict=True))
            ),
            skipped=(first, rounds * stride - outputs - first),
        )


def _conv_transpose(build: Builder, node: onnx.NodeProto) -> None:
    operand = plain_operand(build, node)
    if build.spatial_axes(node) != (ROWS, COLUMNS):
        raise build.refusal(node, f"must take (N, C, H, W), but its input is laid out as {build.view}")
    of = build.constants.float_weights(node, 1)
    groups = _groups(build, node, of.values)
    rows, columns = _phases(build, node, of.values.shape[2:])
    outputs = of.values.shape[1] * groups
    if (count := outputs * rows.stride * columns.stride) > MOST_SIDE:
        raise build.refusal(node, f"must have at most {MOST_SIDE:,} channels for all phases, not {count:,}")
    if (count := count * len(of.values) // groups * rows.taps * columns.taps) > MOST_WEIGHTS:
        raise build.refusal(node, f"must have at most {MOST_WEIGHTS:,} weights for all phases, not {count:,}")
    weights, channels = _by_phase(of.values, groups, rows, columns)
    scale = np.tile(of.scale, groups) if of.scale.size > 1 else of.scale
    bias = build.constants.bias(node, 2, outputs, operand.scale * scale)
    window = Window(
        kernel=(rows.taps, columns.taps),
        padding=(rows.padding[0], columns.padding[0], rows.padding[1], columns.padding[1]),
    )
    height, width = build.map.height, build.map.width
    check_window(f"ConvTranspose node {title(node)!r}", window, 1, height, width)
    sums = Sums(
        node,
        window,
        weights,
        bias.steps[channels],
        operand.scale,
        scale[channels] if scale.size > 1 else scale,
        of.type,
        window.output_size(height, width),
        groups=groups,
    )
    sums.residue = bias.residue[channels]
    # ONNX Runtime leaves a bias in floats where there are not as many scales.
    sums.rounded = build.optimised and bias.may_round and not operand.in_floats and of.scale.size in (1, outputs)
    sizes = [count * axis.stride - sum(axis.skipped) for count, axis in zip(sums.size, (rows, columns), strict=True)]
    emit = partial(_open, build, node, channels, rows, columns)
    sums.opened = Opened(channels, emit)
    build.state, build.view = sums, View.channels_first((outputs, sizes[0], sizes[1]))


def _groups(build: Builder, node: onnx.NodeProto, weights: np.ndarray) -> int:
    channels, groups = build.map.channels, int(attribute(node, "group", 1))
    if weights.ndim != 4:
        raise build.refusal(node, f"must be two-dimensional, not {weights.ndim - 2}-dimensional")
    if groups < 1 or channels % groups:
        raise build.refusal(node, f"group must divide its {channels} input channels, not {groups}")
    if len(weights) != channels:
        raise build.refusal(node, f"weights must be for {channels} channels, not {len(weights)}")
    kernel = tuple(attribute(node, "kernel_shape", weights.shape[2:]))
    if kernel != weights.shape[2:]:
        raise build.refusal(
            node, f"kernel_shape must be that of the weights, {by(weights.shape[2:])}, not {by(kernel)}"
        )
    return groups


def _phases(build: Builder, node: onnx.NodeProto, kernel: Sequence[int]) -> tuple[Phases, Phases]:
    """Of rows and of columns."""
    strides, dilations = (tuple(attribute(node, name, (1, 1))) for name in ("strides", "dilations"))
    more = tuple(attribute(node, "output_padding", (0, 0)))
    for name, values, least in (("strides", strides, 1), ("dilations", dilations, 1), ("output_padding", more, 0)):
        if len(values) != 2 or not least <= min(values) <= max(values) <= MOST_SIDE:
            raise build.refusal(node, f"{name} must be two numbers, {least} to {MOST_SIDE:,}, not {values}")
    sizes = build.map.height, build.map.width
    full = [
        (size - 1) * stride + extra + (taps - 1) * dilation + 1
        for size, stride, extra, taps, dilation in zip(sizes, strides, more, kernel, dilations, strict=True)
    ]
    pads = _pads(build, node, full, [size * stride for size, stride in zip(sizes, strides, strict=True)])
    outputs = [whole - pads[axis] - pads[axis + 2] for axis, whole in enumerate(full)]
    if min(outputs) < 1:
        raise build.refusal(node, f"padding {pads} leaves nothing of {by(full)} pixels")
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
    """Rows and columns that are left out: top, left, bottom, right.

    ``full``: those that there are without; ``same``: those that stay with ``auto_pad`` SAME.
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
    """A convolution's weights ``(channels, C // groups, Kh, Kw)`` of all phases, those of a group side by side; and for
    each of its output channels that of the node."""
    inputs, outputs, *kernel = weights.shape
    grouped = weights.reshape(groups, inputs // groups, outputs, *kernel)
    shape = (groups, rows.stride, columns.stride, outputs, inputs // groups, rows.taps, columns.taps)
    result = np.zeros(shape, np.int64)
    for (down, row, y), (right, column, x) in product(rows.places, columns.places):
        result[:, down, right, :, :, y, x] = grouped[..., row, column].swapaxes(1, 2)
    channels = np.broadcast_to(np.arange(groups * outputs).reshape(groups, 1, 1, outputs), shape[:4])
    return result.reshape(-1, *shape[4:]), channels.ravel()


def _open(build: Builder, node: onnx.NodeProto, channels: np.ndarray, rows: Phases, columns: Phases) -> None:
    """The pixels of the phases, of what the convolution gave."""
    build.emit_select(node, _phase_by_phase(channels, rows.stride * columns.stride))
    emit_depth_to_space(build, node, (rows.stride, columns.stride))
    (top, bottom), (left, right) = rows.skipped, columns.skipped
    window = Window(kernel=(1, 1), padding=(-top, -left, -bottom, -right))
    if any(window.padding):
        here = build.map
        size = window.output_size(here.height, here.width)
        build.emit(node, Crop, window, here.sized(here.channels, *size))


def _phase_by_phase(channels: np.ndarray, phases: int) -> list[int]:
    """The convolution's channels, those of each phase in the order of the node's."""
    # A channel's phases rise within its group.
    return np.argsort(channels, kind="stable").reshape(-1, phases).T.ravel().tolist()


OPERATORS = {"ConvTranspose": _conv_transpose}
