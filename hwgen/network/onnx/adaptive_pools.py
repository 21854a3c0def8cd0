"""Import of adaptive average pools with windows of different sizes, such as PyTorch's AdaptiveAvgPool2d of 2x2 to 7x7.

Each output pixel averages a window of rows and columns of its own. The exporter reads every pixel of the largest window
by a GatherND, sets those beyond a smaller window to 0, adds all, and divides by the number of each window's pixels.

If quantisers stand between these operators, each sum is rounded, and stays so. Gathers then read the pixels, and a
division by numbers that differ between pixels becomes one division per number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import lcm, prod
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.infer import BATCHES, Shape
from hwgen.network.onnx.rewrite import Made, Rewriter, rule

_PICKING = {"Gather", "GatherND", "Transpose", "Where"}
"""Set of names of ONNX operators that PyTorch's exporter emits to read one pixel of each window of an adaptive pool."""
_MAX_SIDE = 1024
"""Maximum height and width (pixels) of a map whose pixels are repeated so that all windows of a pool are equal."""

_PAIR = _QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
"""Pair of ONNX operator names: a quantiser, and the dequantiser that reads it."""
_MAX_DIVISORS = 16
"""Maximum number of pixel groups, with one divisor each, that a Div by per-pixel constants is split into."""
_EXACT = 1 << 24
"""Limit of exact integers in float32: every integer up to 2**24 is represented exactly."""


def _summands(at: Rewriter, tensor: str) -> Iterator[str]:
    """Yield the names of the tensors whose sum, by a tree of Add nodes, is ``tensor``."""
    node = at.graph.producers.get(tensor)
    if node is None or node.op_type != "Add":
        yield tensor
        return
    for name in node.input:
        yield from _summands(at, name)


def _map_before(at: Rewriter, tensor: str) -> str:
    """Return the map's name that ``tensor`` is picked from, by `_PICKING` operators and quantisers without effect."""
    node = at.graph.producers.get(tensor)
    while node is not None and node.op_type in _PICKING:
        tensor = next((name for name in node.input if not at.graph.is_constant(name)), "")
        node = at.graph.producers.get(tensor)
    quantiser = None if node is None else at.graph.producers.get(node.input[0])
    if node is None or quantiser is None or (quantiser.op_type, node.op_type) != _PAIR:
        return tensor
    earlier = _map_before(at, quantiser.input[0])
    first = at.graph.producers.get(earlier)
    is_same = first is not None and first.op_type == _DEQUANTISE and first.input[1:] == quantiser.input[1:]
    return earlier if is_same and quantiser.input[1:] == node.input[1:] else tensor


def _places(at: Rewriter, source: str, summands: Sequence[str], shape: Shape) -> np.ndarray | None:
    """Return the map pixels (from 1; 0: a zero) that summands read per output pixel; ``None`` if channels differ.

    The result is an array ``(summands, rows, columns)``. ``shape``: shape of
    the map ``source``.
    """
    given = helper.make_tensor_value_info(source, onnx.TensorProto.FLOAT, shape)
    ends = [helper.make_empty_tensor_value_info(name) for name in summands]
    nodes = [
        helper.make_node("Identity", node.input[:1], node.output) if node.op_type in _PAIR else node
        for node in at.graph.before(summands, {source})
    ]
    part = at.graph.part("places", nodes, [given], ends)
    values = np.arange(1, prod(shape) + 1, dtype=np.float32).reshape(shape)
    try:
        found = np.stack([*map(np.asarray, ReferenceEvaluator(part).run(None, {source: values}))]).astype(np.int64)
    except Exception:  # operators raise many types of errors; they pick no pixels then
        return None
    if found.ndim != 5 or found.shape[1:3] != shape[:2]:
        return None
    first = found[:, 0, 0]
    channels = np.arange(shape[0] * shape[1]).reshape(*shape[:2], 1, 1) * prod(shape[2:])
    is_alike = (found == np.where(first[:, None, None] > 0, first[:, None, None] + channels, 0)).all()
    return first if is_alike else None


class _Windows(NamedTuple):
    """Windows of an adaptive pool: map size, indices of its rows per output row, and of its columns per output column.

    A window without rows or columns gives 0.
    """

    sizes: Shape
    rows: list[list[int]]
    columns: list[list[int]]

    @classmethod
    def of(cls, at: Rewriter, source: str, summands: Sequence[str]) -> _Windows | None:
        """Return the `_Windows` of the map ``source`` that ``summands`` add up; ``None`` if they add other values."""
        shape = at.graph.shapes.for_batch(BATCHES[0]).of(source)
        if shape is None or len(shape) != 4 or prod(shape) >= _EXACT:
            return None
        places = _places(at, source, summands, shape)
        if places is None:
            return None
        (_, height, length), read = places.shape, places > 0
        ys, xs = np.divmod(places - 1, shape[3])
        rows = [sorted({*ys[:, row][read[:, row]].tolist()}) for row in range(height)]
        columns = [sorted({*xs[:, :, column][read[:, :, column]].tolist()}) for column in range(length)]
        for row, column in product(range(height), range(length)):
            wanted = [y * shape[3] + x + 1 for y, x in product(rows[row], columns[column])]
            if sorted(places[:, row, column]) != [0] * (len(places) - len(wanted)) + wanted:
                return None
        return cls(shape[2:], rows, columns)


