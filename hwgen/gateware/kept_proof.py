"""Proof obligation of a small memory whose words are read several times (`hwgen.gateware.kept`): follows one word.

Any step can write the marked word, and all later steps of its address use it, until one of them writes another word.
"""

from __future__ import annotations

from typing import Any

from hwgen.gateware.kept import LATENCY
from hwgen.obligations.obligation import Obligation, Site, bits_for
from hwgen.obligations.observers import delayed, probed, register

CYCLES = 1 + LATENCY
"""Number of cycles from a step's input until the stored word that the step uses is at the component's output."""


def obligation(
    site: Site,
    statement: str,
    memory: str,
    depth: int,
    bits: int,
    *,
    observer: list[str],
    invariants: dict[str, str],
    **fields: Any,
) -> Obligation:
    """Return the `Obligation` ``tokens``: each step outputs the word last stored at its address in a small memory.

    The lines of ``observer`` define the wires ``taken`` (a step is accepted), ``writes`` (the step writes its word),
    ``address`` (the word's address) and ``word`` (the word, if it is written). The parts of the property can read
    ``marked_word``, and ``is_used_was``: the step at the output uses the marked word.

    Parameters
    ----------
    site : Site
        Site of the component.
    statement : str
        The property in words.
    memory : str
        Name of the memory in the component.
    depth, bits : int
        Number of words in the memory, and the width of a word.
    observer, invariants
        As in `Obligation`, without the marked word.
    **fields
        Further fields of the obligation.
    """
    seen = probed(site, **{memory: (depth, bits, "slot")}) if depth > 1 else {}
    word = f"{memory}_word" if depth > 1 else f"{memory}_stored"
    return site.obligation(
        "tokens",
        statement,
        observer=(*observer, *_marking_lines(bits_for(depth - 1), bits)),
        invariants={
            **invariants,
            "one word is marked": f"(!is_open | was_marked) & (slot < {depth})",
            "the marked word is stored": f"!is_stored | ({word} == marked_word)",
        },
        structure={"cycles": CYCLES},
        **{**seen, **fields, "keeps": site.memories},
    )


def _marking_lines(size: str, bits: int) -> list[str]:
    """Return a list of Verilog lines that mark any one stored word, and follow the steps that read it to the output."""
    return [
        "wire mark = $anyseq;",
        f"reg {size} slot = 0; reg [{bits - 1}:0] marked_word;",
        "wire marks = mark & taken & writes & !was_marked;",
        "wire is_used = marks | (is_open & taken & !writes & (address == slot));",
        *register("was_marked", "was_marked | marks"),
        *register("is_open", "marks | (is_open & !(taken & writes & (address == slot)))"),
        # A word is in the memory from two cycles after its step until the next word of its address is.
        *register("is_stored", "is_open"),
        "always @(posedge clk) if (marks) begin marked_word <= word; slot <= address; end",
        *delayed("is_used", 1, "is_used", CYCLES, resets=True),
    ]
