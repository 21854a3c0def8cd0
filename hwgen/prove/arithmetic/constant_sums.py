"""Obligations ``sum`` of convolutions whose weights are constants in LUTs: each sum has the network's weights.

The equation reaches from the stream of steps to the sums that leave. Dot products in LUTs are replaced by their
definition, which ``dot`` proves, with their constants. Here the constants are taken from the network's weights: which
output channel, input channel and tap each product of each step has. So an operand of another tap, a weight of another
step or output channel, and a sum at another place are refuted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.prove.arithmetic import dots, ranges
from hwgen.prove.arithmetic.pipeline import age, delayed, is_old
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site

__all__ = ["is_mixed", "of_convolution", "of_layer", "weights_of"]


def of_layer(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the sums of a layer's convolution, if all its weights are constants in LUTs."""
    compute = site.inner("compute")
    if compute is None or not isinstance(layer.compute, MultiplyConfig):
        return []
    return of_convolution(layer.compute, compute)


def is_mixed(config: MultiplyConfig) -> bool:
    """Return whether sums of several steps have constants in LUTs beside products in DSP slices, without a property."""
    constant = config.lut_lanes and not config.lut_multiplier.stores_weights
    return bool(constant and config.slice_lanes and not config.whole)


def of_convolution(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the sums of the component `Multiply`, if all its weights are constants in LUTs."""
    if config.slice_lanes or config.lut_multiplier.stores_weights:
        return []
    latency, bits, pixels = config.latency, config.sum_bits, config.window.pixels
    lines = [
        *age(latency),
        *delayed("payload", site.module.ports["i__payload"].width, "i__payload", latency),
        f"wire is_first = payload_was[{dict(config.window.step_layout)['first'].offset}];",
        *_activations(config),
    ]
    sees, held, asserts = {}, {}, {}
    if config.rom_depth > 1:
        lines += delayed("step", site.module.signals["step"].width, "step", latency)
        sees, held = {"step": "step"}, {"step": 0}
    for lane in range(config.lanes):
        for pixel in range(pixels):
            index = lane * pixels + pixel
            name = f"sum_{index}"
            lines.append(f"wire signed [{bits - 1}:0] {name} = o__payload[{(index + 1) * bits - 1}:{index * bits}];")
            addends = [_product(config, lane, pixel, index) for index in range(config.products)]
            if config.accumulates:
                lines += delayed(name, bits, name, 1)
                addends.append(f"(is_first ? {bits}'sd0 : $signed({name}_was))")
                held[name] = 0
            if config.bias and lane < config.outputs:
                addends.append(_number(config.bias[lane]))
            lines.append(f"wire signed [{bits - 1}:0] {name}_stated = {' + '.join(addends)};")
            asserts[f"sum {index}, of lane {lane} at pixel {pixel}"] = f"!{is_old(latency)} | ({name} == {name}_stated)"
    width_lines, width_fact = ranges.fact(config)
    models = {
        name: dots.model(products) for products in dots.modules(config) for name in dots.instances(products, site)
    }
    return [
        site.obligation(
            "sum",
            "Each sum is the sum before, unless a step is the first one, and the products with the network's weights.",
            methods=("algebra", "exhaustive"),
            observer=(*lines, *width_lines),
            sees=sees,
            drives={"rst": "1'b0"},
            asserts=asserts | width_fact,
            cover=is_old(latency),
            models=models,
            structure={"cycles": latency, "held": held},
        )
    ]


def _activations(config: MultiplyConfig) -> Iterator[str]:
    """Yield lines of Verilog that define the operand of each pixel, tap and channel of the step whose sum leaves."""
    source, window = config.window.input, config.window
    first = dict(window.step_layout)["taps"].offset
    for pixel in range(window.pixels):
        for tap in range(window.taps):
            for channel in range(source.lanes):
                low = first + ((pixel * window.taps + tap) * source.lanes + channel) * source.bits
                value = f"payload_was[{low + source.bits - 1}:{low}]"
                signed = f"$signed({value})" if source.shape.signed else f"$signed({{1'b0, {value}}})"
                yield (
                    f"wire signed [{source.bits + 1}:0] a_{pixel}_{tap}_{channel} = "
                    f"{signed} - {_number(config.operand_offset)};"
                )


def _product(config: MultiplyConfig, lane: int, pixel: int, index: int) -> str:
    """Return a product of a lane as a Verilog expression. Products are ordered by tap, then by channel."""
    tap, channel = (index, lane) if config.window.channelwise else divmod(index, config.window.input.lanes)
    first, *others = weights_of(config, lane, index)
    weight = _number(first)
    for step, other in enumerate(others, start=1):
        weight = f"(step_was == {step} ? {_number(other)} : {weight})"
    return f"a_{pixel}_{tap}_{channel} * {weight}"


def weights_of(config: MultiplyConfig, lane: int, index: int) -> list[int]:
    """Return the weights by which a lane multiplies the activation of a product, by step of a window.

    Steps are ordered by channel group, by output fold, by taps, and then by input channels. Without an output channel,
    a tap or an input channel of its own, a product has the weight 0.
    """
    window = config.window
    weights = np.array(config.weights.values).reshape(config.outputs, config.group_channels, *window.kernel)
    lanes = 1 if window.channelwise else window.input.lanes
    group_outputs = config.outputs // window.input.groups
    tap, offset = divmod(index, lanes)
    values = []
    for group in range(window.input.groups):
        for first in range(0, group_outputs, config.lanes):
            for taps in window.step_taps:
                for channel in range(offset, offset + config.group_channels, lanes):
                    is_used = first + lane < group_outputs and tap < len(taps) and channel < config.group_channels
                    output = group * group_outputs + first + lane
                    values.append(int(weights[(output, channel, *taps[tap])]) if is_used else 0)
    return values


def _number(value: int) -> str:
    return f"{'-' if value < 0 else ''}32'sd{abs(value)}"
