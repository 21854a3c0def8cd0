"""Proofs of a convolution: in every cycle, its sums are the sums of the products of activations and weights.

The equation reaches from the streams of steps and weight words to the sums that leave: the operands of each chain of
DSP slices in each step, packed products, sums along chains, fields of packed sums with their carries, trees of adders
and accumulators. The definition multiplies each weight by its activation, and adds the products. The sums are stated of
the component `Chains`, if there is one; `connections` states that its ports are the arithmetic's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from hwgen.gateware import lut_products_proof as dots
from hwgen.gateware import weight_words_proof
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.product_sums import chain_name
from hwgen.obligations.composition import composition, domain_wires, has_port, wired
from hwgen.obligations.obligation import Obligation, Proofs, Site, literal, part, value_of
from hwgen.obligations.observers import age, delayed, is_old


def is_mixed(config: MultiplyConfig) -> bool:
    """Return whether a convolution lacks a proof: it accumulates constant LUT products and DSP products over cycles."""
    constant = config.lut_lanes and not config.kinds.in_luts.stores_weights
    return bool(constant and config.slice_lanes and not config.kinds.whole)


def of_convolution(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations that a convolution (`Multiply`) outputs the sums of activations times weights.

    The list has at most one entry.
    """
    if config.kinds.has_chains:
        return [of_chains(config, site.part("chains"))]
    return [] if is_mixed(config) else [_of_constants(config, site)]


def of_chains(config: MultiplyConfig, site: Site) -> Obligation:
    """Return the `Obligation` that a convolution's multiplier chains output the sums of products, for any weights.

    The weights are all that the circuit is made for. Only the width of accumulators depends on the network's weights.
    """
    width_lines, width_fact = width_facts(config)
    config = config.circuit
    words = [_FreeWeightWord(config, position) for position in range(config.chains.positions)]
    weights = {key: weight for word in words for key, weight in word.weights.items()}
    lines, facts = _sum_lines(config, weights, site)
    held = {name: 0 for name in facts if config.pipeline.has_accumulators}
    sees = dict(_accumulators(config)) if config.pipeline.accumulates_in_slices else {}
    return _obligation(
        config,
        site,
        "Each sum is the sum before, unless a step is the first one, and the products of the step's operands.",
        facts,
        width_fact,
        observer=(*(line for word in words for line in word.lines), *lines, *width_lines),
        sees=sees,
        drives={f"word_{word.position}": word.value for word in words if word.value},
        inputs={name: bits for word in words for name, bits in word.inputs.items()},
        held={**held, **dict.fromkeys(sees, config.pipeline.tree_levels)},
    )


