"""Operators that take several feature maps: sums, products and concatenations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from hwgen.network.float32 import Label, quantize_linear
from hwgen.network.maps import IntegerType
from hwgen.network.onnx.builder import Builder, moot
from hwgen.network.onnx.file import attribute, title
from hwgen.network.onnx.values import Integers, Joined, Map, Reals, Value
from hwgen.network.onnx.views import CHANNELS, View
from hwgen.network.ops import Add, Concat, Join, Max, Min, Mul, Sub, Sum
from hwgen.network.ops.join import MOST_BITS

_COMBINED: dict[str, type[Join]] = {"Max": Max, "Min": Min, "Sub": Sub}
"""Layers whose operator says which they are; Add and Sum are one operator of two maps."""


def combine_maps(build: Builder, node: onnx.NodeProto) -> None:
    """Add or Sub of two dequantised maps, or Sum, Max or Min of several; a QuantizeLinear must follow.

    Relu, Clip or MaxPool may stand before it.
    """
    operands = _dequantised(build, node)
    _check_sizes(build, node, operands, channels=True)
    layer = _COMBINED.get(node.op_type, Sum if len(operands) > 2 else Add)

    def make(state: Joined, scale: np.float32, zero: int, kind: IntegerType) -> None:
        types = {value.map.type for value in operands} | {kind}
        # ONNX Runtime has one kernel for integers of one type, unless an activation stands in between.
        fused = len(types) == 1 and kind.bits == 8 and moot(state.bounds, scale, zero, kind) and not state.in_floats
        parameters = {"fused": fused and node.op_type == "Add"} if layer in (Add, Sub) else {}
        output = _output(operands[0], scale, zero, kind)
        _emit(build, node, layer, operands, output, bounds(state, output), **parameters)

    build.view = operands[0].view
    build.state = Joined(node, make, in_floats=_in_floats(operands))


def multiply_maps(build: Builder, node: onnx.NodeProto) -> None:
    """Mul of two dequantised maps; a QuantizeLinear must follow."""
    operands = _spread_last(_dequantised(build, node))
    _check_sizes(build, node, operands, channels=True, spread=True)

    def make(state: Joined, scale: np.float32, zero: int, kind: IntegerType) -> None:
        types = {value.map.type for value in operands} | {kind}
        if len(types) > 1 or kind.bits != 8 or state.in_floats or not moot(state.bounds, scale, zero, kind):
            raise build.refusal(
                node,
                "must take and give integers of one 8-bit type, without an activation that changes any, and without "
                "Resize or Flatten in between: ONNX Runtime multiplies others in floats",
            )
        _emit(build, node, Mul, operands, _output(operands[0], scale, zero, kind), (kind.minimum, kind.maximum))

    build.view = operands[0].view
    build.state = Joined(node, make, in_floats=_in_floats(operands))


def multiply_integers(build: Builder, node: onnx.NodeProto) -> None:
    """com.microsoft QLinearMul of two maps."""
    operands = _spread_last(_integers(build, node, (0, 3)))
    _check_sizes(build, node, operands, channels=True, spread=True)
    _emit_integers(build, node, Mul, operands, operands[0].view, 6)


def _spread_last(operands: list[Value]) -> list[Value]:
    """The two factors, a map of one pixel behind one of many."""
    return sorted(operands, key=lambda value: (value.map.height, value.map.width) == (1, 1))


def _concat(build: Builder, node: onnx.NodeProto) -> None:
    operands = _dequantised(build, node)
    view = _concatenated(build, node, operands)

    def make(state: Joined, scale: np.float32, zero: int, kind: IntegerType) -> None:
        output = _output(operands[0], scale, zero, kind, view.sizes[CHANNELS])
        _emit(build, node, Concat, operands, output, bounds(state, output))

    build.view = view
    build.state = Joined(node, make, in_floats=_in_floats(operands))


def qlinear_add(build: Builder, node: onnx.NodeProto) -> None:
    """com.microsoft QLinearAdd of two maps."""
    operands = _integers(build, node, (0, 3))
    _check_sizes(build, node, operands, channels=True)
    _emit_integers(build, node, Add, operands, operands[0].view, 6, fused=True)


def _qlinear_concat(build: Builder, node: onnx.NodeProto) -> None:
    """com.microsoft QLinearConcat: the output's scale and zero point, then a map with its own, and so on."""
    operands = _integers(build, node, range(2, len(node.input), 3))
    view = _concatenated(build, node, operands)
    _emit_integers(build, node, Concat, operands, view, 0)


def _emit_integers(
    build: Builder,
    node: onnx.NodeProto,
    kind: type[Join],
    operands: Sequence[Value],
    view: View,
    first: int,
    **parameters: bool,
) -> None:
    """Emit the layer of an operator on integers whose output's scale and zero point are its inputs from ``first`` on.

    The output lies on its map as ``view`` says.
    """
    scale, zero, type_ = build.constants.per_tensor(node, first, operands[0].map.type.dtype)
    output = _output(operands[0], scale, zero, type_, view.sizes[CHANNELS])
    _emit(build, node, kind, operands, output, (type_.minimum, type_.maximum), **parameters)
    build.view, build.state = view, Integers()


