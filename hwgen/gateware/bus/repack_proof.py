"""Proof obligations of the width converter at a bus: it stores units of values and sends each once, in order.

A unit is a group of neighbouring values that no piece splits. The observer counts units on both sides, from the sizes
of pieces that the configuration states, and marks one unit of its own choice with all its values. Nothing is assumed of
the input: a valid piece can be withdrawn.
"""

from __future__ import annotations

from hwgen.gateware.bus.repack import Pieces, RepackConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for
from hwgen.obligations.observers import balance, kept, register
from hwgen.obligations.streams import of_streams


def obligations(config: RepackConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations ``occupancy``, ``tokens`` and ``progress`` of a width converter at a bus."""
    return [_occupancy(config, site), _tokens(config, site), _progress(config, site)]


def _counter_lines(side: str, pieces: Pieces, unit: int, transfer: str) -> list[str]:
    """Return a list of Verilog lines that count a frame's pieces (beats or words) on one side (``SIDE_size``)."""
    folds, final = len(pieces.sizes), f"({side}_piece == {pieces.count - 1})"
    sizes = "".join(f"{side}_fold == {fold} ? {size // unit} : " for fold, size in enumerate(pieces.sizes[:-1]))
    piece_bits, fold_bits = (max(1, (count - 1).bit_length()) for count in (pieces.count, folds))
    following = f"{final} | ({side}_fold == {folds - 1}) ? 0 : {side}_fold + 1"
    return [
        *register(f"{side}_piece", f"({transfer}) ? ({final} ? 0 : {side}_piece + 1) : {side}_piece", piece_bits),
        *register(f"{side}_fold", f"({transfer}) ? ({following}) : {side}_fold", fold_bits),
        f"wire {bits_for(pieces.max_values // unit)} {side}_size = {final} ? {pieces.final // unit} : "
        f"{sizes}{pieces.sizes[-1] // unit};",
    ]


def _observer_lines(config: RepackConfig) -> list[str]:
    """Return a list of Verilog lines of an observer that counts units of values: arriving, leaving and ``stored``."""
    return [
        *_counter_lines("in", config.takes, config.unit, "i__valid & i__ready"),
        *_counter_lines("out", config.gives, config.unit, "o__valid & o__ready"),
        f"wire {bits_for(config.depth)} arriving = i__valid & i__ready ? in_size : 0;",
        f"wire {bits_for(config.depth)} leaving = o__valid & o__ready ? out_size : 0;",
        *balance("stored", 2 * config.depth, "arriving", "leaving"),
    ]


def _counter_facts(config: RepackConfig, site: Site) -> dict[str, str]:
    """Return a dictionary of assertions, by name, that the width converter's counters equal the observer's."""
    counters = {
        f"{signal}_{name}_index": f"{side}_{counted}"
        for side, signal in (("in", "input"), ("out", "output"))
        for name, counted in (("piece", "piece"), ("size", "fold"))
    }
    ranges = [
        f"({side}_{name} < {count})"
        for side, pieces in (("in", config.takes), ("out", config.gives))
        for name, count in (("piece", pieces.count), ("fold", len(pieces.sizes)))
    ]
    folds = [
        f"({side}_fold == {side}_piece % {len(pieces.sizes)})"
        for side, pieces in (("in", config.takes), ("out", config.gives))
        if len(pieces.sizes) > 1
    ]
    equal = [f"({signal} == {counted})" for signal, counted in counters.items() if site.has(signal)]
    return {
        "pieces are counted": " & ".join([*ranges, *folds, *equal]),
        "the counter of units is the number of stored units": "units_held == stored",
    }


def _occupancy(config: RepackConfig, site: Site) -> Obligation:
    return site.obligation(
        "occupancy",
        f"The converter stores the units that came and have not left, at most {config.depth}, and offers no others.",
        observer=tuple(_observer_lines(config)),
        invariants=_counter_facts(config, site),
        asserts={
            "no more units are stored than there are registers": f"stored <= {config.depth}",
            "a piece is valid only if all its units are stored": "!o__valid | (stored >= out_size)",
        },
        cover=f"stored >= {config.gives.max_values // config.unit}",
        free_memories=True,
    )


def _tokens(config: RepackConfig, site: Site) -> Obligation:
    width, depth = config.unit * config.shape.width, config.depth
    units_in, units_out = config.takes.max_values // config.unit, config.gives.max_values // config.unit
    slots = {index: f"slot_{index}" for index in range(depth) if site.has(f"slot_{index}")}
    total = units_out * width
    zeros = " & ".join(
        f"((out_size > {unit}) | (o__payload[{(unit + 1) * width - 1}:{unit * width}] == 0))"
        for unit in range(units_out)
    )
    held = " & ".join(f"((ahead != {index}) | ({slot} == value))" for index, slot in slots.items())
    return site.obligation(
        "tokens",
        "Every value leaves once, in order, pieces have their sizes, and last marks the last piece of a frame.",
        observer=(
            *_observer_lines(config),
            "wire mark = $anyseq;",
            f"wire {bits_for(units_in - 1)} lane = $anyseq;",
            f"reg is_marked = 0; reg {bits_for(2 * depth)} ahead = 0;",
            "wire marks = mark & !is_marked & (lane < arriving);",
            "wire leaves = is_marked & (ahead < leaving);",
            "always @(posedge clk) is_marked <= !rst & (marks | (is_marked & !leaves));",
            "always @(posedge clk) ahead <= rst ? 0 : marks ? stored - leaving + lane : ahead - leaving;",
            f"wire [{width - 1}:0] sent_value = o__payload >> (ahead * {width});",
            *kept("value", width, f"i__payload >> (lane * {width})", "marks"),
        ),
        invariants={
            **_counter_facts(config, site),
            "no more units are stored than there are registers": f"stored <= {depth}",
            "the marked unit is stored": f"!is_marked | ((ahead < stored) & {held})",
        },
        asserts={
            "the marked values leave unchanged, in their turn": "!leaves | (sent_value == value)",
            "positions above a piece's values are zero": f"!o__valid | ({zeros})",
            "last marks the last piece of each frame": (
                f"!o__valid | (o__payload[{total}] == (out_piece == {config.gives.count - 1}))"
            ),
        },
        cover="leaves & !rst & (ahead != 0)" if units_out > 1 else "leaves & !rst",
    )


def _progress(config: RepackConfig, site: Site) -> Obligation:
    return site.obligation(
        "progress",
        "A stored whole piece is valid at the output; while there is none, an arriving piece is accepted.",
        observer=tuple(_observer_lines(config)),
        invariants=_counter_facts(config, site)
        | {"no more units are stored than there are registers": f"stored <= {config.depth}"},
        asserts={
            "a whole piece is valid": "!(stored >= out_size) | o__valid",
            "without one, a piece is accepted": "o__valid | i__ready",
        },
        cover="i__valid & i__ready & o__valid & o__ready & !rst",
        free_memories=True,
    )


PROOFS = {RepackConfig: Proofs((of_streams, obligations))}
