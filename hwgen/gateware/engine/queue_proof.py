"""Proof obligations of Amaranth's ``SyncFIFO`` as used in the engine: nothing is lost, repeated or reordered."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, in_circle
from hwgen.obligations.observers import balance, marked, probed
from hwgen.obligations.streams import held

#: Reason, shown in proof reports, why no property depends on the words that a FIFO receives.
WRITTEN = "what is written to its FIFOs, and when, is simulated"


@dataclass(frozen=True)
class QueueConfig:
    """Configuration of an Amaranth ``SyncFIFO`` for its proofs: width in bits, and depth in words."""

    width: int
    depth: int


def obligations(queue: QueueConfig, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` that each word of a FIFO leaves once, unchanged and in order.

    It assumes that a full FIFO is not written, which is an obligation of the component around the FIFO.
    """
    width, depth, taken = queue.width, queue.depth, "(r_rdy & r_en)"
    offered, stays = held("r", "r_rdy", "r_en", {"r_data": width})
    observer = (
        *balance("waiting", 2 * depth, "w_en", taken),
        *marked(2 * depth, width, "w_port__data", "w_en", taken),
        f"reg {bits_for(depth - 1)} slot = 0; always @(posedge clk) if (marks) slot <= produce;",
        *offered,
    )
    fields = probed(site, storage=(depth, width, "slot"))
    return [
        site.obligation(
            "tokens",
            "Every word that is written leaves once, unchanged, in the order of writing.",
            observer=observer,
            assumes={"words are written only if there is room": f"!w_en | (waiting < {depth})"},
            invariants={
                "the level is the number of waiting words": f"(level == waiting) & (level <= {depth})",
                "addresses are inside the memory": (f"(consume < {depth}) & (produce < {depth}) & (slot < {depth})"),
                "the next word is written after the stored ones": in_circle("consume", "level", "produce", depth),
                "the marked word waits": "!is_marked | (ahead < waiting)",
                "the marked word is stored": "!is_marked | (storage_word == value)",
                "the marked word is in its slot": f"!is_marked | {in_circle('consume', 'ahead', 'slot', depth)}",
            },
            asserts={
                "a valid word stays valid until it is accepted": " & ".join(f"({fact})" for fact in stays.values()),
                "a word is valid while one waits": "r_rdy == (waiting != 0)",
                "the marked word leaves unchanged, in its turn": "!leaves | (r_data == value)",
            },
            cover="leaves",
            **fields,
        )
    ]


PROOFS = {QueueConfig: Proofs((obligations,))}
