"""Narrowing of feature maps whose integers the ONNX model clips between QuantizeLinear and DequantizeLinear (QCDQ).

The bounds become bounds of the layer that computes the map, or of the host where the map is the network's input. Either
way the map gets the narrowest type that holds them, so that beats, memories and multipliers become narrower.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx

from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.values import Map, PendingLayer
from hwgen.network.ops import Conv
from hwgen.network.requantise import Requantisation


def clip_integers(build: Builder, node: onnx.NodeProto, low: float, high: float) -> None:
    """Import a Clip or Relu of a feature map's integers: ``min(max(x, low), high)``."""
    integer_type = build.map.type
    if integer_type.bits > 16:
        raise build.refusal(node, "takes accumulators, with which the hardware ends; no layer can follow")
    lower, upper = (int(np.minimum(np.maximum(end, low), high)) for end in (integer_type.minimum, integer_type.maximum))
    source = build.maker()
    made = build.made_map()
    bounds = made.bounds
    if bounds is not None:
        lower, upper = (min(max(end, lower), upper) for end in bounds)
    if (lower, upper) == (bounds or (integer_type.minimum, integer_type.maximum)):
        return
    if build.shared or (source is not None and not _bound(source, lower, upper)):
        _emit_clip(build, node, lower, upper)
    elif source is None:
        made.bounds = lower, upper  # the host clips


def _bound(step: PendingLayer, low: int, high: int) -> bool:
    """Bound the outputs of the layer ``step`` by ``low`` and ``high``; return whether the layer allows such bounds."""
    if step.kind is Conv:
        if step.requantisation is None:
            return False
    else:
        is_type = _ends(replace(step.output, bounds=(low, high))) == (low, high)
        parameters = step.kind.clipped(step.parameters, low, high, is_type)
        if parameters is None:
            return False
        step.parameters = parameters
    step.low, step.high = (min(max(end, low), high) for end in (step.low, step.high))
    step.output.bounds = low, high
    return True


def _ends(source: Map) -> tuple[int, int]:
    """Return minimum and maximum of the integer type that the feature map ``source`` will have when it is finished."""
    integer_type = source.frozen().type
    return integer_type.minimum, integer_type.maximum


def _emit_clip(build: Builder, node: onnx.NodeProto, low: int, high: int) -> None:
    """Append a 1x1 convolution that only clips each channel of the current map.

    Other nodes read the map without the clip.
    """
    here = build.map
    if here.zero_point is None:
        raise build.refusal(
            node, "clips integers that others take as they are, before a DequantizeLinear says their zero"
        )
    channels = here.channels
    one = np.full(channels, 1 << 23), np.full(channels, 23)
    rule = Requantisation(significand=one[0], shift=one[1], zero_point=here.zero_point, low=low, high=high)
    weights, bias = np.ones(channels, np.int64), np.zeros(channels, np.int64)
    build.emit_diagonal(node, weights, bias, rule, replace(here, bounds=(low, high)))
