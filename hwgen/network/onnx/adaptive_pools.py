"""Adaptive average pools whose windows differ, as PyTorch exports them: AdaptiveAvgPool2d from 2x2 to 7x7 pixels.

Each output pixel averages a window of rows and columns of its own. The exporter reads every pixel of the largest window
by a GatherND, sets those beyond a smaller window to 0, adds all, and divides by the number of each window's pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import lcm, prod

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.infer import BATCHES
from hwgen.network.onnx.rewrite import Made, Rewriter, rule

_PICKING = {"Gather", "GatherND", "Transpose", "Where"}
"""ONNX operators by which the exporter reads one pixel of each window."""
_MAX_SIDE = 1024
"""Largest number of rows or columns of all windows together, with pixels repeated until windows are of one size."""

_EXACT = 1 << 24
"""Bound of integers that float32 holds exactly."""


def _summands(at: Rewriter, tensor: str) -> Iterator[str]:
    """Yield the tensors that a tree of Adds sums up to ``tensor``."""
    node = at.graph.producers.get(tensor)
    if node is None or node.op_type != "Add":
        yield tensor
        return
    for name in node.input:
        yield from _summands(at, name)


def _map_before(at: Rewriter, tensor: str) -> str:
    """Return the tensor whose values operators of `_PICKING` pick for ``tensor``."""
    node = at.graph.producers.get(tensor)
    while node is not None and node.op_type in _PICKING:
        tensor = next((name for name in node.input if not at.graph.is_constant(name)), "")
        node = at.graph.producers.get(tensor)
    return tensor


def _places(at: Rewriter, source: str, summands: Sequence[str]) -> np.ndarray | None:
    """Return the pixel of a map that each summand reads for each output pixel, from 1 on; 0 for the constant 0.

    The result, ``(summands, rows, columns)``, is ``None`` if they don't read each channel alike.
    """
    shape = at.graph.shapes.for_batch(BATCHES[0]).of(source)
    if shape is None or len(shape) != 4 or prod(shape) >= _EXACT:
        return None
    given = helper.make_tensor_value_info(source, onnx.TensorProto.FLOAT, shape)
    ends = [helper.make_empty_tensor_value_info(name) for name in summands]
    part = at.graph.part("places", at.graph.before(summands, {source}), [given], ends)
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


def _windows(places: np.ndarray, width: int) -> tuple[list[list[int]], list[list[int]]] | None:
    """Return the rows of each output row's windows, and the columns of each output column's; ``None`` if they differ.

    ``width``: columns of the map.
    """
    (_, height, length), read = places.shape, places > 0
    ys, xs = np.divmod(places - 1, width)
    rows = [sorted({*ys[:, row][read[:, row]].tolist()}) for row in range(height)]
    columns = [sorted({*xs[:, :, column][read[:, :, column]].tolist()}) for column in range(length)]
    for row, column in product(range(height), range(length)):
        wanted = [y * width + x + 1 for y, x in product(rows[row], columns[column])]
        if not wanted or sorted(places[:, row, column]) != [0] * (len(places) - len(wanted)) + wanted:
            return None
    return rows, columns


@rule("adaptive pool", "read an average over windows of different sizes as a selection and an AveragePool", {"Div"})
def _adaptive_pool(at: Rewriter, node: onnx.NodeProto) -> Made:
    counts, summands = at.graph.constant(node.input[1]), [*_summands(at, node.input[0])]
    source = _map_before(at, summands[0])
    if counts is None or counts.ndim < 2 or not 1 < len(summands) <= _MAX_SIDE or source in summands:
        return None
    places = _places(at, source, summands)
    shape = at.graph.shapes.for_batch(BATCHES[0]).of(source)
    windows = None if places is None or shape is None else _windows(places, shape[3])
    if windows is None:
        return None
    heights, widths = (np.array([*map(len, of_axis)]) for of_axis in windows)
    if not np.array_equal(counts.squeeze(), np.outer(heights, widths)):
        return None
    nodes, name, kernel = list[onnx.NodeProto](), source, []
    for axis, of_axis in enumerate(windows, start=2):
        # A pixel of a smaller window counts several times.
        size = lcm(*map(len, of_axis))
        chosen = [index for window in of_axis for index in window for _ in range(size // len(window))]
        if len(chosen) > _MAX_SIDE:
            return None
        indices, picked = at.keep(f"{node.output[0]}_indices", np.array(chosen)), at.unused(f"{node.output[0]}_picked")
        nodes.append(helper.make_node("Gather", [name, indices], [picked], axis=axis))
        name, kernel = picked, [*kernel, size]
    pool = helper.make_node("AveragePool", [name], node.output, node.name, kernel_shape=kernel, strides=kernel)
    return [*nodes, pool]


RULES = (_adaptive_pool,)
"""Rules that read an adaptive pool as ONNX Runtime's average pools."""
