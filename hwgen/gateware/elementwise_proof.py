"""Proof obligations ``elementwise``: every output of an elementwise layer equals its formula, for all operand values.

The formula's functions are the tables of the configuration. `hwgen build` checks these tables against the operator of
the model, for all values or pairs of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from amaranth import Shape

from hwgen.gateware.arithmetic.shares import MAX_BITS
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.stream import at_pixel
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.threshold_proof import of_index
from hwgen.obligations.obligation import Obligation, Proofs, Site, part, signed_number, table, value_of
from hwgen.obligations.observers import delayed, index_of, pipeline

#: Width of the sums in the obligations' formulas, in bits, wider than every sum of two table entries.
_WIDE = 64


@dataclass(frozen=True)
class _OutputValue:
    """Output value of elementwise arithmetic in a proof: its lane and pixel in the beat, and its Verilog expression.

    Parameters
    ----------
    name : str
        Prefix of the observer's names.
    lane, pixel : int
        Position of the value in the beat.
    output : str
        Signed Verilog expression of the output.
    """

    name: str
    lane: int
    pixel: int
    output: str


def _output_values(config: Any) -> list[_OutputValue]:
    """Return a list of the values of an output beat of elementwise arithmetic, ordered by lane, then by pixel."""
    pixels, shape = config.window.pixels, config.result
    return [
        _OutputValue(
            at_pixel(f"lane_{lane}", pixel, pixels),
            lane,
            pixel,
            value_of(part("o__payload", (lane * pixels + pixel) * shape.width, shape.width), shape),
        )
        for lane, pixel in product(range(config.lanes), range(pixels))
    ]


def _operand_text(config: Any, value: _OutputValue, field: str, shape: Shape, pixels: int) -> str:
    """Return the Verilog expression of the bits of an output value's operand, in the delayed input ``payload_was``.

    ``field`` is the field of the step, with values of ``shape`` at ``pixels`` pixels. One pixel is for all pixels.
    """
    pixel = value.pixel if pixels > 1 else 0
    first = dict(config.window.step_layout)[field].offset + (value.lane * pixels + pixel) * shape.width
    return part("payload_was", first, shape.width)


def _operand_texts(config: Any, value: _OutputValue) -> list[str]:
    """Return a list of the Verilog expressions of an output value's operands, as bits, one for each input map."""
    return [
        _operand_text(config, value, f"operand_{index}", beat.shape, beat.pixels)
        for index, beat in enumerate(config.window.inputs)
    ]


def _table_lines(config: Any, name: str) -> list[str]:
    """Return a list of Verilog lines that define the lookup tables of the input maps, each an array ``NAME_INDEX``."""
    return [
        line
        for index, (words, beat) in enumerate(zip(config.tables, config.window.inputs, strict=True))
        if words
        for line in table(f"{name}_{index}", words, signed=beat.signed)
    ]


def _obligation(
    config: Any,
    site: Site,
    statement: str,
    lines: Sequence[str],
    facts: Mapping[str, str],
    **fields: Any,
) -> list[Obligation]:
    """Return a list with the obligation that ``facts`` hold: Verilog over outputs and their inputs ``payload_was``.

    The inputs are ``config.latency`` cycles older than the outputs.
    """
    cycles = config.latency
    payload = delayed("payload", site.module.ports["i__payload"].width, "i__payload", cycles)
    return [
        pipeline(
            site,
            "elementwise",
            f"{statement}, {cycles} cycles later.",
            cycles,
            facts,
            observer=(*payload, *lines),
            keeps=site.memories,
            **fields,
        )
    ]


