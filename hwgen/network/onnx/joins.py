"""Import of ONNX operators that combine several feature maps: sums, products and concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from hwgen.network.float32 import Label, quantize_linear
from hwgen.network.maps import IntegerType
from hwgen.network.onnx.builder import Builder, are_dropped
from hwgen.network.onnx.file import attribute, title
from hwgen.network.onnx.select import open_blocks
from hwgen.network.onnx.values import AccumulatorState, Integers, Joined, Map, Pending, Reals, State, Value
from hwgen.network.onnx.views import CHANNELS, View
from hwgen.network.ops import Add, Concat, Join, Max, Min, Mul, Sub, Sum
from hwgen.network.ops.join import MAX_BITS

_COMBINED: dict[str, type[Join]] = {"Max": Max, "Min": Min, "Sub": Sub}
"""Dictionary of layer classes for ONNX operators that combine maps elementwise, except Add and Sum, by operator name.

Add, and Sum of two maps, become an Add layer.
"""


def combine_maps(build: Builder, node: onnx.NodeProto) -> None:
    """Import an Add, Sub, Sum, Max or Min of several dequantised maps; a QuantizeLinear must follow.

    Add and Sub have two maps. Relu, Clip or MaxPool can be in between.
    """
    operands = _dequantised(build, node)
    check_sizes(build, node, operands, channels=True)
    _join(build, node, _COMBINED.get(node.op_type, Sum if len(operands) > 2 else Add), operands, operands[0].view)


def multiply_maps(build: Builder, node: onnx.NodeProto) -> None:
    """Import a Mul of two dequantised feature maps; a QuantizeLinear must follow."""
    # A map of one pixel, which is broadcast, must be the second one.
    operands = sorted(_dequantised(build, node), key=lambda value: (value.map.height, value.map.width) == (1, 1))
    check_sizes(build, node, operands, channels=True, spread=True)
    _join(build, node, Mul, operands, operands[0].view)


def _concat(build: Builder, node: onnx.NodeProto) -> None:
    """Import a Concat of dequantised feature maps; a QuantizeLinear must follow."""
    operands = _dequantised(build, node)
    _join(build, node, Concat, operands, concatenated(build, node, operands))


def _join(build: Builder, node: onnx.NodeProto, layer: type[Join], operands: Sequence[Value], view: View) -> None:
    """Make a node's float result, from several maps, the builder's current value; its quantiser will append the layer.

    ``layer``: operator class of the layer that the next QuantizeLinear appends. ``view``: layout of its output.
    """
    states = [value.state for value in operands if isinstance(value.state, Reals)]
    here, labels = operands[0].map, [Label(float(state.scale), state.zero) for state in states]
    channels = view.sizes[CHANNELS] if layer is Concat else here.channels

    def make(state: Joined, scale: np.float32, zero: int, integer_type: IntegerType) -> None:
        # ONNX Runtime has one kernel for integers of one type, unless an activation is in between.
        is_one_type = {value.map.type for value in operands} == {integer_type} and integer_type.bits == 8
        fused = is_one_type and not state.in_floats and are_dropped(state.bounds, scale, zero, integer_type)
        if layer is Mul and not fused:
            raise build.refusal(
                node,
                "must take and give integers of one 8-bit type, without an activation that changes any, and without "
                "Resize or Flatten in between: ONNX Runtime multiplies others in floats",
            )
        if integer_type.bits > MAX_BITS:
            raise build.refusal(node, f"its output must have at most {MAX_BITS} bits, not {integer_type}")
        parameters: dict[str, Any] = {"fused": fused and node.op_type == "Add"} if layer in (Add, Sub) else {}
        output = Map(channels, here.height, here.width, integer_type, zero, scale)
        ends = integer_type.ends if layer is Mul else bounds(state.bounds, output)
        parameters |= {"labels": (*labels, Label(float(scale), zero)), "low": ends[0], "high": ends[1]}
        build.emit_join(node, layer, operands, output, **parameters)

    in_floats = any(state.in_floats for state in states)
    build.view = view
    build.state = Joined(node, make, in_floats=in_floats, operands=() if layer is Concat else operands)


def _dequantised(build: Builder, node: onnx.NodeProto) -> list[Value]:
    """Return a list of a joining node's inputs, or refuse it unless all are plain DequantizeLinear outputs."""
    if len(build.operands) != len(node.input):
        raise build.refusal(node, "must take feature maps only, no constants")
    for value in build.operands:
        if not isinstance(value.state, Reals) or value.state.steps:
            raise build.refusal(
                node,
                "must take quantised inputs (QuantizeLinear, DequantizeLinear before each)"
                f"{_what_gives_floats(value.state)}",
            )
    return _with_open_blocks(build, node, build.operands)


