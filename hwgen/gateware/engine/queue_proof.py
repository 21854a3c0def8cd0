"""Obligations of the FIFOs of Amaranth's library that an engine uses: nothing is lost, repeated or reordered."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.obligations.obligation import Obligation
from hwgen.obligations.observers import marked, probed, waiting
from hwgen.obligations.site import Proofs, Site, bits_for

__all__ = ["PROOFS", "QueueConfig", "WRITTEN", "obligations"]


#: Why no property depends on what is written.
WRITTEN = "what is written to its FIFOs, and when, is simulated"


@dataclass(frozen=True)
class QueueConfig:
    """Width in bits and depth in words of a ``SyncFIFO`` of Amaranth's library."""

    width: int
    depth: int


def obligations(queue: QueueConfig, site: Site) -> list[Obligation]:
    """Return the obligation ``tokens`` of a FIFO, whose writer keeps out of a full FIFO.

    That it does is an obligation ``occupancy`` of the component around the FIFO.
    """
    width, depth, taken = queue.width, queue.depth, "(r_rdy & r_en)"
    observer = (
        *waiting(2 * depth, "w_en", taken),
        *marked(2 * depth, width, "w_port__data", "w_en", taken),
        f"reg {bits_for(depth - 1)} slot = 0; always @(posedge clk) if (marks) slot <= write_address;",
        f"reg was_offered = 0; reg [{width - 1}:0] was;",
        "always @(posedge clk) begin was_offered <= r_rdy & !r_en & !rst; was <= r_data; end",
    )
    fields = probed(site, storage=(depth, width, "slot"))
    behind = (
        f"(32'd0 + read_address + level == write_address) | (32'd0 + read_address + level == write_address + {depth})"
    )
    return [
        site.obligation(
            "tokens",
            "Every word that is written leaves once, unchanged, in the order of writing.",
            methods=("induction", "pdr"),
            observer=observer,
            sees={
                "write_address": "produce",
                "read_address": "consume",
                **({} if "level" in site.module.ports else {"level": "level"}),
                **fields.pop("sees"),
            },
            assumes={"words are written only if there is room": f"!w_en | (waiting < {depth})"},
            invariants={
                "the level is the number of waiting words": f"(level == waiting) & (level <= {depth})",
                "addresses are inside the memory": (
                    f"(read_address < {depth}) & (write_address < {depth}) & (slot < {depth})"
                ),
                "the next word is written behind the stored ones": behind,
                "the marked word waits": "!is_marked | (ahead < waiting)",
                "the marked word is stored": "!is_marked | (storage_word == value)",
                "the marked word is in its slot": (
                    "!is_marked | (32'd0 + read_address + ahead == slot) | "
                    f"(32'd0 + read_address + ahead == slot + {depth})"
                ),
            },
            asserts={
                "an offered word stays until it is taken": "!was_offered | (r_rdy & (r_data == was))",
                "a word is offered while one waits": "r_rdy == (waiting != 0)",
                "the marked word leaves unchanged, in its turn": "!leaves | (r_data == value)",
            },
            cover="leaves",
            **fields,
        )
    ]


PROOFS = {QueueConfig: Proofs((obligations,))}
