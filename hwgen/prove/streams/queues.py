"""Obligations of the FIFOs of Amaranth's library that an engine uses: nothing is lost, repeated or reordered."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site, bits_for

__all__ = ["QueueConfig", "obligations"]


@dataclass(frozen=True)
class QueueConfig:
    """Width in bits and depth in words of a ``SyncFIFO`` of Amaranth's library."""

    width: int
    depth: int


def obligations(queue: QueueConfig, site: Site) -> list[Obligation]:
    """Return the obligation ``tokens`` of a FIFO, whose writer keeps out of a full FIFO.

    That it does is an obligation ``occupancy`` of the component around the FIFO.
    """
    width, depth = queue.width, queue.depth
    address, count = bits_for(depth - 1), bits_for(2 * depth)
    observer = (
        "wire mark = $anyseq;",
        "reg is_marked = 0;",
        f"reg {count} waiting = 0; reg {count} ahead = 0;",
        f"reg {address} slot = 0;",
        f"reg [{width - 1}:0] value;",
        "wire taken = r_rdy & r_en;",
        "wire marks = mark & w_en & !is_marked;",
        "wire leaves = is_marked & taken & (ahead == 0);",
        "always @(posedge clk) waiting <= rst ? 0 : waiting + w_en - taken;",
        "always @(posedge clk) is_marked <= !rst & (marks | (is_marked & !leaves));",
        "always @(posedge clk) ahead <= rst ? 0 : marks ? waiting - taken : ahead - (taken & (ahead != 0));",
        "reg was_offered = 0;",
        f"reg [{width - 1}:0] was;",
        "always @(posedge clk) begin was_offered <= r_rdy & !r_en & !rst; was <= r_data; end",
        "always @(posedge clk) if (marks) begin slot <= write_address; value <= w_port__data; end",
    )
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
                "probe_word": "probe_word",
                **({} if "level" in site.module.ports else {"level": "level"}),
            },
            assumes={"words are written only if there is room": f"!w_en | (waiting < {depth})"},
            invariants={
                "the level is the number of waiting words": f"(level == waiting) & (level <= {depth})",
                "addresses are inside the memory": (
                    f"(read_address < {depth}) & (write_address < {depth}) & (slot < {depth})"
                ),
                "the next word is written behind the stored ones": behind,
                "the marked word is in its slot": (
                    "!is_marked | ((ahead < waiting) & (probe_word == value) & ((32'd0 + read_address + ahead == slot) "
                    f"| (32'd0 + read_address + ahead == slot + {depth})))"
                ),
            },
            asserts={
                "an offered word stays until it is taken": "!was_offered | (r_rdy & (r_data == was))",
                "a word is offered while one waits": "r_rdy == (waiting != 0)",
                "the marked word leaves unchanged, in its turn": "!leaves | (r_data == value)",
            },
            cover="leaves",
            probes={
                "": [f"wire {address} probe_address;", f"wire [{width - 1}:0] probe_word = storage[probe_address];"]
            },
            drives={"probe_address": "slot"},
        )
    ]
