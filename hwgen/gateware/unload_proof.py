"""Proofs of the serialiser of a layer's results: every result leaves once, lowest channels first, without gaps."""

from __future__ import annotations

from typing import Any

from hwgen.gateware.unload import UnloadConfig
from hwgen.obligations.composition import wired
from hwgen.obligations.obligation import Obligation, Proofs, Site, choice, part, repeated
from hwgen.obligations.observers import counter, register, since
from hwgen.obligations.streams import bits_of_values


def obligations(config: UnloadConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of a layer's serialiser: no overwritten result, and order and values of its beats.

    They assume that results are as far apart as the earlier ones take to leave.
    """
    if not config.latency:
        return [_of_wires(config, site)]
    spacing, counts, value = max(config.fold_beats), config.fold_beats, config.shape.width * config.pixels
    left = f"i__valid ? {choice('fold', counts)} : remaining - (remaining != 0)"

    def stated(kind: str, statement: str, *observer: str, **fields: Any) -> Obligation:
        return site.obligation(
            kind,
            statement,
            methods=("pdr",),
            observer=(*since("i__valid", spacing), *observer),
            assumes={f"results are at least {spacing} cycles apart": f"!i__valid | (since == {spacing})"},
            **fields,
        )

    return [
        stated(
            "occupancy",
            "No result is overwritten before its last beat leaves.",
            asserts={"results come when at most the last beat is left": f"!i__valid | ({beats_left(config)} <= 1)"},
            cover=f"i__valid & ({beats_left(config)} == 1)",
        ),
        stated(
            "tokens",
            "Every result leaves once, in as many beats as it has channels for, lowest channels first.",
            *counter("fold", len(counts), "i__valid"),
            *register("remaining", left, spacing.bit_length()),
            *_values(config),
            asserts={
                "beats follow each other until the result has left": "o__valid == (remaining != 0)",
                "each beat has the result's next channels": f"!o__valid | ({' & '.join(_matches(config))})",
            },
            cover="o__valid & (remaining == 1)",
            drives={"i__payload": repeated("token", config.lanes_in, value)},
        ),
        bits_of_values(site, value, config.lanes_in * value, config.lanes_out * value),
    ]


def beats_left(config: UnloadConfig) -> str:
    """Return the name of the serialiser's signal that counts a result's beats still to be sent.

    If no result has two beats, it is the port ``o__valid``.
    """
    return "beats_left" if max(config.fold_beats) > 1 else "o__valid"


def _values(config: UnloadConfig) -> list[str]:
    """Return a list of observer lines (Verilog) that shift a free bit per channel, and keep the output fold's index."""
    lanes, sent = config.lanes_in, config.lanes_out
    fold_bits = max(1, (len(config.fold_beats) - 1).bit_length())
    return [
        f"wire [{lanes - 1}:0] token = $anyseq;",
        f"reg [{lanes - 1}:0] result = 0;",
        # Lanes that no other lane follows keep their values, as in the module, so that its registers are equal.
        f"always @(posedge clk) result <= i__valid ? token : "
        f"{{result[{lanes - 1}:{lanes - sent}], result[{lanes - 1}:{sent}]}};",
        *register("sent_fold", "i__valid ? fold : sent_fold", fold_bits),
    ]


def _matches(config: UnloadConfig) -> list[str]:
    """Return a list of Verilog conditions, per lane of a serialiser's output beat: it has its channel's value."""
    value, matches = config.shape.width * config.pixels, []
    for lane in range(config.lanes_out):
        short = [fold for fold, beats in enumerate(config.fold_channels) if lane >= len(beats[-1])]
        sent = part("o__payload", lane * value, value)
        is_empty = " | ".join(f"(sent_fold == {fold})" for fold in short)
        present = f"!((remaining == 1) & ({is_empty}))" if short else "1'b1"
        same = f"{sent} == {{{value}{{result[{lane}]}}}}"
        zero = f" & (({present}) | ({sent} == 0))" if short and config.clears else ""
        matches.append(f"((!({present}) | ({same})){zero})")
    return matches


def _of_wires(config: UnloadConfig, site: Site) -> Obligation:
    """Return the `Obligation` of a serialiser that sends each result in one beat, in the same cycle, unchanged."""
    value, counts = config.shape.width * config.pixels, [len(beat) for beat in config.beats]
    has_valid = site.has("o__valid")  # a netlist has no port for what is a wire through the module
    if not (config.clears and min(counts) < config.lanes_out):
        statement = "Every result leaves in the cycle of its arrival, unchanged."
        wires = {"o__payload": "i__payload", **({"o__valid": "i__valid"} if has_valid else {})}
        return wired(site, statement, wires, "tokens")
    lanes = []
    for lane in range(config.lanes_out):
        sent, came = (part(f"{port}__payload", lane * value, value) for port in "oi")
        present = " | ".join(f"(beat == {beat})" for beat, count in enumerate(counts) if lane < count)
        lanes.append(f"({sent} == (({present or 0}) ? {came} : {value}'d0))")
    return site.obligation(
        "tokens",
        "Every result leaves in the cycle of its arrival, unchanged; lanes past its last channel are zero.",
        observer=tuple(counter("beat", len(counts), "i__valid")),
        invariants={"results of a pixel are counted": f"(beat < {len(counts)}) & (beat_index == beat)"},
        asserts={
            "each lane has its channel, or is zero": f"!i__valid | ({' & '.join(lanes)})",
            **({"a result leaves when it comes": "o__valid == i__valid"} if has_valid else {}),
        },
        cover=f"i__valid & (beat == {counts.index(min(counts))}) & !rst",
    )


PROOFS = {UnloadConfig: Proofs((obligations,))}
