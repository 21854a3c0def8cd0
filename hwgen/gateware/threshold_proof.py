"""Proof obligations ``threshold`` and ``bias``: a layer's last stage, which compares sums or only adds a bias.

A stage of thresholds is defined by bounds: the sum reaches the last threshold that the output counts, and not the next
one. The emitted module searches for the output instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.gateware.bias import AddBiasConfig
from hwgen.gateware.stream import at_pixel
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.obligations.obligation import Obligation, Site, bits_for, part, signed_number, table, value_of
from hwgen.obligations.observers import counter, delayed, index_of, pipeline

Beats = Sequence[Sequence[int]]
"""Type of a pixel's beats, a sequence with each beat's channel indices, lane 0 first."""


def of_threshold(config: ThresholdConfig, site: Site, beats: Beats) -> list[Obligation]:
    """Return a list of obligations of a requantiser by thresholds: its outputs, and its counters of a pixel's beats."""
    cycles, bits, count = config.latency, config.accumulator.width, len(config.thresholds[0])
    size = 1 << (count + 2).bit_length()
    index_bits = max(len(beats) - 1, 1).bit_length()
    # The row is chosen when the sum comes, and the lanes with a channel just before the output leaves.
    row, row_inputs = index_of(site, "row_index", index_bits)
    present, present_inputs = index_of(site, "beat_index", index_bits)
    lines = [
        *delayed("payload", config.lanes * config.pixels * bits, "i__payload", cycles),
        *delayed("row", index_bits, row, cycles),
        *delayed("present", index_bits, present, 1),
        *table("bounds", _count_bounds(config, size), signed=False),
    ]
    # A stage without thresholds reads no sums.
    unread = {} if site.has("i__payload") else {"i__payload": config.lanes * config.pixels * bits}
    facts = {}
    for lane in range(config.lanes):
        for pixel in range(config.pixels):
            position = lane * config.pixels + pixel
            name = at_pixel(f"lane_{lane}", pixel, config.pixels)
            output = value_of(part("o__payload", position * config.bits, config.bits), config.output)
            value = part("payload_was", position * bits, bits)
            lines += [
                f"wire [{bits - 1}:0] {name}_value = {value};",
                f"wire signed [{config.accumulator_bits - 1}:0] {name}_sum = {name}_value;",
                f"wire signed [{config.bits + 1}:0] {name}_output = {output};",
                f"wire {bits_for(size - 1)} {name}_count = {name}_output - {signed_number(config.low)};",
            ]
            for beat, channels in enumerate(beats):
                at_beat = f"(row_was == {beat}) & (present_was == {beat})"
                if lane >= len(channels):
                    facts[f"{name} of beat {beat} is 0"] = f"!({at_beat}) | ({name}_output == 0)"
                    continue
                for row, condition in _threshold_rows(config, channels[lane], name):
                    within = _reaches_threshold(name, row * size, config.low, count)
                    facts[f"{name} of beat {beat}, row {row}, counts its thresholds"] = (
                        f"!({at_beat} & {condition}) | ({within})"
                    )
    outputs = pipeline(
        site,
        "threshold",
        f"Each output is {config.low} plus the number of thresholds that its sum reaches, {cycles} cycles later.",
        cycles,
        facts,
        methods=("exhaustive", "induction"),
        observer=lines,
        keeps=site.memories,
        inputs=row_inputs | present_inputs | unread,
    )
    delays = {"row_index": 0, "beat_index": cycles - 1}
    return [outputs, *(of_index(site, len(beats), name, wait) for name, wait in delays.items() if site.has(name))]


def _count_bounds(config: ThresholdConfig, size: int) -> list[int]:
    """Return one list of sums: for each row of thresholds, the smallest that reaches 0, 1, 2 .. of them, padded."""
    lowest = -(1 << config.accumulator_bits - 1)
    never = [1 << config.accumulator_bits] * (size - len(config.thresholds[0]) - 1)
    return [bound for row in config.thresholds for bound in (lowest, *row, *never)]


def _threshold_rows(config: ThresholdConfig, channel: int, name: str) -> list[tuple[int, str]]:
    """Return a list of (index, Verilog condition) of the threshold rows that a channel uses: when one is selected."""
    if config.by_channel:
        return [(channel, "1'b1")]
    if not config.counts:
        return [(0, "1'b1")]
    count = f"{name}_value[{config.accumulator.width - 1}:{config.accumulator_bits}]"
    return [(row, f"({count} == {taps})") for row, taps in enumerate(config.counts)]


def _reaches_threshold(name: str, first: int, low: int, count: int) -> str:
    """Return the Verilog condition that a sum reaches as many thresholds as its output counts, and not the next one."""
    bound = f"bounds[{first} + {name}_count"
    return (
        f"({name}_output >= {signed_number(low)}) & ({name}_output <= {signed_number(low + count)}) & "
        f"({name}_sum >= {bound}]) & ({name}_sum < {bound} + 1])"
    )


def of_bias(config: AddBiasConfig, site: Site, beats: Beats) -> list[Obligation]:
    """Return a list: the `Obligation` that a layer's last stage outputs each accumulator plus its bias."""
    cycles, bits = config.latency, config.accumulator_bits
    index_bits = max(len(beats) - 1, 1).bit_length()
    index, inputs = index_of(site, "beat_index", index_bits)
    lines = [
        *delayed("payload", config.lanes * config.pixels * bits, "i__payload", cycles),
        *delayed("index", index_bits, index, cycles),
    ]
    facts = {}
    for lane in range(config.lanes):
        for pixel in range(config.pixels):
            position = lane * config.pixels + pixel
            name = at_pixel(f"lane_{lane}", pixel, config.pixels)
            output = part("o__payload", position * config.bits, config.bits)
            lines += [
                f"wire signed [{bits - 1}:0] {name}_value = {part('payload_was', position * bits, bits)};",
                f"wire signed [{config.bits - 1}:0] {name}_output = {output};",
            ]
            for beat, channels in enumerate(beats):
                bias = signed_number(config.bias[channels[lane]]) if lane < len(channels) else ""
                expected = f"{name}_value + {bias}" if bias else "0"
                lines.append(f"wire signed [{config.bits - 1}:0] {name}_of_{beat} = {expected};")
                facts[f"{name} of beat {beat} is the sum"] = (
                    f"(index_was != {beat}) | ({name}_output == {name}_of_{beat})"
                )
    return [
        pipeline(
            site,
            "bias",
            f"Each output is the sum of its accumulator and the bias of its channel, {cycles} cycles later.",
            cycles,
            facts,
            methods=("exhaustive", "induction"),
            observer=lines,
            keeps=site.memories,
            inputs=inputs,
        )
    ]


def of_index(site: Site, num_beats: int, signal: str, cycles: int) -> Obligation:
    """Return the proof `Obligation` that a register counts the beats of a pixel that arrived ``cycles`` cycles ago."""
    return site.obligation(
        "index",
        f"The index of a beat is the number of beats that came before in the pixel, which has {num_beats} beats.",
        methods=("pdr",),
        observer=(
            *delayed("came", 1, "i__valid", cycles, resets=True),
            *counter("beat", num_beats, "came_was"),
        ),
        asserts={"the index counts the beats of a pixel": f"{signal} == beat"},
        cover=f"beat == {num_beats - 1}",
        run={"i__valid": "1'b1"},
        free_memories=True,
    )
