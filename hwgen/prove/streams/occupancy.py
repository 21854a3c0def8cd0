"""Obligations ``occupancy``: no memory of beats overflows or underflows if its writer keeps the stated rule."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.gateware.fifo import FRONT_DEPTH, FifoConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.unload import UnloadConfig
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site, bits_for
from hwgen.prove.streams.rules import rules, waits

__all__ = ["counter_invariants", "of_fifo", "of_regroup", "of_unload", "since", "stored", "transfers"]

MAX_COVERED = 64
"""Largest number of beats that a cover waits for, because runs to it are searched cycle by cycle."""


def stored(site: Site, prefix: str = "") -> dict[str, str]:
    """Return the counters of a FIFO's beats: path of each signal, with ``prefix`` before it, by its name."""
    counters = [name for name in ("level", "stored_beats", "o__valid") if name in site.module.signals]
    return {f"fifo_{name}": f"{prefix}{name}" for name in counters}


def counter_invariants(config: FifoConfig, sees: Mapping[str, str]) -> dict[str, str]:
    """Return the facts about a FIFO's counters that hold in all runs.

    A counter is at most its memory's depth. Where RAM stores beats, all slots in front of it but one are reserved.
    """
    near = FRONT_DEPTH if config.in_block_ram else config.depth
    facts = {
        f"{name.removeprefix('fifo_')} is at most its memory's depth": f"{name} <= {depth}"
        for name, depth in (("fifo_level", near), ("fifo_stored_beats", config.depth))
        if name in sees
    }
    if "fifo_stored_beats" in sees:
        facts["the front is nearly full while the RAM has beats"] = (
            f"(fifo_stored_beats == 0) | (fifo_level >= {FRONT_DEPTH - 1})"
        )
    return facts


def since(push: str, spacing: int) -> tuple[str, ...]:
    """Return lines of an observer that count the cycles ``since`` the last result, up to ``spacing``."""
    return (
        f"reg {bits_for(spacing)} since = {spacing};",
        f"always @(posedge clk) since <= rst ? {spacing} : {push} ? 1 : since + (since != {spacing});",
    )


def of_fifo(config: FifoConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a FIFO, whose writer has a credit for each beat."""
    sees = stored(site)
    return [
        site.obligation(
            "occupancy",
            f"The FIFO holds the beats that were written and not taken, at most {config.depth}, and offers no others.",
            methods=("induction", "pdr"),
            observer=(
                f"reg {bits_for(config.depth + 1)} waiting = 0;",
                "always @(posedge clk) waiting <= rst ? 0 : waiting + i__valid - (o__valid & o__ready);",
            ),
            sees=sees,
            assumes={"the writer has a credit for each beat": f"!i__valid | (waiting < {config.depth})"},
            asserts={
                "the counters' sum is the number of waiting beats": f"32'd0 + {' + '.join(sees)} == waiting",
                "no beat is offered without one that waits": "!o__valid | (waiting != 0)",
                **counter_invariants(config, sees),
            },
            cover=f"waiting == {min(config.depth, MAX_COVERED)}",
            free_memories=True,
        )
    ]


def transfers(config: RegroupConfig) -> tuple[str, str]:
    """Return the Verilog expressions of a width converter that takes an input beat, and that sends an output beat."""
    if config.always_ready:
        return "i__valid", "o__valid"
    return "(i__valid & i__ready)", "(o__valid & o__ready)"


def of_regroup(config: RegroupConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a width converter, whose register of channels must not overflow."""
    inputs, largest = site.streams("input"), max(config.positions) + max(config.advances)
    begins = " | ".join(f"(left == {position})" for position in config.positions)
    return [
        site.obligation(
            "occupancy",
            f"The register of {config.held} channels has a place for each channel of a beat that is taken.",
            methods=("pdr",),
            observer=waits(site, *inputs),
            sees={"held": "lanes_held", "left": "lanes_left", "taken": "input_transfer"},
            assumes=rules(*inputs),
            asserts={
                "a beat is taken only where its channels can begin": f"!taken | {begins}",
                "no more channels are held than the counter counts": f"held <= {largest}",
                "a beat is offered only if the register holds it": f"!o__valid | (held >= {config.output.lanes})",
            },
            cover="o__valid" if config.always_ready else "o__valid & !o__ready",
            free_memories=True,
        )
    ]


def of_unload(config: UnloadConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a serialiser, whose results come at the earliest when the earlier ones have left."""
    if not config.latency or not site.has("beats_left"):
        return []
    spacing = max(config.fold_beats)
    return [
        site.obligation(
            "occupancy",
            "No result is overwritten before its last beat leaves.",
            methods=("pdr",),
            observer=since("i__valid", spacing),
            sees={"left": "beats_left"},
            assumes={f"results are at least {spacing} cycles apart": f"!i__valid | (since == {spacing})"},
            asserts={"results come when at most the last beat is left": "!i__valid | (left <= 1)"},
            cover="i__valid & (left == 1)",
        )
    ]
