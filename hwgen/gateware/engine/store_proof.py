"""Proof obligations of the engine's store unit: its memory requests, and the words of each granted burst."""

from __future__ import annotations

from typing import Any

from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.port import written_layout
from hwgen.gateware.engine.queue_proof import WRITTEN, QueueConfig
from hwgen.gateware.engine.store import BEATS, BURSTS, StoreUnit, source_layout
from hwgen.gateware.engine.units_proof import StoreUnitConfig, box_stays, kept_streams, requests_inside, unit_parts
from hwgen.obligations.composition import wired
from hwgen.obligations.obligation import Obligation, Proofs, Site, field_bits
from hwgen.obligations.observers import balance, register

_MAX_OWED = (1 << 16) - 1
"""Largest number of beats of granted bursts that the proof's observer can count."""


def store_parts(unit: StoreUnitConfig) -> dict[str, Any]:
    """Return, as a dictionary by instance name, the configurations of the store unit's components that have proofs."""
    engine = unit.engine
    return {
        **unit_parts(unit),
        "granted": QueueConfig(source_layout(engine).size, BURSTS),
        "words": QueueConfig(written_layout(engine).size, BEATS),
    }


def obligations(unit: StoreUnitConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of the store unit: streams, burst boundaries, and the words of granted bursts."""
    ports = {"written__valid": "words.r_rdy", "written__payload": "words.r_data", "written__ready": "words.r_en"}
    return [
        *kept_streams(unit, site, without="written"),
        box_stays(site, {}),
        requests_inside(unit.engine, site),
        wired(site, "Words to write leave from their FIFO.", ports),
        _words(unit, site),
    ]


def _words(unit: StoreUnitConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a granted burst of n beats sends n beats to the FIFO, the last one marked.

    The observer marks a burst as it leaves the FIFO of granted bursts, and counts the beats before it.
    """
    engine, latency = unit.engine, unit.read_latency
    source, word = dict(source_layout(engine)), dict(written_layout(engine))
    reads = field_bits("granted.r_data", source, "reads")
    last = field_bits("words.w_port__data", word, "last")
    flags = [f"read_flags_{stage}" for stage in range(1, latency + 1)]
    in_flight = " + ".join(["32'd0", *(f"{name}[0]" for name in flags)])
    older = {
        name: " + ".join(["32'd0", *(f"{other}[0]" for other in flags[index + 1 :])])
        for index, name in enumerate(flags)
    }
    observer = (
        "wire mark = $anyseq;",
        "wire pops = granted.r_rdy & granted.r_en;",
        "wire marks = mark & pops & !is_marked;",
        "wire own = is_marked & (ahead == 0) & words.w_en;",
        *balance("owed", _MAX_OWED, f"pops ? {reads} : 0", "words.w_en"),
        *register("is_marked", "marks | (is_marked & !(own & (remaining == 1)))"),
        *register("is_current", "marks | (is_current & !pops)"),
        *register("ahead", "marks ? owed - words.w_en : ahead - (words.w_en & (ahead != 0))", 16),
        *register("remaining", f"marks ? {reads} : remaining - own", 16),
    )
    ranks = [
        f"(!({name}[0] & is_marked & ({older[name]} >= ahead) & ({older[name]} < 32'd0 + ahead + remaining)) | "
        f"({name}[1] == ({older[name]} + 1 == 32'd0 + ahead + remaining)))"
        for name in flags
    ]
    return site.obligation(
        "tokens",
        "A granted burst writes as many beats as it has, and marks the last one.",
        observer=observer,
        assumes={"a granted burst has beats": f"!granted.r_rdy | (({reads} != 0) & ({reads} <= {MAX_BEATS}))"},
        invariants={
            "beats are being read": f"owed == 32'd0 + reads_left + {in_flight}",
            "reads are bounded": f"reads_left <= {MAX_BEATS}",
            "each beat in flight has room": f"free_beats + words.level + {in_flight} == {BEATS}",
            "a marked burst has beats": "!is_marked | (remaining != 0)",
            "marked beats are being read": (
                f"!is_marked | (is_current ? (32'd0 + ahead + remaining == owed) : "
                f"(32'd0 + ahead + remaining <= {in_flight}))"
            ),
            "marks in flight are the last beats": " & ".join(ranks) or "1",
            "has_room follows the level": f"(has_room == (granted.level != {BURSTS})) & (granted.level <= {BURSTS})",
        },
        asserts={
            "beats are written for granted bursts": "!words.w_en | (owed != 0)",
            "the last beat of a burst is marked, and no other": f"!own | ({last} == (remaining == 1))",
            "beats are written if there is room": f"!words.w_en | (words.level < {BEATS})",
            "bursts are granted if there is room": f"!granted.w_en | (granted.level < {BURSTS})",
        },
        cover="own & (remaining == 1)",
        keeps=("granted", "words"),
        free_memories=True,
    )


PROOFS = {
    StoreUnitConfig: Proofs(
        (obligations,),
        store_parts,
        {":part__ready": WRITTEN, "granted:w_port__data": WRITTEN, "words:w_port__data": WRITTEN},
        (StoreUnit,),
    )
}