def _of_constants(config: MultiplyConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a convolution with constant weights outputs the sums of its products.

    The products are computed in LUTs, or in DSP slices that compute whole windows.
    Dot products in LUTs are replaced by their definition, which ``dot`` proves, with their constants.
    """
    weights = {}
    for (position, chain, index), lane in product(config.chains.terms, range(config.lanes)):
        weights[position, chain, lane] = _weight_of_step(weight_words_proof.weights_of(config, lane, index))
    lines, facts = _sum_lines(config, weights, site)
    held = {name: 0 for name in facts if config.accumulates}
    sees = {}
    if config.rom_depth > 1:
        lines = (*delayed("step", site.module.signals["step"].width, "step", config.latency), *lines)
        sees, held = {"step": "step"}, {"step": 0, **held}
    width_lines, width_fact = width_facts(config)
    models = {name: dots.model(products) for products, names in dots.instances(config).items() for name in names}
    return _obligation(
        config,
        site,
        "Each sum is the sum before, unless a step is the first one, and the products with the network's weights.",
        facts,
        width_fact,
        observer=(*lines, *width_lines),
        sees=sees,
        held=held,
        models=models,
    )


def _obligation(
    config: MultiplyConfig,
    site: Site,
    statement: str,
    facts: Mapping[str, str],
    width: Mapping[str, str],
    *,
    drives: Mapping[str, str] | None = None,
    held: Mapping[str, int] | None = None,
    **fields: Any,
) -> Obligation:
    """Return the `Obligation` that a convolution's sums satisfy ``facts``, and that accumulators are wide enough."""
    asserts = {f"{name} is the stated one": f"!{is_old(config.latency)} | ({fact})" for name, fact in facts.items()}
    return site.obligation(
        "sum",
        statement,
        methods=("algebra", "exhaustive"),
        asserts=asserts | dict(width),
        cover=is_old(config.latency),
        drives={"rst": "1'b0", **(drives or {})},
        keeps=tuple(path for path in site.all_instances if path.partition(".")[0] not in fields.get("models", {})),
        structure={"cycles": config.latency + 1, "held": held or {}},  # one more for a constant word's register
        **fields,
    )


def _sum_lines(
    config: MultiplyConfig, weights: Mapping[tuple[int, int, int], str], site: Site
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return a pair: Verilog lines that define each output sum and the expected one; dict from sum to their equation.

    ``weights`` are Verilog expressions by position, chain, and lane (output channel of those computed at once).
    """
    bits, facts, latency = config.result.width, {}, config.latency
    lines = [
        *age(latency),
        *delayed("payload", site.module.ports["i__payload"].width, "i__payload", latency),
        f"wire is_first = payload_was[{dict(config.window.step_layout)['first'].offset}];",
        *_operands(config),
    ]
    for index, (lane, pixel) in enumerate(product(range(config.lanes), range(config.window.pixels))):
        name = f"sum_{lane}_{pixel}"
        lines.append(f"wire signed [{bits - 1}:0] {name} = o__payload[{(index + 1) * bits - 1}:{index * bits}];")
        addends = list(_products(config, weights, lane, pixel))
        if config.accumulates:
            lines += delayed(name, bits, name, 1)
            addends.append(f"(is_first ? {bits}'sd0 : $signed({name}_was))")
        if config.bias and lane < config.outputs:
            addends.append(literal(config.bias[lane], 32))
        lines.append(f"wire signed [{bits - 1}:0] {name}_stated = {' + '.join(addends)};")
        facts[name] = f"{name} == {name}_stated"
    return tuple(lines), facts


def _operands(config: MultiplyConfig) -> Iterator[str]:
    """Yield Verilog lines that define the multipliers' operands: activations less 0 or half the unsigned range."""
    source, window = config.window.input, config.window
    first = dict(window.step_layout)["taps"].offset
    for pixel, tap, channel in product(range(window.pixels), range(window.taps), range(source.lanes)):
        low = first + ((pixel * window.taps + tap) * source.lanes + channel) * source.bits
        value = value_of(part("payload_was", low, source.bits), source.shape)
        offset = literal(config.kinds.offset, 32)
        yield f"wire signed [{source.bits + 1}:0] operand_{pixel}_{tap}_{channel} = {value} - {offset};"


def _products(
    config: MultiplyConfig, weights: Mapping[tuple[int, int, int], str], lane: int, pixel: int
) -> Iterator[str]:
    """Yield, as Verilog expressions, the products that one cycle adds to a pixel's sum of output lane ``lane``."""
    for position, chain, index in config.chains.terms:
        tap, channel = (index, lane) if config.window.channelwise else divmod(index, config.window.input.lanes)
        yield f"{weights[position, chain, lane]} * operand_{pixel}_{tap}_{channel}"


def _accumulators(config: MultiplyConfig) -> Iterator[tuple[str, str]]:
    """Yield (name, path in the Verilog) of the sum register of each chain of DSP slices that accumulates."""
    chains = product(config.units.in_slices, config.units.pixel_groups, range(config.chains.count))
    for index, (unit, group, chain) in enumerate(chains):
        yield f"accumulator_{index}", f"{chain_name(config, unit, group, chain)}.sum"


class _FreeWeightWord:
    """Verilog model of one chain position's weight word, in a proof for arbitrary weights.

    Parameters
    ----------
    config : MultiplyConfig
        Configuration of the convolution.
    position : int
        Position in the chains of multiply-adds.

    Attributes
    ----------
    inputs : dict of str to int
        Free inputs, each the bits of one weight: the width in bits by name.
    lines : list of str
        Lines of Verilog that define the word, and the weights of the products whose sums leave now.
    weights : dict of (int, int, int) to str
        Name of each weight by position, chain and output channel.
    value : str
        The word as a Verilog expression; empty without weights.
    """

    def __init__(self, config: MultiplyConfig, position: int) -> None:
        self.position = position
        self.inputs: dict[str, int] = {}
        self.lines: list[str] = []
        self.weights: dict[tuple[int, int, int], str] = {}
        wait = config.latency - (position + 1 - config.pipeline.weight_registers(position))
        fields = []
        for unit, bits in zip(config.units.lanes, config.units.weight_bits, strict=True):
            for chain in config.chains.at(position) if bits else ():
                names = [self._add_weight(config, chain, lane, bits, wait) for lane in unit]
                fields.append(self._field(config, names, bits))
        self.value = f"{{{', '.join(reversed(fields))}}}" if fields else ""

    def _add_weight(self, config: MultiplyConfig, chain: int, lane: int, bits: int, wait: int) -> str:
        """Add a weight with any value that a field of ``bits`` bits can store, and return the name of its Verilog wire.

        Its product leaves ``wait`` cycles later.
        """
        low, high = config.units.operands.weight_range
        name, any_bits = f"w{self.position}_{chain}_{lane}", min(bits, (high - low).bit_length())
        self.inputs[f"{name}_any"] = any_bits
        self.lines += delayed(f"{name}_any", any_bits, f"{name}_any", wait)
        for of, value in (("", f"{name}_any_was"), ("_now", f"{name}_any")):
            number = f"({value} ? 2'sd1 : -2'sd1)" if bits < config.weight_bits else _any_in_range(value, low, high)
            self.lines.append(f"wire signed [{config.weight_bits + 1}:0] {name}{of} = {number};")
        self.weights[self.position, chain, lane] = name
        return f"{name}_now"

    def _field(self, config: MultiplyConfig, names: list[str], bits: int) -> str:
        """Return, as a Verilog expression, the bits of the weight word that pack a multiplier's one or two weights.

        The upper weight is stored less the sign bit of the lower one. A field of one bit stands for -1 or 1.
        """
        lower, *others = names
        if bits < config.weight_bits:
            return f"{lower.removesuffix('_now')}_any"
        if not others:
            return f"{lower}[{bits - 1}:0]"
        (upper,), rest = others, bits - config.weight_bits
        self.lines.append(f"wire signed [{rest - 1}:0] {upper}_field = {upper} - {lower}[{config.weight_bits - 1}];")
        return f"{upper}_field, {lower}[{config.weight_bits - 1}:0]"


def _any_in_range(value: str, low: int, high: int) -> str:
    """Return a Verilog expression of the free bits ``value`` that can be any integer from ``low`` to ``high``."""
    bits = (high - low).bit_length()
    if (low, high) == (-1 << bits - 1, (1 << bits - 1) - 1):
        return f"$signed({value})"
    # Below the highest bit, all numbers are possible. With it, the largest one is ``high``.
    rest = high - low - ((1 << bits - 1) - 1)
    lower = f" + $signed({{1'b0, {value}[{bits - 2}:0]}})" if bits > 1 else ""
    return f"{literal(low, 32)} + ({value}[{bits - 1}] ? {literal(rest, 32)} : 32'sd0){lower}"


def _weight_of_step(weights: list[int]) -> str:
    """Return a Verilog expression that selects one of ``weights`` by the index ``step_was`` of an earlier cycle."""
    first, *others = weights
    weight = literal(first, 32)
    for step, other in enumerate(others, start=1):
        weight = f"(step_was == {step} ? {literal(other, 32)} : {weight})"
    return weight


def sum_range(config: MultiplyConfig) -> tuple[int, int]:
    """Return a pair: the smallest and largest sum of products that any output of a convolution can have.

    The multiplier's offset is subtracted from activations. The bias, which wraps as ONNX defines, is left out.
    """
    source = config.window.input
    low = (-(1 << source.bits - 1) if source.shape.signed else 0) - config.kinds.offset
    high = low + (1 << source.bits) - 1
    if config.loaded:
        count = len(config.weights) // config.outputs
        products = [weight * activation for weight in config.units.operands.weight_range for activation in (low, high)]
        return count * min(products), count * max(products)
    rows = np.array(config.weights.values, int).reshape(config.outputs, -1)
    negative, positive = rows.clip(max=0).sum(axis=1), rows.clip(min=0).sum(axis=1)
    return int((positive * low + negative * high).min()), int((positive * high + negative * low).max())


def width_facts(config: MultiplyConfig) -> tuple[list[str], dict[str, str]]:
    """Return a pair: Verilog lines with a convolution's smallest and largest sum, and the fact that they fit."""
    least, most = sum_range(config)
    bits = config.result.width
    wide = max(bits, least.bit_length() + 1, most.bit_length() + 1) + 1
    lines, parts = [], []
    for name, value in (("least", least), ("most", most)):
        bound = literal(value, wide)
        lines.append(f"wire signed [{bits - 1}:0] {name}_sum = {bound};")
        parts.append(f"({{{{{wide - bits}{{{name}_sum[{bits - 1}]}}}}, {name}_sum}} == {bound})")
    return lines, {f"{bits} bits hold every sum, from {least} to {most}": " & ".join(parts)}


def connections(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation that a convolution's ports and memories are wired to its chains; may be empty.

    Words of weights that can be loaded are left out: no obligation states them.
    """
    if not config.kinds.has_chains:
        return []
    wires = domain_wires(site)
    for port in ("i__payload", "i__valid"):
        wires[f"chains.{port}"] = port
    for port in ("o__payload", "o__valid"):
        wires[port] = f"chains.{port}"
    if config.loaded:
        statement = "Steps and sums of the convolution equal its chains'."
        return [wired(site, statement, wires)]
    statement = "Steps, weights and sums of the convolution equal its chains', and no port is left out."
    words = [f"chains.word_{position}" for position in range(config.chains.positions)]
    words = [name for name in words if has_port(site, name)]  # a position whose weights are constants has none
    reads = [f"{name}.{port}" for name in site.memories for port in site.module.connections[name] if port != "clk"]
    return composition(site, statement, wires, {}, others=(*words, *reads))


PROOFS = {
    MultiplyConfig: Proofs(
        (connections, dots.of_convolution, of_convolution, weight_words_proof.of_memories), resets=False
    )
}