def of_table_sum(config: TableSumConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of a sum by tables: an output is the rounded sum of two table entries, saturated."""
    one, wide = 1 << config.fraction, f"wire signed [{_WIDE - 1}:0]"
    lines = _table_lines(config, "share")
    lines += table("rounding", config.rounding, signed=False)
    facts = {}
    for value in _output_values(config):
        name, low, high = value.name, signed_number(config.low), signed_number(config.high)
        shares = " + ".join(f"share_{index}[{bits}]" for index, bits in enumerate(_operand_texts(config, value)))
        lines += [
            f"{wide} {name}_sum = {shares};",
            f"{wide} {name}_floor = {name}_sum >>> {config.fraction};",
            f"{wide} {name}_rest = {name}_sum - {name}_floor * {signed_number(one)};",
            f"{wide} {name}_threshold = rounding[{name}_floor[{MAX_BITS - 1}:0]];",
            f"{wide} {name}_total = {name}_floor + ({name}_rest >= {name}_threshold ? 2'sd1 : 2'sd0) + "
            f"{signed_number(config.zero_point)};",
            f"{wide} {name}_bounded = {name}_total < {low} ? {low} : {name}_total > {high} ? {high} : {name}_total;",
        ]
        facts[f"{name} is the rounded sum"] = f"{value.output} == {name}_bounded"
    return _obligation(config, site, "Each output is the rounded and saturated sum of its operands", lines, facts)


def of_product(config: ProductConfig, site: Site) -> list[Obligation]:
    """Return a list: the `Obligation` that a map product's output is ``(a - zeros[0]) * (b - zeros[1])``."""
    facts = {}
    for value in _output_values(config):
        first, second = (
            f"({value_of(bits, beat.shape)} - {signed_number(zero)})"
            for bits, beat, zero in zip(_operand_texts(config, value), config.window.inputs, config.zeros, strict=True)
        )
        facts[f"{value.name} is the product"] = f"{value.output} == {_WIDE}'sd0 + {first} * {second}"
    return _obligation(config, site, "Each output is the product of its operands, less their zero points", [], facts)


def of_extreme(config: ExtremeConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation of a maximum or minimum of maps: it bounds all operands and equals one."""
    lines = _table_lines(config, "converted")
    bound, facts = ">=" if config.greatest else "<=", {}
    for value in _output_values(config):
        candidates = [
            f"converted_{index}[{bits}]" if config.tables[index] else value_of(bits, beat.shape)
            for index, (bits, beat) in enumerate(zip(_operand_texts(config, value), config.window.inputs, strict=True))
        ]
        is_bound = " & ".join(f"({value.output} {bound} {candidate})" for candidate in candidates)
        is_one = " | ".join(f"({value.output} == {candidate})" for candidate in candidates)
        facts[f"{value.name} is the {'largest' if config.greatest else 'smallest'} operand"] = (
            f"({is_bound}) & ({is_one})"
        )
    statement = f"Each output is the {'maximum' if config.greatest else 'minimum'} of its converted operands"
    return _obligation(config, site, statement, lines, facts)


def of_recode(config: RecodeConfig, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` of a conversion by tables: each output is its operand's table entry."""
    inputs, layout = config.window.inputs, dict(config.window.step_layout)
    lines = _table_lines(config, "converted")
    source = layout.get("source")
    source_bits = source.width if source else 0
    source_was = part("payload_was", source.offset, source_bits) if source and source_bits else "1'b0"
    widest, facts = max(beat.bits for beat in inputs), {}
    for value in _output_values(config):
        field = _operand_text(config, value, "operand", Shape(widest), config.window.pixels)
        name = f"{value.name}_operand"
        lines.append(f"wire [{widest - 1}:0] {name} = {field};")
        for index, beat in enumerate(inputs):
            bits = part(name, 0, beat.bits)
            expected = f"converted_{index}[{bits}]" if config.tables[index] else value_of(bits, beat.shape)
            facts[f"{value.name} of input {index} is converted"] = (
                f"({source_was} != {index}) | ({value.output} == {expected})"
            )
    return _obligation(config, site, "Each output is its operand's entry in the table of its map", lines, facts)


def of_channel_table(config: ChannelTableConfig, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` of tables per channel: each output is its channel's table entry."""
    beat, cycles = config.window.input, config.latency
    size, fold_bits = 1 << beat.bits, max(beat.folds - 1, 1).bit_length()
    index, inputs = index_of(site, "fold_index", fold_bits)
    lines, facts = delayed("fold", fold_bits, index, cycles), {}
    for lane in range(config.lanes):
        for channels in beat.fold_channels:
            if lane < len(channels):
                words = config.tables.values[channels[lane] * size : (channels[lane] + 1) * size].tolist()
                lines += table(f"channel_{channels[lane]}", words, signed=beat.signed)
    for value in _output_values(config):
        bits = _operand_text(config, value, "operand", beat.shape, config.window.pixels)
        for fold, channels in enumerate(beat.fold_channels):
            expected = f"channel_{channels[value.lane]}[{bits}]" if value.lane < len(channels) else "0"
            facts[f"{value.name} of beat {fold} is its channel's"] = (
                f"(fold_was != {fold}) | ({value.output} == {expected})"
            )
    outputs = _obligation(
        config,
        site,
        "Each output is its operand's entry in the table of its channel",
        lines,
        facts,
        inputs=inputs,
    )
    return [*outputs, *([of_index(site, beat.folds, "fold_index", 0)] if not inputs else [])]


PROOFS = {
    TableSumConfig: Proofs((of_table_sum,), resets=False),
    ProductConfig: Proofs((of_product,), resets=False),
    ExtremeConfig: Proofs((of_extreme,), resets=False),
    RecodeConfig: Proofs((of_recode,), resets=False),
    ChannelTableConfig: Proofs((of_channel_table,), resets=False),
}
