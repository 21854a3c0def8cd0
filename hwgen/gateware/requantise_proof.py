"""Proof obligations ``requantise``: a requantiser equals its definition, for every accumulator of every channel.

The definition is written from the formula, in Verilog of its own: it adds the bias, rounds the sum to float32,
multiplies it by the significand, rounds the product to float32, divides it by a power of two, rounds, and saturates. It
has none of the emitted module's shifts, clamps and corrections.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits
from hwgen.obligations.obligation import Obligation, Site, literal, part
from hwgen.obligations.observers import delayed, index_of, pipeline


def of_requantiser(
    config: RequantiseConfig, site: Site, beats: Sequence[Sequence[int]] | None = None
) -> list[Obligation]:
    """Return a list of obligations that a requantiser computes its formula, one for each lane and pixel of a beat.

    ``beats`` are the channels of each beat that the component before it sends, by default ``config.beats``.
    """
    sent = config.beats if beats is None else beats
    return [_of_value(config, site, sent, value) for value in range(config.lanes * config.pixels)]


def _of_value(config: RequantiseConfig, site: Site, beats: Sequence[Sequence[int]], value: int) -> Obligation:
    lane, cycles = value // config.pixels, config.latency
    bits = config.accumulator_bits
    accumulator, output = part("i__payload", value * bits, bits), part("o__payload", value * config.bits, config.bits)
    channels = [beat[lane] if lane < len(beat) else None for beat in beats]
    index_bits = max(len(channels) - 1, 1).bit_length()
    index, inputs = index_of(site, "beat_index", index_bits)
    observer = [
        *delayed("accumulator", bits, accumulator, cycles),
        *delayed("beat", index_bits, index, cycles),
        *_constants(config, channels, index_bits),
        *_definition(config),
    ]
    facts = {
        f"lane {lane} of beat {beat} is the definition's": (
            f"(beat_was != {beat}) | ({output} == {'expected' if channel is not None else 0})"
        )
        for beat, channel in enumerate(channels)
    }
    return pipeline(
        site,
        "requantise",
        f"Lane {lane} of the outputs is the accumulator, requantised by the definition, {cycles} cycles later.",
        cycles,
        facts,
        observer=observer,
        keeps=site.memories,  # tables of many beats, with the contents of their files
        inputs=inputs,
    )


def _widths(config: RequantiseConfig) -> tuple[int, int]:
    """Return a pair: the widths in bits of the biased accumulator and of the scaled product, in the proof's formula."""
    largest_bias = max(map(abs, config.bias))
    # Rounding can make a number one bit wider.
    sum_bits = signed_bits((1 << (config.accumulator_bits + config.fraction - 1)) + largest_bias) + 1
    return sum_bits, max(sum_bits + SIGNIFICAND_BITS + 2, max(config.shift) + 2, config.bits + 2)


def _constants(config: RequantiseConfig, channels: Sequence[int | None], index_bits: int) -> list[str]:
    """Return a list of Verilog lines that select a lane's bias, significand and shift by the beat (``beat_was``).

    One definition serves all channels, so that Yosys translates it once. In the assertion of a beat, the constants of
    its channel replace the choice.
    """
    sum_bits, _ = _widths(config)
    significand_bits, shift_bits = SIGNIFICAND_BITS + 1, max(max(config.shift).bit_length(), 1)
    bits = sum_bits + significand_bits + shift_bits
    # A function, because simulators run a block `always @*` only after a change.
    lines = [f"function [{bits - 1}:0] constants_of (input [{index_bits - 1}:0] beat);", "case (beat)"]
    for beat, channel in enumerate(channels):
        if channel is not None:
            bias = literal(config.bias[channel], sum_bits)
            scale = f"{significand_bits}'d{config.significand[channel]}, {shift_bits}'d{config.shift[channel]}"
            lines.append(f"{index_bits}'d{beat}: constants_of = {{{bias}, {scale}}};")
    return [
        *lines,
        "default: constants_of = 0;",
        "endcase",
        "endfunction",
        f"wire [{bits - 1}:0] constants = constants_of(beat_was);",
        f"wire signed [{sum_bits - 1}:0] bias = constants[{bits - 1}:{bits - sum_bits}];",
        f"wire signed [{significand_bits - 1}:0] significand = constants[{bits - sum_bits - 1}:{shift_bits}];",
        f"wire [{shift_bits - 1}:0] shift = constants[{shift_bits - 1}:0];",
    ]


def float32(name: str, value: str, width: int) -> list[str]:
    """Return a list of Verilog lines of a wire ``NAME``: ``value`` rounded to 24 significant bits, ties to even.

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


def _definition(config: RequantiseConfig) -> list[str]:
    """Return a list of Verilog lines that compute ``expected``, a requantiser's output, from sum and constants."""
    sum_bits, width = _widths(config)

    def rounded(result: str, value: str, bits: int) -> list[str]:
        return float32(result, value, bits) if config.float32 else [f"wire signed [{bits - 1}:0] {result} = {value};"]

    low, high = literal(config.low, width), literal(config.high, width)
    return [
        f"wire signed [{sum_bits - 1}:0] sum = ($signed(accumulator_was) <<< {config.fraction}) + bias;",
        *rounded("rounded", "sum", sum_bits),
        f"wire signed [{width - 1}:0] exact = rounded * significand;",
        *rounded("product", "exact", width),
        f"wire signed [{width - 1}:0] floor = product >>> shift;",
        f"wire [{width - 1}:0] rest = product - (floor <<< shift);",
        f"wire [{width - 1}:0] half = ({width}'d1 << shift) >> 1;",
        "wire up = (shift != 0) & ((rest > half) | ((rest == half) & floor[0]));",
        f"wire signed [{width - 1}:0] total = floor + $signed({{1'b0, up}}) + {literal(config.zero_point, width)};",
        f"wire signed [{width - 1}:0] bounded = total < {low} ? {low} : total > {high} ? {high} : total;",
        f"wire [{config.bits - 1}:0] expected = bounded[{config.bits - 1}:0];",
    ]
