"""Obligations ``sum``: a convolution's sums are those of the products of its activations and weights, step by step.

The equation reaches from the streams of steps and weight words to the sums that leave: which operands enter a chain of
DSP slices in which step, packed products, sums along chains, fields of packed sums with their carries, trees of adders
and accumulators. The definition multiplies each weight by its activation, and adds the products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.prove.arithmetic import ranges
from hwgen.prove.arithmetic.pipeline import age, delayed, is_old
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site

__all__ = ["of_chains", "of_layer", "of_windows"]


def of_layer(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the sums of a layer's convolution, unless all its weights are constants in LUTs."""
    compute, config = site.inner("compute"), layer.compute
    if compute is None or not isinstance(config, MultiplyConfig):
        return []
    if config.whole and config.slice_lanes:
        return [of_windows(config, compute)]
    chains = compute.inner("chains")
    return [] if chains is None else [of_chains(config, chains)]


def of_chains(config: MultiplyConfig, site: Site) -> Obligation:
    """Return the obligation of the sums of the component `Chains`, for all weights that its circuit is made for.

    Only the width of accumulators is that for the network's weights.
    """
    width_lines, width_fact = ranges.fact(config)
    config = config.circuit
    words = [_Word(config, position) for position in range(config.positions)]
    weights = {key: weight for word in words for key, weight in word.weights.items()}
    lines, facts = _stated(config, weights, site)
    held = {name: 0 for name in facts if config.has_accumulators}
    sees = dict(_accumulators(site)) if config.accumulates_in_slices else {}
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
        held={**held, **dict.fromkeys(sees, config.tree_levels)},
    )


def of_windows(config: MultiplyConfig, site: Site) -> Obligation:
    """Return the obligation of a convolution that computes all sums of a window in one step, with constant weights.

    The definition takes the weights from the layer, in the order of ONNX: output channel, input channel, row, column.
    """
    channels, (height, width), values = config.group_channels, config.window.kernel, config.weights.values
    weights = {}
    for position, chain, output in product(range(config.positions), range(config.chains), range(config.lanes)):
        index = config.lane_of(chain, position)
        if index is not None:
            tap, channel = divmod(index, channels)
            weights[position, chain, output] = _number(
                int(values[(output * channels + channel) * height * width + tap])
            )
    lines, facts = _stated(config, weights, site)
    width_lines, width_fact = ranges.fact(config)
    statement = "Each sum is that of a window's activations, each with its weight, and of the bias."
    return _obligation(config, site, statement, facts, width_fact, observer=(*lines, *width_lines))


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
    """Return the obligation of ``facts``, equations of sums by the name of the sum, and of the accumulators' width."""
    asserts = {f"{name} is the stated one": f"!{is_old(config.latency)} | ({fact})" for name, fact in facts.items()}
    return site.obligation(
        "sum",
        statement,
        methods=("algebra", "exhaustive"),
        asserts=asserts | dict(width),
        cover=is_old(config.latency),
        drives={"rst": "1'b0", **(drives or {})},
        keeps=site.all_instances,
        structure={"cycles": config.latency + 1, "held": held or {}},  # one more for a constant word's register
        **fields,
    )


