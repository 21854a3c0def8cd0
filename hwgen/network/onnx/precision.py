"""Search for the precision that fixed-point numbers need if they stand for floats before a QuantizeLinear."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import Effect, with_effect

_FRACTION = 2.0**-16
"""Maximum step of fixed-point numbers, as a fraction of the scale of the QuantizeLinear that follows them.

One rounding to such a step changes about one output of 260,000.
"""
_TYPICAL = 32
"""Assumed magnitude of a product's operand, in steps of the QuantizeLinear that follows the product."""
_GATES = {"HardSigmoid", "Sigmoid", "Softmax", "Tanh"}
"""ONNX operators whose results lie between -1 and 1."""
_MOVED = with_effect(Effect.POOL, Effect.GLOBAL_POOL, Effect.RENAMING, Effect.RESIZE, Effect.SAME, Effect.SELECTION)
"""ONNX operators whose results have the same fixed-point step as their input."""
_ENDS = with_effect(Effect.CONVOLUTION, Effect.PRODUCT, Effect.QUANTISER)
"""ONNX operators that end the search for a later QuantizeLinear, because they don't read fixed-point floats."""


def units(graph: GraphIndex) -> Mapping[str, float]:
    """Return the largest permitted fixed-point step (LSB) for each float tensor, as a real number by tensor name.

    It is a power of two times the scale of a later QuantizeLinear. Tensors that no QuantizeLinear depends on without
    another quantiser in between are left out.
    """
    steps: dict[str, float] = {}
    for node in reversed(graph.needed):
        if node.op_type == "QuantizeLinear":
            scale = graph.constant(node.input[1])
            if scale is not None and scale.size == 1:
                _lower_step(steps, node.input[0], float(scale.item()) * _FRACTION)
        elif node.op_type not in _ENDS:
            wanted = min((steps[name] for name in node.output if name in steps), default=None)
            if wanted is not None:
                for index, name in enumerate(node.input):
                    _lower_step(
                        steps, name, wanted / 2.0 ** math.ceil(math.log2(_gain(graph, node, index, wanted / _FRACTION)))
                    )
    _equalise_steps(graph, steps)
    return steps


def _equalise_steps(graph: GraphIndex, steps: dict[str, float]) -> None:
    """Give concatenated tensors, and the tensors they are moved from, the smallest of their steps (LSBs)."""
    joined = [
        [name for name in (*node.input, *node.output) if name in steps]
        for node in graph.needed
        if node.op_type == "Concat" or node.op_type in _MOVED
    ]
    while True:
        before = sum(steps.values())
        for names in (*joined, *reversed(joined)):
            smallest = min((steps[name] for name in names), default=0.0)
            steps.update(dict.fromkeys(names, smallest))
        if sum(steps.values()) == before:
            return


def _lower_step(steps: dict[str, float], name: str, step: float) -> None:
    if np.isfinite(step) and step > 0:
        steps[name] = min(step, steps.get(name, np.inf))


def _gain(graph: GraphIndex, node: onnx.NodeProto, index: int, scale: float) -> float:
    """Return an estimated factor (at least 1): how much an error in a node's input ``index`` grows in its output.

    ``scale``: scale of the QuantizeLinear that follows.
    """
    others = [graph.constant(name) for position, name in enumerate(node.input) if position != index]
    gain: float = 1
    if node.op_type == "BatchNormalization" and index == 0 and all(values is not None for values in others):
        factor, _, _, variance = (np.asarray(values, np.float64) for values in others)
        gain = float(np.abs(factor / np.sqrt(variance + attribute(node, "epsilon", 1e-5))).max())
    elif node.op_type in ("Div", "Mul") and len(others) == 1:
        (values,) = others
        other = graph.producers.get(node.input[1 - index])
        if values is not None and values.size:
            gain = float(np.abs(values).max())
            gain = 1 / gain if node.op_type == "Div" and gain else gain
        elif other is None or other.op_type not in _GATES:
            gain = _TYPICAL * scale
    return max(gain, 1) if np.isfinite(gain) else 1
