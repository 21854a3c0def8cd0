"""Fact of obligations ``sum``: the accumulator is wide enough for every sum that the network's weights allow.

The equation of a sum holds up to multiples of ``2**bits``, because registers of so many bits wrap. With this fact it
holds at full width. The bounds follow from the weights of the network and the range of the activations, and not from
the width that the planner chose.
"""

from __future__ import annotations

import numpy as np

from hwgen.gateware.multiply import MultiplyConfig
from hwgen.obligations.expressions import literal

__all__ = ["bounds", "fact"]


def bounds(config: MultiplyConfig) -> tuple[int, int]:
    """Return the least and the largest sum of products that a convolution can have at one output.

    Activations are those less the multiplier's offset. The bias, which wraps as ONNX defines, is left out.
    """
    source = config.window.input
    low = (-(1 << source.bits - 1) if source.shape.signed else 0) - config.operand_offset
    high = low + (1 << source.bits) - 1
    if config.loaded:
        count = len(config.weights) // config.outputs
        products = [weight * activation for weight in config.operands.weight_range for activation in (low, high)]
        return count * min(products), count * max(products)
    rows = np.array(config.weights.values, int).reshape(config.outputs, -1)
    negative, positive = rows.clip(max=0).sum(axis=1), rows.clip(min=0).sum(axis=1)
    return int((positive * low + negative * high).min()), int((positive * high + negative * low).max())


def fact(config: MultiplyConfig) -> tuple[list[str], dict[str, str]]:
    """Return lines of Verilog with the least and the largest sum in an accumulator, and the fact that both fit it."""
    least, most = bounds(config)
    bits = config.result.width
    wide = max(bits, least.bit_length() + 1, most.bit_length() + 1) + 1
    lines, parts = [], []
    for name, value in (("least", least), ("most", most)):
        bound = literal(value, wide)
        lines.append(f"wire signed [{bits - 1}:0] {name}_sum = {bound};")
        parts.append(f"({{{{{wide - bits}{{{name}_sum[{bits - 1}]}}}}, {name}_sum}} == {bound})")
    return lines, {f"{bits} bits hold every sum, from {least} to {most}": " & ".join(parts)}
