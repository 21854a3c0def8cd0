"""Integers that the model clips, as QCDQ does between QuantizeLinear and DequantizeLinear: narrower feature maps.

The bounds become those of the layer that makes the map, or of the host where the map is the network's input. Either
way the map takes the narrowest type that holds them, so that beats, memories and multipliers become narrower.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx

from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.values import Map, Step
from hwgen.network.ops import Conv
from hwgen.network.requantise import Requantisation


def clip_integers(build: Builder, node: onnx.NodeProto, low: float, high: float) -> None:
    """Clip (or Relu) of a feature map's integers: ``min(max(x, low), high)``."""
    kind = build.map.type
    if kind.bits > 16:
        raise build.refusal(node, "takes accumulators, with which the hardware ends; no layer can follow")
    least, most = (int(np.minimum(np.maximum(end, low), high)) for end in (kind.minimum, kind.maximum))
    source = build.maker()
    made = build.made_map()
    bounds = made.bounds
    if bounds is not None:
        least, most = (min(max(end, least), most) for end in bounds)
    if (least, most) == (bounds or (kind.minimum, kind.maximum)):
        return
    if build.shared or (source is not None and not _bound(source, least, most)):
        _emit_clip(build, node, least, most)
    elif source is None:
        made.bounds = least, most  # the host clips


def _bound(step: Step, low: int, high: int) -> bool:
    """Make ``low`` and ``high`` the bounds of a layer's outputs; returns whether it can have them."""
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


def _ends(of: Map) -> tuple[int, int]:
    """The least and the greatest integer of a map's type."""
    kind = of.frozen().type
    return kind.minimum, kind.maximum


def _emit_clip(build: Builder, node: onnx.NodeProto, low: int, high: int) -> None:
    """A 1x1 convolution of each channel with itself, for a map that others read as it was."""
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
