"""Sliding windows of ONNX nodes, with ``auto_pad`` and ``ceil_mode`` resolved into padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwgen.errors import ConfigError
from hwgen.network.maps import Window, covered
from hwgen.network.onnx.file import attribute, by

if TYPE_CHECKING:
    import onnx

_NAMED = {1: ("one", "positive numbers", "a positive number"), 2: ("two", "positive pairs", "a positive pair")}
"""Dictionary by number of dimensions (1 or 2) of words for messages: count, plural and singular."""


WHOLE_MAPS = frozenset(("GlobalMaxPool", "ReduceMax"))
"""Set of names of ONNX operators that are max pools over the whole map (a ReduceMax only if it reduces all pixels)."""


def padding_mode(node: onnx.NodeProto) -> str:
    """Check and return the attribute ``auto_pad`` of a Conv-like ONNX node or a pool; ``NOTSET`` by default.

    Raises
    ------
    ConfigError
        If the value is unknown, or the node has pads as well.
    """
    mode = attribute(node, "auto_pad", b"NOTSET").decode(errors="replace")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ConfigError(f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not {mode[:40]!r}")
    if mode != "NOTSET" and not node.op_type.endswith("Pool") and attribute(node, "pads", None) is not None:
        raise ConfigError(f"has both pads and auto_pad {mode}; give one of the two")
    return mode


def window_of(
    node: onnx.NodeProto, kernel: tuple[int, ...], sizes: tuple[int, int], axes: tuple[int, ...] = (0, 1)
) -> Window:
    """Return the sliding `Window` of a Conv-like ONNX node or a pool over a feature map.

    The padding at the bottom and at the right is only as large as the windows reach.

    Parameters
    ----------
    kernel : tuple of int
        Size of the kernel along each dimension of the node.
    sizes : tuple of int
        Rows and columns of the map.
    axes : tuple of int
        Axis of each dimension of the node: rows (0) or columns (1).

    Raises
    ------
    ConfigError
        If attributes make no sense or can't be built, or no window fits.
    """
    rank = len(axes)
    dimensions, pairs, pair = _NAMED[rank]
    if len(kernel) != rank:
        raise ConfigError(f"must be {dimensions}-dimensional, not {len(kernel)}-dimensional")
    stride = tuple(attribute(node, "strides", (1,) * rank))
    if len(stride) != rank or min(*kernel, *stride) < 1:
        raise ConfigError(f"kernel and strides must be {pairs}, not {by(kernel)} and {by(stride)}")
    dilation = tuple(attribute(node, "dilations", (1,) * rank))
    if len(dilation) != rank or min(dilation) < 1:
        raise ConfigError(f"dilations must be {pair}, not {by(dilation)}")
    # Dilation has no meaning for a single tap.
    dilation = tuple(1 if k == 1 else d for k, d in zip(kernel, dilation, strict=True))
    mode = padding_mode(node)
    pads = tuple(attribute(node, "pads", (0,) * 2 * rank)) if mode == "NOTSET" else (0,) * 2 * rank
    if len(pads) != 2 * rank or min(pads) < 0:
        raise ConfigError(f"padding must be {['two', 'four'][rank - 1]} numbers, 0 or more, not {pads}")
    ceil = attribute(node, "ceil_mode", 0)
    if ceil not in (0, 1):
        raise ConfigError(f"ceil_mode must be 0 or 1, not {ceil}")
    if ceil and mode == "VALID":
        # ONNX ignores ceil_mode here, ONNX Runtime does not.
        raise ConfigError("ceil_mode with auto_pad VALID is ambiguous; give pads instead")
    if mode.startswith("SAME") and node.op_type == "MaxPool" and max(dilation) > 1:
        # ONNX pads for the dilated window, ONNX Runtime for the window without dilation.
        raise ConfigError(f"auto_pad {mode} with dilations {by(dilation)} is ambiguous; give pads instead")
    before, after = [0, 0], [0, 0]
    for dimension, axis in enumerate(axes):
        size = sizes[axis]
        k, s, start, end = (
            covered(kernel[dimension], dilation[dimension]),
            stride[dimension],
            pads[dimension],
            pads[dimension + rank],
        )
        if mode.startswith("SAME"):
            count = -(-size // s)
            total = (count - 1) * s + k - size
            if total < 0 and node.op_type.endswith("Pool"):
                # Depending on the map's type, ONNX Runtime applies this negative padding, or refuses the model.
                raise ConfigError(
                    f"auto_pad {mode} would pad by {total}: kernel {by(kernel)} is too small for strides {by(stride)} "
                    f"over {by(sizes)}; give pads instead"
                )
            total = max(total, 0)
            start = total // 2 if mode == "SAME_UPPER" else total - total // 2
        else:
            room = size + start + end - k
            count = (-(-room // s) if ceil else room // s) + 1
            if ceil and (count - 1) * s >= size + start:
                count -= 1  # a window that would start in the padding after the map
        if count < 1:
            dilated = "" if max(dilation) == 1 else f" with dilations {by(dilation)}"
            raise ConfigError(f"kernel {by(kernel)}{dilated} does not fit its {by(sizes)} input")
        before[axis] = start
        after[axis] = max(0, (count - 1) * s + k - size - start)
    return Window(
        kernel=_pair(kernel, axes),
        stride=_pair(stride, axes),
        padding=(before[0], before[1], after[0], after[1]),
        dilation=_pair(dilation, axes),
    )


def _pair(numbers: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int]:
    """Return a window parameter as a pair (along rows, along columns), with 1 for an axis the node lacks."""
    by_axis = dict(zip(axes, numbers, strict=True))
    return by_axis.get(0, 1), by_axis.get(1, 1)
