"""Obligations ``product``: each multiplier in DSP slices computes its packed products, for all operands.

A slice multiplies packed weights by packed activations. The definition multiplies each weight by each activation alone,
and adds the products at the shifts of their fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.stream import at_pixel
from hwgen.prove.arithmetic.pipeline import age, delayed, is_old
from hwgen.prove.modules import Declared
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site

__all__ = ["of_chains", "of_layer"]


def of_layer(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a layer's multipliers, if they are in DSP slices and read weights from memories."""
    compute = site.inner("compute")
    chains = None if compute is None else compute.inner("chains")
    if chains is None or not isinstance(layer.compute, MultiplyConfig):
        return []
    return of_chains(layer.compute, chains)


def of_chains(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the multipliers in DSP slices of the component `Chains`."""
    units = list(_units(config, site))
    if not units:
        return []
    cycles = config.positions + 1
    lines = [*age(cycles), *delayed("payload", site.module.ports["i__payload"].width, "i__payload", cycles)]
    for position, width in enumerate(config.rom_widths):
        lines += delayed(f"word_{position}", width, f"word_{position}", 1 + config.weight_registers(position))
    asserts, sees = {}, {}
    for unit in units:
        lines += unit.lines
        sees[unit.name] = unit.signal
        asserts[f"{unit.signal} is the sum of its products"] = (
            f"!{is_old(cycles)} | !({unit.in_range}) | ({unit.name} == {unit.name}_sum)"
        )
    return [
        site.obligation(
            "product",
            "Each packed product is the sum of the products of its weights and activations, at their fields' shifts.",
            methods=("exhaustive",),
            observer=tuple(lines),
            sees=sees,
            keeps=tuple(dict.fromkeys(unit.chain for unit in units if unit.chain)),
            assumes={"no reset": "!rst"},
            asserts=asserts,
            structure={"cycles": cycles},
        )
    ]


@dataclass(frozen=True)
class _Unit:
    """Multiplier unit at one position of one chain.

    Parameters
    ----------
    name : str
        Prefix of the observer's names.
    signal : str
        Path of the register of the unit's product in the emitted module.
    chain : str
        Instance of the unit's chain, if the chain is instantiated; otherwise empty.
    lines : list of str
        Lines of Verilog that define the product, ``NAME_sum``, and its weights.
    in_range : str
        Verilog condition that the weights are in the range that the memories can hold.
    """

    name: str
    signal: str
    chain: str
    lines: list[str]
    in_range: str


def _units(config: MultiplyConfig, site: Site) -> Iterator[_Unit]:
    """Yield the multiplier units in DSP slices of a convolution."""
    for position in range(config.positions):
        chains = [chain for chain in range(config.chains) if config.lane_of(chain, position) is not None]
        for index, (group, chain) in product(range(len(config.slice_units)), product(config.pixel_groups, chains)):
            bits = config.unit_bits
            first = sum(bits[:index]) * len(chains) + chains.index(chain) * bits[index]
            yield _unit(config, site, index, group, chain, position, first)


def _unit(
    config: MultiplyConfig, site: Site, index: int, group: tuple[int, ...], chain: int, position: int, first: int
) -> _Unit:
    """Return one unit, whose weights begin at bit ``first`` of the weight word of its position."""
    unit, pixels = config.slice_units[index], config.window.pixels
    multiplier = config.multiplier.for_rest(len(unit), len(group))
    prefix = f"lane_{'_'.join(map(str, unit))}"
    first_pixel = group[0]
    if len(group) > 1:
        prefix += f"_pixels_{'_'.join(map(str, group))}"
    else:
        prefix = at_pixel(prefix, first_pixel, pixels)
    instance, signal, declared = _product(config, site, f"{prefix}_chain_{chain}", chain, position)
    name = f"unit_{index}_{first_pixel}_{chain}_{position}"
    lines, weights = _weights(config, name, f"word_{position}_was", first, config.unit_bits[index], len(unit))
    for pixel in group:
        lines.append(_activation(config, site, f"{name}_a{pixel}", unit[0], chain, position, pixel))
    factors = [(weight, f"{name}_a{pixel}") for weight in weights for pixel in group]
    for order, (weight, activation) in enumerate(factors):
        width = config.weight_bits + config.window.input.bits + 4
        lines.append(f"wire signed [{width - 1}:0] {name}_product_{order} = {weight} * {activation};")
    width = declared.width
    fields = [f"({name}_product_{order} <<< {shift})" for order, shift in enumerate(multiplier.shifts)]
    lines.append(f"wire signed [{width - 1}:0] {name}_sum = {' + '.join(fields)};")
    low, high = config.operands.weight_range
    within = [f"({weight} >= {_number(low)}) & ({weight} <= {_number(high)})" for weight in weights]
    return _Unit(name, signal, instance, lines, " & ".join(within))


def _product(config: MultiplyConfig, site: Site, name: str, chain: int, position: int) -> tuple[str, str, Declared]:
    """Return the instance of a chain, or "", and the path and declaration of the product's register at a position."""
    if not config.instantiated:
        signal = f"{name}_{position}_product"
        return "", signal, site.module.signals[signal]
    inner = site.inner(name)
    assert inner is not None
    register = f"product_{position - (config.lane_of(chain, 0) is None)}"
    instance = site.instance(name)
    return instance, f"{instance}.{register}", inner.module.signals[register]


def _weights(
    config: MultiplyConfig, name: str, word: str, first: int, bits: int, lanes: int
) -> tuple[list[str], list[str]]:
    """Return lines of Verilog that decode the weights of a unit from a word, and the names of the weights.

    The word of two weights holds the lower one, and the upper one less 1 if the lower one is negative.
    """
    lower = first + config.weight_bits
    lines = [f"wire signed [{config.weight_bits + 1}:0] {name}_w0 = $signed({word}[{lower - 1}:{first}]);"]
    if lanes == 1:
        return lines, [f"{name}_w0"]
    lines.append(
        f"wire signed [{config.weight_bits + 1}:0] {name}_w1 = "
        f"$signed({word}[{first + bits - 1}:{lower}]) + $signed({{1'b0, {word}[{lower - 1}]}});"
    )
    return lines, [f"{name}_w0", f"{name}_w1"]


def _activation(config: MultiplyConfig, site: Site, name: str, lane: int, chain: int, position: int, pixel: int) -> str:
    """Return the line of Verilog that defines the activation of a unit at one pixel, less the multiplier's offset."""
    source, taps = config.window.input, config.window.taps
    index = config.lane_of(chain, position)
    assert index is not None
    tap, channel = (index, lane) if config.window.channelwise else divmod(index, source.lanes)
    payload = site.module.ports["i__payload"].width
    field = (
        dict(config.window.step_layout)["taps"].offset + ((pixel * taps + tap) * source.lanes + channel) * source.bits
    )
    low = (position + 1) * payload + field  # two registers are between the step and the product of the first position
    value = f"payload_past[{low + source.bits - 1}:{low}]"
    signed_value = f"$signed({value})" if source.shape.signed else f"$signed({{1'b0, {value}}})"
    return f"wire signed [{source.bits + 1}:0] {name} = {signed_value} - {_number(config.operand_offset)};"


def _number(value: int) -> str:
    return f"{'-' if value < 0 else ''}32'sd{abs(value)}"
