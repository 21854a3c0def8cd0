"""Proof obligations of nearest-neighbour upsampling: each output pixel equals the input pixel that it repeats.

The observer walks over the output in nested loops: repetitions of an input row, beats of the row, repetitions of the
beat, folds. A beat arrives in its first repetition in the first repetition of its row. One beat is marked, and each
step that repeats it must have its pixels.
"""

from __future__ import annotations

from hwgen.gateware import kept_proof
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, part
from hwgen.obligations.observers import counter, delayed


def obligations(config: UpsampleConfig, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of upsampling: values and order of its pixels, and no idle cycle."""
    source, walk, cycles = config.input, _step_lines(config), kept_proof.CYCLES
    counters = {signal: value for signal, value in _counters(config).items() if site.has(signal)}
    return [
        kept_proof.obligation(
            site,
            "Each step has the pixels that its output pixels repeat; a beat is accepted in its first repetition.",
            "row",
            config.kept_words,
            source.data_bits,
            observer=[
                *walk,
                f"wire {bits_for(config.kept_words - 1)} address = beat * {source.folds} + fold_count;",
                f"wire [{source.data_bits - 1}:0] word = {part('i__payload', 0, source.data_bits)};",
                *delayed("repeat", max(1, (config.factors[1] - 1).bit_length()), "repeat_count", cycles),
                *delayed("taken", 1, "taken", cycles, resets=True),
            ],
            invariants={
                "steps are counted": _counts_in_range(config),
                **{f"{signal} follows from the steps": f"{signal} == {counters[signal]}" for signal in counters},
            },
            asserts={
                "a beat is accepted in its first repetition": "i__ready == (taken & writes)",
                "a step that takes a beat has one": "!i__ready | i__valid",
                f"a step leaves after {cycles} cycles": "o__valid == taken_was",
                "each pixel is the one that it repeats": f"!is_used_was | ({_repeated(config)})",
            },
            cover="is_used_was & !rst",
        ),
        site.obligation(
            "progress",
            "A step is accepted in each cycle with room, once its beat is valid.",
            methods=("pdr",),
            observer=tuple(walk),
            asserts={"a step is accepted in time": "taken == (room & (i__valid | !writes))"},
            cover="taken & (fold_count == 0)",
        ),
    ]


def _step_lines(config: UpsampleConfig) -> list[str]:
    """Return a list of Verilog lines: an observer that counts an input row's output cycles, and marks some."""
    (down, right), source = config.factors, config.input
    beats = counter("beat", source.row_steps, "repeat_count_ends")
    return [
        "wire taken = start;",
        beats[0],
        *counter("fold_count", source.folds, "taken"),
        *counter("repeat_count", right, "fold_count_ends", _last_repetition(config)),
        *beats[1:],
        *counter("row_count", down, "beat_ends"),
        "wire writes = (row_count == 0) & (repeat_count == 0);",
    ]


def _last_repetition(config: UpsampleConfig) -> str:
    """Return, as a Verilog expression, the index of a beat's last repetition in a row; the last beat can have fewer."""
    right, beats = config.factors[1], config.input.row_steps
    return f"(beat == {beats - 1} ? {config.row_steps - (beats - 1) * right - 1} : {right - 1})"


def _counts_in_range(config: UpsampleConfig) -> str:
    """Return the Verilog condition that no counter of upsampling's observer exceeds its last value."""
    source = config.input
    return (
        f"(fold_count < {source.folds}) & (repeat_count <= {_last_repetition(config)}) & "
        f"(beat < {source.row_steps}) & (row_count < {config.factors[0]})"
    )


def _counters(config: UpsampleConfig) -> dict[str, str]:
    """Return a dict from each counter of the upsampling component to the observer's expression that it must equal."""
    return {
        "fold": "fold_count",
        "row_repeat": "row_count",
        "column_repeat": "repeat_count",
        "column_index": f"32'd0 + beat * {config.factors[1]} + repeat_count",
        "beat_address": f"32'd0 + beat * {config.input.folds} + fold_count",
    }


def _repeated(config: UpsampleConfig) -> str:
    """Return the Verilog condition that each output pixel equals the marked input pixel that it repeats."""
    source = config.input
    facts = []
    for index in range(config.factors[1] if config.pixels > 1 else 1):
        pixels = [
            part("marked_word", (lane * config.pixels + config.source_pixel(index, pixel)) * source.bits, source.bits)
            for lane in range(source.lanes)
            for pixel in range(config.pixels)
        ]
        is_other = f"(repeat_was != {index}) | " if config.pixels > 1 else ""
        facts.append(f"({is_other}(o__payload == {{{', '.join(reversed(pixels))}}}))")
    return " & ".join(facts)


PROOFS = {UpsampleConfig: Proofs((obligations,))}