def _dequantised(build: Builder, node: onnx.NodeProto) -> list[Value]:
    """The maps that the node takes, which must be plain outputs of DequantizeLinear."""
    if len(build.operands) != len(node.input):
        raise build.refusal(node, "must take feature maps only, no constants")
    for value in build.operands:
        if not isinstance(value.state, Reals) or value.state.steps:
            raise build.refusal(node, "must take quantised inputs (QuantizeLinear, DequantizeLinear in front of each)")
    return build.operands


def _integers(build: Builder, node: onnx.NodeProto, places: Sequence[int]) -> list[Value]:
    """The maps at some of the node's inputs, with scale and zero point behind each."""
    if len(build.operands) != len(places):
        raise build.refusal(node, f"must take {len(places)} feature maps, not {len(build.operands)} and constants")
    operands = []
    for value, place in zip(build.operands, places, strict=True):
        build.enter(value)
        build.quantised_input(node, place + 1)
        operands.append(build.value)
    return operands


def _check_sizes(
    build: Builder, node: onnx.NodeProto, operands: Sequence[Value], *, channels: bool = False, spread: bool = False
) -> None:
    """Maps must be of the same rows and columns, for a sum also of the same ``channels``, and lie alike.

    ``spread``: the last one may be a pixel for all pixels of the others.
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
    if max(value.map.type.bits for value in operands) > MOST_BITS:
        kinds = " and ".join(str(value.map.type) for value in operands)
        raise build.refusal(node, f"joins maps of at most {MOST_BITS} bits, not {kinds}")


def _concatenated(build: Builder, node: onnx.NodeProto, operands: Sequence[Value]) -> View:
    """How a concatenation lies, whose axis must be that of the channels in all operands."""
    _check_sizes(build, node, operands)
    rank, axis = 1 + len(operands[0].view.dims), int(attribute(node, "axis", 1))
    place = axis % rank - 1 if -rank <= axis < rank else -1
    channels = sum(value.map.channels for value in operands)
    fit = place >= 0 and all(len(value.view.dims) == rank - 1 for value in operands)
    found = {value.view.with_channels(channels, place) if fit else None for value in operands}
    if len(found) > 1 or None in found:
        views = list(dict.fromkeys(str(value.view) for value in operands if not value.view.plain))
        laid = f"; its inputs are laid out as {' and '.join(views)}" if views else ""
        usual = 1 + max(
            0, next((p for p, dim in enumerate(operands[0].view.dims) if dim and dim[0].axis == CHANNELS), 0)
        )
        raise build.refusal(node, f"axis must be {usual}, that of the channels, not {axis}{laid}")
    (view,) = found
    assert view is not None
    return view


def bounds(state: Joined, output: Map) -> tuple[int, int]:
    """Bounds of the output: quantising keeps the order, so a Relu before it may as well be one behind it."""
    assert output.scale is not None
    low, high = np.float32(-np.inf), np.float32(np.inf)
    for least, most in state.bounds:
        low, high = (np.clip(end, np.float32(least), np.float32(most)) for end in (low, high))
    ends = np.array([low, high], np.float32)
    first, last = quantize_linear(ends, output.scale, output.zero_point or 0, output.type).tolist()
    return first, last


def _output(source: Value, scale: np.float32, zero: int, kind: IntegerType, channels: int | None = None) -> Map:
    here = source.map
    return Map(channels or here.channels, here.height, here.width, kind, zero, scale)


def _in_floats(operands: Sequence[Value]) -> bool:
    return any(isinstance(value.state, Reals) and value.state.in_floats for value in operands)


def _label(map_: Map) -> Label:
    assert map_.scale is not None
    return Label(float(map_.scale), map_.zero_point or 0)


def _emit(
    build: Builder,
    node: onnx.NodeProto,
    kind: type[Join],
    operands: Sequence[Value],
    output: Map,
    bounds: tuple[int, int],
    **parameters: bool,
) -> None:
    """A layer of one of these kinds; ``parameters`` are its own."""
    if output.type.bits > MOST_BITS:
        raise build.refusal(node, f"gives at most {MOST_BITS} bits, not {output.type}")
    labels = tuple(_label(each) for each in (*(value.map for value in operands), output))
    build.emit_join(node, kind, operands, output, labels=labels, low=bounds[0], high=bounds[1], **parameters)


def refuse_floats(build: Builder, readers: Sequence[onnx.NodeProto]) -> None:
    """Refuse a fork of what is no feature map of integers yet."""
    if len(readers) > 1 and not isinstance(build.state, Integers | Reals):
        names = " and ".join(dict.fromkeys(repr(title(node)) for node in readers))
        raise build.refusal(readers[-1], f"takes floats that go to {names}; only integers may: quantise them first")


OPERATORS = {
    "Concat": _concat,
    "QLinearConcat": _qlinear_concat,
}
