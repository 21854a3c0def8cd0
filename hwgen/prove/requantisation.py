"""Obligations ``requantise``: a requantiser equals its definition, for every accumulator of every channel.

The definition is written from the formula, in Verilog of its own: it adds the bias, rounds the sum to float32,
multiplies it by the significand, rounds the product to float32, divides it by a power of two, rounds, and saturates. It
has none of the emitted module's shifts, clamps and corrections.
"""

from __future__ import annotations

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits
from hwgen.prove.obligation import Obligation
from hwgen.prove.pipeline import age, delayed, is_old
from hwgen.prove.site import Site

__all__ = ["of_layer", "of_requantiser"]


def of_layer(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a layer's last stage, if it requantises."""
    finish = site.inner("finish")
    if finish is None or not isinstance(layer.finish, RequantiseConfig):
        return []
    return of_requantiser(layer.finish, finish)


def of_requantiser(config: RequantiseConfig, site: Site) -> list[Obligation]:
    """Return the obligation of each lane and pixel of a requantiser."""
    return [_of_value(config, site, value) for value in range(config.lanes * config.pixels)]


def _of_value(config: RequantiseConfig, site: Site, value: int) -> Obligation:
    lane, cycles = value // config.pixels, config.latency
    bits = config.accumulator_bits
    accumulator = f"i__payload[{value * bits + bits - 1}:{value * bits}]"
    output = f"o__payload[{value * config.bits + config.bits - 1}:{value * config.bits}]"
    has_index = site.has("beat_index")
    index_bits = max(len(config.beats) - 1, 1).bit_length()
    lines = [
        *age(cycles),
        *delayed("accumulator", bits, accumulator, cycles),
        *(delayed("beat", index_bits, "index", cycles) if has_index else ()),
    ]
    asserts = {}
    for beat, channels in enumerate(config.beats):
        name = f"of_{beat}"
        if lane < len(channels):
            lines += _definition(config, channels[lane], name)
        else:
            lines.append(f"wire [{config.bits - 1}:0] {name} = 0;")
        at_beat = f" | (beat_was != {beat})" if has_index else ""
        fact = f"lane {lane} of beat {beat} is the definition's"
        asserts[fact] = f"!{is_old(cycles)}{at_beat} | ({output} == {name})"
    return site.obligation(
        "requantise",
        f"Lane {lane} of the outputs is the accumulator, requantised by the definition, {cycles} cycles later.",
        methods=("exhaustive",),
        observer=tuple(lines),
        sees={"index": "beat_index"} if has_index else {},
        assumes={"no reset": "!rst"},
        asserts=asserts,
        structure={"cycles": cycles},
    )


def _float32(name: str, value: str, width: int) -> list[str]:
    """Return lines of Verilog that define ``NAME``: a signed value rounded to 24 significant bits, ties to even.

    ``NAME_unit`` is the value of the last of the 24 bits, or 0 if all bits are significant.
    """
    word = f"[{width - 1}:0]"
    units = [
        f"{name}_size[{width - 1}:{SIGNIFICAND_BITS - 1 + bit}] == 1" for bit in range(1, width - SIGNIFICAND_BITS)
    ]
    last_place = ", ".join([*reversed(units), "1'b0"])
    return [
        f"wire {word} {name}_size = {value} < 0 ? -{value} : {value};",
        f"wire {word} {name}_unit = {{{last_place}}};",
        f"wire {word} {name}_below = {name}_unit == 0 ? 0 : {name}_unit - 1;",
        f"wire {word} {name}_rest = {name}_size & {name}_below;",
        f"wire {name}_is_tie = ({name}_rest == {name}_unit >> 1) & (|({name}_size & {name}_unit));",
        f"wire {name}_up = ({name}_rest > {name}_unit >> 1) | {name}_is_tie;",
        f"wire {word} {name}_even = ({name}_size & ~{name}_below) + ({name}_up ? {name}_unit : 0);",
        f"wire signed {word} {name} = {value} < 0 ? -{name}_even : {name}_even;",
    ]


def _definition(config: RequantiseConfig, channel: int, name: str) -> list[str]:
    """Return lines of Verilog that define the output of a channel, ``name``, from ``accumulator_was``."""
    bias, shift = config.bias[channel], config.shift[channel]
    # Rounding can make a number one bit wider.
    sum_bits = signed_bits((1 << (config.accumulator_bits + config.fraction - 1)) + abs(bias)) + 1
    width = max(sum_bits + SIGNIFICAND_BITS + 2, shift + 2, config.bits + 2)

    def number(value: int, bits: int = width) -> str:
        return f"{'-' if value < 0 else ''}{bits}'sd{abs(value)}"

    def rounded(result: str, value: str, bits: int) -> list[str]:
        return _float32(result, value, bits) if config.float32 else [f"wire signed [{bits - 1}:0] {result} = {value};"]

    lines = [
        f"wire signed [{sum_bits - 1}:0] {name}_sum = "
        f"($signed(accumulator_was) <<< {config.fraction}) + {number(bias, sum_bits)};",
        *rounded(f"{name}_rounded", f"{name}_sum", sum_bits),
        f"wire signed [{width - 1}:0] {name}_exact = {name}_rounded * {number(config.significand[channel])};",
        *rounded(f"{name}_product", f"{name}_exact", width),
        f"wire signed [{width - 1}:0] {name}_floor = {name}_product >>> {shift};",
        f"wire [{width - 1}:0] {name}_rest = {name}_product - ({name}_floor <<< {shift});",
    ]
    half = f"{width}'d{1 << shift >> 1}"
    up = f"(({name}_rest > {half}) | (({name}_rest == {half}) & {name}_floor[0]))" if shift else "1'b0"
    low, high = number(config.low), number(config.high)
    return [
        *lines,
        f"wire signed [{width - 1}:0] {name}_total = "
        f"{name}_floor + $signed({{1'b0, {up}}}) + {number(config.zero_point)};",
        f"wire signed [{width - 1}:0] {name}_bounded = "
        f"{name}_total < {low} ? {low} : {name}_total > {high} ? {high} : {name}_total;",
        f"wire [{config.bits - 1}:0] {name} = {name}_bounded[{config.bits - 1}:0];",
    ]
