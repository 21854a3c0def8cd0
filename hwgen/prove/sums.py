"""Obligations ``sum``: a convolution's sums are those of the products of its activations and weights, step by step.

The equation reaches from the streams of steps and weight words to the sums that leave: which operands enter a chain of
DSP slices in which step, packed products, sums along chains, fields of packed sums with their carries, trees of adders
and accumulators. The definition multiplies each weight by its activation, and adds the products.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.prove.obligation import Obligation
from hwgen.prove.pipeline import age, delayed, is_old
from hwgen.prove.site import Site

__all__ = ["of_chains", "of_layer"]


def of_layer(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the sums of a layer's convolution that reads weights from memories."""
    compute = site.inner("compute")
    chains = None if compute is None else compute.inner("chains")
    if chains is None or not isinstance(layer.compute, MultiplyConfig):
        return []
    return of_chains(layer.compute, chains)


def of_chains(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the sums of the component `Chains`, for all weights that its circuit is made for."""
    config, latency = config.circuit, config.latency
    flags = dict(config.window.step_layout)
    lines = [
        *age(latency),
        *delayed("payload", site.module.ports["i__payload"].width, "i__payload", latency),
        f"wire is_first = payload_was[{flags['first'].offset}];",
    ]
    words = [_Word(config, position) for position in range(config.positions)]
    for word in words:
        lines += word.lines
    bits, asserts, held, sees = config.result.width, {}, {}, {}
    for index, (lane, pixel) in enumerate(product(range(config.lanes), range(config.window.pixels))):
        name = f"sum_{index}"
        lines.append(f"wire signed [{bits - 1}:0] {name} = o__payload[{(index + 1) * bits - 1}:{index * bits}];")
        addends = list(_products(config, words, lane, pixel, f"{name}_a", lines))
        if config.accumulates:
            lines += delayed(name, bits, name, 1)
            addends.append(f"(is_first ? {bits}'sd0 : $signed({name}_was))")
            held |= dict.fromkeys([name] if config.has_accumulators else [], 0)
        lines.append(f"wire signed [{bits - 1}:0] {name}_stated = {' + '.join(addends)};")
        asserts[f"sum {index}, of channel {lane} at pixel {pixel}"] = f"!{is_old(latency)} | ({name} == {name}_stated)"
    if config.accumulates_in_slices:
        sees = dict(_accumulators(site))
        held = dict.fromkeys(sees, config.tree_levels)
    return [
        site.obligation(
            "sum",
            "Each sum is the sum before, unless a step is the first one, and the products of the step's operands.",
            methods=("algebra", "exhaustive"),
            observer=tuple(lines),
            sees=sees,
            drives={"rst": "1'b0", **{f"word_{word.position}": word.value for word in words if word.value}},
            inputs={name: bits for word in words for name, bits in word.inputs.items()},
            asserts=asserts,
            keeps=site.all_instances,
            structure={"cycles": latency, "held": held},
        )
    ]


def _products(
    config: MultiplyConfig, words: list[_Word], lane: int, pixel: int, name: str, lines: list[str]
) -> Iterator[str]:
    """Yield the products of one output channel at one pixel, as Verilog expressions.

    Lines that define the activations, whose names begin with ``name``, are added to ``lines``.
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
        operand = f"{name}{index}"
        lines.append(f"wire signed [{source.bits + 1}:0] {operand} = {signed} - {_number(config.operand_offset)};")
        yield f"{words[position].weights[chain, lane]} * {operand}"


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
    weights : dict of (int, int) to str
        Name of each weight by chain and output channel.
    value : str
        The word as a Verilog expression; empty without weights.
    """

    def __init__(self, config: MultiplyConfig, position: int) -> None:
        self.position = position
        self.inputs: dict[str, int] = {}
        self.lines: list[str] = []
        self.weights: dict[tuple[int, int], str] = {}
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
        # A field that is narrower than a weight has the sign of -1 or 1.
        low, high = config.operands.weight_range if bits >= config.weight_bits else (-1, 1)
        step = 1 if bits >= config.weight_bits else high - low
        name, any_bits = f"w{self.position}_{chain}_{lane}", ((high - low) // step).bit_length()
        self.inputs[f"{name}_any"] = any_bits
        self.lines += delayed(f"{name}_any", any_bits, f"{name}_any", wait)
        # Below the highest bit all values are possible. With it, the largest value is that of the range.
        rest = high - low - step * ((1 << any_bits - 1) - 1)
        for of, value in (("", f"{name}_any_was"), ("_now", f"{name}_any")):
            lower = f" + $signed({{1'b0, {value}[{any_bits - 2}:0]}})" if any_bits > 1 else ""
            upper = f"({value}[{any_bits - 1}] ? {_number(rest)} : 32'sd0)"
            self.lines.append(f"wire signed [{config.weight_bits + 1}:0] {name}{of} = {_number(low)} + {upper}{lower};")
        self.weights[chain, lane] = name
        return f"{name}_now"

    def _field(self, config: MultiplyConfig, names: list[str], bits: int) -> str:
        """Return the field of a unit's weights in the word, in which an upper weight lacks a lower one's sign."""
        lower, *others = names
        if bits < config.weight_bits:
            return f"{lower.removesuffix('_now')}_any"
        if not others:
            return f"{lower}[{bits - 1}:0]"
        (upper,), rest = others, bits - config.weight_bits
        self.lines.append(f"wire signed [{rest - 1}:0] {upper}_field = {upper} - {lower}[{config.weight_bits - 1}];")
        return f"{upper}_field, {lower}[{config.weight_bits - 1}:0]"


def _number(value: int) -> str:
    return f"{'-' if value < 0 else ''}32'sd{abs(value)}"
