"""Proof obligations ``elementwise`` of fixed-point layers: each result equals the program's operations, in Verilog.

Products of two values and curves are not proved, because deciding equality of wide products takes too long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from hwgen.gateware.fixed_point import (
    AddCircuit,
    ExtremumCircuit,
    FixedPointConfig,
    LimitsCircuit,
    MultiplyCircuit,
    OperationCircuit,
    ShiftCircuit,
    TableCircuit,
)
from hwgen.gateware.stream import at_pixel
from hwgen.gateware.threshold_proof import of_index
from hwgen.obligations.obligation import Obligation, Proofs, Site, choice, part, signed_number, table, value_of
from hwgen.obligations.observers import delayed, index_of, pipeline

#: Maximum width in bits of an operand whose product with constants is proved.
_MAX_BITS = 8

#: Width of all values in the definitions of operations, in bits.
_WIDE = 64


def _shift_text(value: str, shift: int) -> str:
    return f"(({value}) + {signed_number(1 << shift >> 1)}) >>> {shift}" if shift > 0 else f"({value}) <<< {-shift}"


#: Dictionary from class of operation to a function that returns the Verilog expression of the operation's result. The
#: function's parameters are the operation, and its operands and its constant as Verilog expressions.
_DEFINITIONS: dict[type[OperationCircuit], Callable[[Any, Sequence[str], str], str]] = {
    TableCircuit: lambda circuit, values, constant: constant,
    ShiftCircuit: lambda circuit, values, constant: _shift_text(values[0], circuit.shift),
    MultiplyCircuit: lambda circuit, values, constant: _shift_text(f"{values[0]} * {constant}", circuit.shift),
    AddCircuit: lambda circuit, values, constant: (
        f"{values[0]} {'+' if circuit.sign > 0 else '-'} {values[1] if circuit.offset == () else constant}"
    ),
    ExtremumCircuit: lambda circuit, values, constant: (
        f"{values[0]} {'>' if circuit.greatest else '<'} {values[1]} ? {values[0]} : {values[1]}"
    ),
    LimitsCircuit: lambda circuit, values, constant: (
        f"{values[0]} < {signed_number(circuit.low)} ? {signed_number(circuit.low)} : "
        f"{values[0]} > {signed_number(circuit.high)} ? {signed_number(circuit.high)} : {values[0]}"
    ),
}


def is_proved(config: FixedPointConfig) -> bool:
    """Return whether a fixed-point program is simple enough to prove: products only of 8-bit inputs and constants."""
    inputs = config.window.inputs
    return all(
        type(step) in _DEFINITIONS
        and (not isinstance(step, MultiplyCircuit) or (step.factor != () and step.operands[0] < len(inputs)))
        for step in config.steps
    ) and all(beat.bits <= _MAX_BITS for beat in inputs)


def of_fixed_point(config: FixedPointConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation that a fixed-point program's results equal its definition, if `is_proved`."""
    if not is_proved(config):
        return []
    cycles, beats, width = config.latency, config.beats, config.result.width
    index_bits = max(len(beats) - 1, 1).bit_length()
    index, inputs = index_of(site, "beat_index", index_bits)
    payload = delayed("payload", site.module.ports["i__payload"].width, "i__payload", cycles)
    lines, facts = [*payload, *delayed("beat", index_bits, index, cycles)], {}
    for number, step in enumerate(config.steps):
        for channel, words in enumerate(getattr(step, "tables", ())):
            lines += table(f"table_{number}_{channel}", words, signed=False)
    for lane, pixel in product(range(config.lanes), range(config.pixels)):
        name = at_pixel(f"lane_{lane}", pixel, config.pixels)
        lines += _value_lines(config, name, lane, pixel)
        result = f"$signed({part('o__payload', (lane * config.pixels + pixel) * width, width)})"
        for beat, channels in enumerate(beats):
            if lane < len(channels):
                last = f"{name}_value_{len(config.window.inputs) + len(config.steps) - 1}"
                facts[f"{name} of beat {beat} is the last step's"] = f"(beat_was != {beat}) | ({result} == {last})"
    statement = f"Each result equals the steps' definitions applied to its operands, {cycles} cycles later."
    found = [
        pipeline(site, "elementwise", statement, cycles, facts, observer=lines, keeps=site.memories, inputs=inputs)
    ]
    return [*found, *([of_index(site, len(beats), "beat_index", 0)] if not inputs else [])]


def _value_lines(config: FixedPointConfig, name: str, lane: int, pixel: int) -> list[str]:
    """Return a list of Verilog lines of operands and results (``NAME_value_INDEX``) of one lane and pixel."""
    lines = []
    for index, beat in enumerate(config.window.inputs):
        field = dict(config.window.step_layout)[f"operand_{index}"].offset
        first = field + (lane * beat.pixels + pixel % beat.pixels) * beat.bits
        lines.append(_wire(name, index, value_of(part("payload_was", first, beat.bits), beat.shape)))
    for number, step in enumerate(config.steps):
        operands = [f"{name}_value_{operand}" for operand in step.operands]
        entries = _constant_texts(step, number, operands[0])
        chosen = [entries[_channel(channels, lane) if len(entries) > 1 else 0] for channels in config.beats]
        expression = _DEFINITIONS[type(step)](step, operands, choice("beat_was", chosen))
        lines.append(_wire(name, len(config.window.inputs) + number, expression))
    return lines


def _channel(channels: range, lane: int) -> int:
    """Return the channel that a beat with ``channels`` has in ``lane``, or 0 if it has none."""
    return channels[lane] if lane < len(channels) else 0


def _constant_texts(step: OperationCircuit, number: int, operand: str) -> list[str]:
    """Return Verilog expressions of an operation's constant or table entry: a list of one, or one per channel."""
    if isinstance(step, TableCircuit):
        bits = (len(step.tables[0]) - 1).bit_length()
        lines = [f"{operand} - {signed_number(step.low)}" for _ in step.tables]
        return [f"table_{number}_{channel}[({line}) & {bits}'d{(1 << bits) - 1}]" for channel, line in enumerate(lines)]
    return [signed_number(constant) for constant in step.constants] or ["1'sd0"]


def _wire(name: str, index: int, expression: str) -> str:
    return f"wire signed [{_WIDE - 1}:0] {name}_value_{index} = {expression};"


def _reasons(config: FixedPointConfig, _site: Site) -> Mapping[str, str]:
    """Return ``{"": reason}`` if the results of a fixed-point program are not proved, else an empty dictionary."""
    return {} if is_proved(config) else {"": "its products of wide values are simulated"}


PROOFS = {FixedPointConfig: Proofs((of_fixed_point,), reasons=_reasons, resets=False)}
