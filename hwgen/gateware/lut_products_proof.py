"""Proof obligations ``dot``: dot products in LUTs equal the sums of their products, for all operands and weights.

The Verilog for synthesis is proved, with its rows, tables and trees of adders. The primitives in it, such as ternary
adders, have their Verilog for simulation. The definition multiplies each operand by its weight, and adds the products.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from hwgen.gateware.lut_products import LutProductsConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.product_sums import dots_name
from hwgen.obligations.obligation import Obligation, Site, literal, value_of
from hwgen.obligations.observers import delayed, pipeline


def of_convolution(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of a convolution's dot products in LUTs, one per Verilog module that differs."""
    chains = site.part("chains") if config.kinds.has_chains else site
    return [of_products(products, chains.part(names[0])) for products, names in instances(config).items()]


def instances(config: MultiplyConfig) -> Mapping[LutProductsConfig, list[str]]:
    """Return a dict from the configuration of a convolution's dot products in LUTs to its Verilog instance names."""
    names = defaultdict(list)
    for pixel in range(config.window.pixels):
        for lanes in config.dots.blocks:
            for joined in config.dots.modules(lanes):
                products = LutProductsConfig(config.kinds.in_luts, config.dots.products(joined))
                names[products].append(dots_name(config, joined, pixel))
    return names


def of_products(config: LutProductsConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that each output of a module of dot products in LUTs is the sum of its products."""
    latency, circuit = config.latency, site.circuit
    inputs, drives = {}, {"rst": "1'b0"}
    if config.step_shape is not None:
        steps, bits = len((config.dots.constants or [[[]]])[0][0]), config.step_shape.width
        missing = [f"(any_step == {step})" for step in range(steps, 1 << bits)]
        inputs["any_step"] = bits
        drives["step"] = f"any_step & {{{bits}{{~({' | '.join(missing)})}}}}" if missing else "any_step"
    return pipeline(
        circuit,
        "dot",
        f"Each sum is the sum of the products of operands and weights, {latency} cycles later.",
        latency,
        {
            f"sum {channel} is the sum of its products": f"sum_{channel} == dot_{channel}"
            for channel in range(config.dots.channels)
        },
        methods=("algebra", "exhaustive"),
        observer=definition(config),
        assumes={},
        drives=drives,
        inputs=inputs,
        keeps=circuit.all_instances,
    )


def model(config: LutProductsConfig) -> list[str]:
    """Return a list of Verilog lines that multiply and add, in place of a dot product module in other proofs.

    `of_products` proves that they are equal.
    """
    channels = range(config.dots.channels)
    return [*definition(config), *(f"assign sum_{channel} = dot_{channel};" for channel in channels)]


def definition(config: LutProductsConfig) -> list[str]:
    """Return a list of Verilog lines that define each channel's dot product ``dot_CHANNEL`` by its formula."""
    dots, latency, lines = config.dots, config.latency, []
    for term, position in enumerate(config.positions):
        lines += delayed(f"operand_{term}", dots.operand.width, f"operand_{term}", latency - position)
        operand = value_of(f"operand_{term}_was", dots.operand)
        lines.append(f"wire signed [{dots.operand.width}:0] x{term} = {operand};")
    if config.step_shape is not None:
        lines += delayed("step", config.step_shape.width, "step", latency)
    for channel, bits in enumerate(dots.sum_bits):
        bias = dots.bias[channel] if dots.bias else 0
        addends = [_product(config, channel, term, lines) for term in range(len(config.positions))]
        addends += [literal(bias, 32)] if bias else []
        lines.append(f"wire signed [{bits - 1}:0] dot_{channel} = {' + '.join(addends)};")
    return lines


def _product(config: LutProductsConfig, channel: int, term: int, lines: list[str]) -> str:
    """Return the Verilog expression of activation times weight for a channel's ``term``; add its wires to ``lines``."""
    dots, latency = config.dots, config.latency
    if dots.constants is not None:
        first, *others = dots.constants[channel][term]
        weight = literal(first, dots.weight_bits + 1)
        for step, other in enumerate(others, start=1):
            weight = f"(step_was == {step} ? {literal(other, dots.weight_bits + 1)} : {weight})"
        return f"x{term} * {weight}"
    shape, name = config.multiplier.weight_shape(dots), f"weight_{channel}_{term}"
    lines += delayed(name, shape.width, name, latency - config.positions[term])
    return f"x{term} * $signed({name}_was)" if shape.signed else f"({name}_was ? x{term} : -x{term})"
