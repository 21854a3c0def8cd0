"""The sliding windows of ONNX nodes, with ``auto_pad`` and ``ceil_mode`` resolved into padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwgen.errors import ConfigError
from hwgen.network.maps import Window, covered
from hwgen.network.onnx.file import attribute, by

if TYPE_CHECKING:
    import onnx


def padding_mode(node: onnx.NodeProto) -> str:
    """The node's ``auto_pad``; raises ConfigError."""
    mode = attribute(node, "auto_pad", b"NOTSET").decode(errors="replace")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ConfigError(f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not {mode[:40]!r}")
    if mode != "NOTSET" and not node.op_type.endswith("Pool") and attribute(node, "pads", None) is not None:
        raise ConfigError(f"has pads beside auto_pad {mode}; give one of the two")
    return mode


def window_of(node: onnx.NodeProto, kernel: tuple[int, ...], height: int, width: int) -> Window:
    """The window of a Conv-like node or a pool over a ``height x width`` map.

    Padding at the bottom and at the right is what windows reach, no more.

    Raises
    ------
    ConfigError
        If its attributes make no sense, can't be built, or no window fits.
    """
    if len(kernel) != 2:
        raise ConfigError(f"must be two-dimensional, not {len(kernel)}-dimensional")
    stride = tuple(attribute(node, "strides", (1, 1)))
    if len(stride) != 2 or min(*kernel, *stride) < 1:
        raise ConfigError(f"kernel and strides must be positive pairs, not {by(kernel)} and {by(stride)}")
    dilation = tuple(attribute(node, "dilations", (1, 1)))
    if len(dilation) != 2 or min(dilation) < 1:
        raise ConfigError(f"dilations must be a positive pair, not {by(dilation)}")
    # A single tap has none to keep its distance from.
    dilation = tuple(1 if k == 1 else d for k, d in zip(kernel, dilation, strict=True))
    mode = padding_mode(node)
    pads = tuple(attribute(node, "pads", (0, 0, 0, 0))) if mode == "NOTSET" else (0, 0, 0, 0)
    if len(pads) != 4 or min(pads) < 0:
        raise ConfigError(f"padding must be four numbers, 0 or more, not {pads}")
    ceil = attribute(node, "ceil_mode", 0)
    if ceil not in (0, 1):
        raise ConfigError(f"ceil_mode must be 0 or 1, not {ceil}")
    if ceil and mode == "VALID":
        # ONNX ignores ceil_mode here, ONNX Runtime does not.
        raise ConfigError("ceil_mode with auto_pad VALID is ambiguous; give pads instead")
    if mode.startswith("SAME") and node.op_type == "MaxPool" and dilation != (1, 1):
        # ONNX pads for all that a window covers, ONNX Runtime as if it were not dilated.
        raise ConfigError(f"auto_pad {mode} with dilations {by(dilation)} is ambiguous; give pads instead")
    before, after = [], []
    for axis, size in enumerate((height, width)):
        k, s, start, end = covered(kernel[axis], dilation[axis]), stride[axis], pads[axis], pads[axis + 2]
        if mode.startswith("SAME"):
            count = -(-size // s)
            total = (count - 1) * s + k - size
            if total < 0 and node.op_type.endswith("Pool"):
                # ONNX Runtime pads by so much less than nothing, or refuses, by the type of the map.
                raise ConfigError(
                    f"auto_pad {mode} would pad by {total}: kernel {by(kernel)} is too small for strides {by(stride)} "
                    f"over {height}x{width}; give pads instead"
                )
            total = max(total, 0)
            start = total // 2 if mode == "SAME_UPPER" else total - total // 2
        else:
            room = size + start + end - k
            count = (-(-room // s) if ceil else room // s) + 1
            if ceil and (count - 1) * s >= size + start:
                count -= 1  # a window that would start in the padding behind the map
        if count < 1:
            dilated = "" if dilation == (1, 1) else f" with dilations {by(dilation)}"
            raise ConfigError(f"kernel {by(kernel)}{dilated} does not fit its {height}x{width} input")
        before.append(start)
        after.append(max(0, (count - 1) * s + k - size - start))
    return Window(
        kernel=(kernel[0], kernel[1]),
        stride=(stride[0], stride[1]),
        padding=(*before, *after),
        dilation=(dilation[0], dilation[1]),
    )