def _stated(
    config: MultiplyConfig, weights: Mapping[tuple[int, int, int], str], site: Site
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return lines of Verilog that define the sums that leave now, and the equation of each by its name.

    ``weights`` are Verilog expressions by position, chain and output channel of those computed at once.
    """
    bits, facts, latency = config.result.width, {}, config.latency
    lines = [
        *age(latency),
        *delayed("payload", site.module.ports["i__payload"].width, "i__payload", latency),
        f"wire is_first = payload_was[{dict(config.window.step_layout)['first'].offset}];",
    ]
    for index, (lane, pixel) in enumerate(product(range(config.lanes), range(config.window.pixels))):
        name = f"sum_{lane}_{pixel}"
        lines.append(f"wire signed [{bits - 1}:0] {name} = o__payload[{(index + 1) * bits - 1}:{index * bits}];")
        addends = list(_products(config, weights, lane, pixel, lines))
        if config.accumulates:
            lines += delayed(name, bits, name, 1)
            addends.append(f"(is_first ? {bits}'sd0 : $signed({name}_was))")
        if config.bias:
            addends.append(_number(config.bias[lane]))
        lines.append(f"wire signed [{bits - 1}:0] {name}_stated = {' + '.join(addends)};")
        facts[name] = f"{name} == {name}_stated"
    return tuple(lines), facts


def _products(
    config: MultiplyConfig, weights: Mapping[tuple[int, int, int], str], lane: int, pixel: int, lines: list[str]
) -> Iterator[str]:
    """Yield the products of one output channel at one pixel, as Verilog expressions.

    Lines that define the activations, less the multiplier's offset, are added to ``lines``.
    """
    source, taps = config.window.input, config.window.taps
    first = dict(config.window.step_layout)["taps"].offset
    for position, chain in product(range(config.positions), range(config.chains)):
        index = config.lane_of(chain, position)
        if index is None:
            continue
        tap, channel = (index, lane) if config.window.channelwise else divmod(index, source.lanes)
        low = first + ((pixel * taps + tap) * source.lanes + channel) * source.bits
        value = f"payload_was[{low + source.bits - 1}:{low}]"
        signed = f"$signed({value})" if source.shape.signed else f"$signed({{1'b0, {value}}})"
        operand = f"operand_{lane}_{pixel}_{index}"
        lines.append(f"wire signed [{source.bits + 1}:0] {operand} = {signed} - {_number(config.operand_offset)};")
        yield f"{weights[position, chain, lane]} * {operand}"


def _accumulators(site: Site) -> Iterator[tuple[str, str]]:
    """Yield a name for the last register of each chain of slices that accumulates, and its path in the module."""
    names = [name for name in site.module.instances if "_chain_" in name]
    for index, name in enumerate(names):
        yield f"accumulator_{index}", f"{name}.sum"


class _Word:
    """Weight word of one chain position, of any weights that its memory can hold.

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
        chains = [chain for chain in range(config.chains) if config.lane_of(chain, position) is not None]
        wait = config.latency - (position + 1 - config.weight_registers(position))
        fields = []
        for unit, bits in zip(config.units, config.unit_bits, strict=True):
            for chain in chains if bits else ():
                names = [self._weight(config, chain, lane, bits, wait) for lane in unit]
                fields.append(self._field(config, names, bits))
        self.value = f"{{{', '.join(reversed(fields))}}}" if fields else ""

    def _weight(self, config: MultiplyConfig, chain: int, lane: int, bits: int, wait: int) -> str:
        """Add a weight of any value that a field of ``bits`` bits can hold, and return its name.

        Its product leaves ``wait`` cycles later.
        """
        low, high = config.operands.weight_range
        name, any_bits = f"w{self.position}_{chain}_{lane}", min(bits, (high - low).bit_length())
        self.inputs[f"{name}_any"] = any_bits
        self.lines += delayed(f"{name}_any", any_bits, f"{name}_any", wait)
        for of, value in (("", f"{name}_any_was"), ("_now", f"{name}_any")):
            number = f"({value} ? 2'sd1 : -2'sd1)" if bits < config.weight_bits else _in_range(value, low, high)
            self.lines.append(f"wire signed [{config.weight_bits + 1}:0] {name}{of} = {number};")
        self.weights[self.position, chain, lane] = name
        return f"{name}_now"

    def _field(self, config: MultiplyConfig, names: list[str], bits: int) -> str:
        """Return the field of a unit's weights in the word, in which an upper weight lacks a lower one's sign.

        A field of one bit stands for -1 or 1.
        """
        lower, *others = names
        if bits < config.weight_bits:
            return f"{lower.removesuffix('_now')}_any"
        if not others:
            return f"{lower}[{bits - 1}:0]"
        (upper,), rest = others, bits - config.weight_bits
        self.lines.append(f"wire signed [{rest - 1}:0] {upper}_field = {upper} - {lower}[{config.weight_bits - 1}];")
        return f"{upper}_field, {lower}[{config.weight_bits - 1}:0]"


def _in_range(value: str, low: int, high: int) -> str:
    """Return a number from ``low`` to ``high``, any of them, as a Verilog expression of free bits."""
    bits = (high - low).bit_length()
    if (low, high) == (-1 << bits - 1, (1 << bits - 1) - 1):
        return f"$signed({value})"
    # Below the highest bit, all numbers are possible. With it, the largest one is ``high``.
    rest = high - low - ((1 << bits - 1) - 1)
    lower = f" + $signed({{1'b0, {value}[{bits - 2}:0]}})" if bits > 1 else ""
    return f"{_number(low)} + ({value}[{bits - 1}] ? {_number(rest)} : 32'sd0){lower}"


def _number(value: int) -> str:
    return f"{'-' if value < 0 else ''}32'sd{abs(value)}"