def _what_gives_floats(state: State) -> str:
    """Return the end of a message about a float operand: the operator that computes it, and what would help."""
    if isinstance(state, Reals):
        last = state.steps[-1]
    elif isinstance(state, Joined | Pending | AccumulatorState):
        last = state.node
    else:
        return ""
    return (
        f", but {title(last)!r} gives floats; quantise its output, too: ONNX Runtime's quantiser does so if "
        "op_types_to_quantize has the operator that takes them"
    )


def _with_open_blocks(build: Builder, node: onnx.NodeProto, operands: list[Value]) -> list[Value]:
    """Return a list of a join's operands in one layout; if layouts differ, layers that undo blocks are added."""
    views = {value.view for value in operands}
    if len(views) == 1 or not any(view.in_blocks for view in views):
        return operands
    opened = []
    for value in operands:
        build.enter(value)
        open_blocks(build, node)
        opened.append(build.value)
    return opened


def check_sizes(
    build: Builder,
    node: onnx.NodeProto,
    operands: Sequence[Value],
    *,
    channels: bool = False,
    spread: bool = False,
    wide: bool = False,
) -> None:
    """Refuse to combine maps of different rows and columns, or maps of more than `MAX_BITS` bits.

    Parameters
    ----------
    channels : bool
        Whether channels and layout must be equal, too, as for a sum.
    spread : bool
        Whether the last map can be one pixel, which is broadcast to all pixels of the others.
    wide : bool
        Whether maps can have more bits.
    """
    views = [value.view for value in operands]
    sizes = [(value.map.channels if channels else 0, value.map.height, value.map.width) for value in operands]
    if spread and sizes[-1][1:] == (1, 1):
        sizes[-1] = (sizes[-1][0], *sizes[0][1:])
        if views[-1] == views[0].pixel():
            views[-1] = views[0]
    shapes = " and ".join(f"{value.map.channels}x{value.map.height}x{value.map.width}" for value in operands)
    if len(set(sizes)) > 1:
        raise build.refusal(node, f"must take maps of one size, not {shapes}")
    if channels and len(set(views)) > 1:
        laid = " and ".join(f"as {value.view}" for value in operands)
        raise build.refusal(node, f"must take maps that are laid out alike, not {laid}")
    if not wide and max(value.map.type.bits for value in operands) > MAX_BITS:
        kinds = " and ".join(str(value.map.type) for value in operands)
        raise build.refusal(node, f"its maps must have at most {MAX_BITS} bits, not {kinds}")


def concatenated(build: Builder, node: onnx.NodeProto, operands: Sequence[Value], *, wide: bool = False) -> View:
    """Return a `View`: the layout of a concatenation's output, whose axis must be the channels in all operands.

    ``wide``: whether maps can have more than 8 bits.
    """
    check_sizes(build, node, operands, wide=wide)
    rank, axis = 1 + len(operands[0].view.dims), int(attribute(node, "axis", 1))
    dimension = axis % rank - 1 if -rank <= axis < rank else -1
    channels = sum(value.map.channels for value in operands)
    fit = dimension >= 0 and all(len(value.view.dims) == rank - 1 for value in operands)
    views_of_output = {value.view.with_channels(channels, dimension) if fit else None for value in operands}
    if len(views_of_output) > 1 or None in views_of_output:
        views = list(dict.fromkeys(str(value.view) for value in operands if not value.view.plain))
        laid = f"; its inputs are laid out as {' and '.join(views)}" if views else ""
        usual = 1 + max(
            0, next((p for p, dim in enumerate(operands[0].view.dims) if dim and dim[0].axis == CHANNELS), 0)
        )
        raise build.refusal(node, f"axis must be {usual}, the channels, not {axis}{laid}")
    (view,) = views_of_output
    assert view is not None
    return view


def bounds(clips: Sequence[tuple[float, float]], output: Map) -> tuple[int, int]:
    """Return a pair: lowest and highest output integer after Relus and Clips with bounds ``clips`` and a quantiser.

    Quantising keeps the order, so a Relu before it equals bounds after it.
    """
    assert output.scale is not None
    low, high = np.float32(-np.inf), np.float32(np.inf)
    for lower, upper in clips:
        low, high = (np.clip(end, np.float32(lower), np.float32(upper)) for end in (low, high))
    ends = np.array([low, high], np.float32)
    first, last = quantize_linear(ends, output.scale, output.zero_point or 0, output.type).tolist()
    return first, last


def refuse_floats(build: Builder, readers: Sequence[onnx.NodeProto]) -> None:
    """Refuse several readers of a tensor that is not yet a feature map of integers."""
    if len(readers) > 1 and not isinstance(build.state, Integers | Reals):
        names = " and ".join(dict.fromkeys(repr(title(node)) for node in readers))
        raise build.refusal(readers[-1], f"its result goes to {names} as floats; put a QuantizeLinear after it")


OPERATORS = {"Concat": _concat}
"""Dictionary of functions that import concatenations, by the ONNX operator's name."""