@rule("adaptive pool", "read an average over windows of different sizes as a selection and an AveragePool", {"Div"})
def _adaptive_pool(at: Rewriter, node: onnx.NodeProto) -> Made:
    counts, summands = at.graph.constant(node.input[1]), [*_summands(at, node.input[0])]
    source = _map_before(at, summands[0])
    if counts is None or counts.ndim < 2 or not 1 < len(summands) <= _MAX_SIDE or source in summands:
        return None
    windows = _Windows.of(at, source, summands)
    if windows is None:
        return None
    lengths = [np.array([*map(len, of_axis)]) for of_axis in windows[1:]]
    if not np.concatenate(lengths).all() or not np.array_equal(counts.squeeze(), np.outer(*lengths)):
        return None
    sizes = [lcm(*of_axis.tolist()) for of_axis in lengths]
    # A pixel of a smaller window counts several times.
    chosen = [
        [index for window in of_axis for index in window for _ in range(size // len(window))]
        for of_axis, size in zip(windows[1:], sizes, strict=True)
    ]
    if max(map(len, chosen)) > _MAX_SIDE:
        return None
    picked = at.unused(f"{node.output[0]}_picked")
    pool = helper.make_node("AveragePool", [picked], node.output, node.name, kernel_shape=sizes, strides=sizes)
    return [*_gathers(at, source, windows.sizes, chosen, picked), pool]


def _gathers(
    at: Rewriter, source: str, sizes: Sequence[int], chosen: Sequence[Sequence[int]], output: str
) -> list[onnx.NodeProto]:
    """Return a list of Gather nodes that select rows and columns ``chosen``; an index past the end reads 0."""
    nodes, names = list[onnx.NodeProto](), [source, at.unused(f"{output}_rows"), output]
    if any(size in indices for size, indices in zip(sizes, chosen, strict=True)):
        names[0] = at.unused(f"{output}_padded")
        pads = at.keep(f"{output}_pads", np.array([0, 0, 0, 0, 0, 0, 1, 1]))
        nodes.append(helper.make_node("Pad", [source, pads], names[:1]))
    for axis, indices in enumerate(chosen):
        kept = at.keep(f"{output}_indices", np.array(indices))
        nodes.append(helper.make_node("Gather", [names[axis], kept], [names[axis + 1]], axis=2 + axis))
    return nodes


@rule("picked pixels", "read one pixel of each window of an adaptive pool by Gathers of rows and columns", {"Gather"})
def _picked_pixels(at: Rewriter, node: onnx.NodeProto) -> Made:
    index, source = at.graph.constant(node.input[1]), _map_before(at, node.input[0])
    if index is None or index.ndim or source == node.input[0]:
        return None
    windows = _Windows.of(at, source, node.output)
    if windows is None or any(len(window) > 1 for of_axis in windows[1:] for window in of_axis):
        return None
    chosen = [
        [window[0] if window else size for window in of_axis]
        for of_axis, size in zip(windows[1:], windows.sizes, strict=True)
    ]
    return _gathers(at, source, windows.sizes, chosen, node.output[0])


@rule("divisors of pixels", "divide the pixels that are divided by one number by it, each group by itself", {"Div"})
def _divisors_of_pixels(at: Rewriter, node: onnx.NodeProto) -> Made:
    divisors, (reader, *others) = at.graph.constant(node.input[1]), [*at.graph.readers(node.output[0]), None]
    while reader is not None and reader.op_type == "Reshape":
        reader, *others = [*at.graph.readers(reader.output[0]), *others]
    shape = at.graph.shapes.for_batch(BATCHES[0]).of(node.input[0])
    if divisors is None or reader is None or reader.op_type != _QUANTISE or others != [None] or shape is None:
        return None
    if len(shape) != 4 or divisors.shape[-2:] != shape[2:] or divisors.size != prod(shape[2:]):
        return None
    divisors = divisors.reshape(shape[2:])
    groups = [np.unique(divisors, axis=axis, return_inverse=True)[1].ravel() for axis in (0, 1)]
    if not 1 < (max(groups[0]) + 1) * (max(groups[1]) + 1) <= _MAX_DIVISORS:
        return None
    nodes, summands = list[onnx.NodeProto](), list[str]()
    for numbers in product(*(range(max(group) + 1) for group in groups)):
        inside = [np.flatnonzero(group == number).tolist() for group, number in zip(groups, numbers, strict=True)]
        part, ratio, integers, real, spread = (
            at.unused(f"{node.output[0]}_{what}") for what in ("part", "ratio", "integers", "real", "spread")
        )
        divisor = at.keep(f"{node.output[0]}_divisor", divisors[inside[0][0], inside[1][0]])
        nodes += _gathers(at, node.input[0], shape[2:], inside, part)
        nodes.append(helper.make_node("Div", [part, divisor], [ratio]))
        nodes.append(helper.make_node(_QUANTISE, [ratio, *reader.input[1:]], [integers]))
        nodes.append(helper.make_node(_DEQUANTISE, [integers, *reader.input[1:]], [real]))
        places = [
            [of_axis.index(index) if index in of_axis else len(of_axis) for index in range(size)]
            for of_axis, size in zip(inside, shape[2:], strict=True)
        ]
        nodes += _gathers(at, real, [*map(len, inside)], places, spread)
        summands.append(spread)
    return [*nodes, helper.make_node("Sum", summands, node.output, node.name)]


RULES = (_adaptive_pool, _picked_pixels, _divisors_of_pixels)
"""Tuple of rewrite rules that turn exported adaptive pools into Gathers, average pools and divisions by a number."""
