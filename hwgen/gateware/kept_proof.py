"""Marked word of a small memory whose words are used several times (`hwgen.gateware.kept`), for observers.

Any step can write the marked word, and all later steps of its address use it, until one of them writes another word.
"""

from __future__ import annotations

from typing import Any

from hwgen.gateware.kept import LATENCY
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.observers import delayed, probed
from hwgen.obligations.site import Site, bits_for

__all__ = ["CYCLES", "obligation"]

CYCLES = 1 + LATENCY
"""Number of cycles from a step to its word at the component's output."""


def obligation(
    site: Site,
    statement: str,
    memory: str,
    depth: int,
    bits: int,
    *,
    observer: list[str],
    sees: dict[str, str],
    invariants: dict[str, str],
    **fields: Any,
) -> Obligation:
    """Return the obligation ``tokens`` of a component with a memory of words that are used several times.

    The lines of ``observer`` define the wires ``taken`` (a step is taken), ``writes`` (the step writes its word),
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
    observer, sees, invariants
        As in `Obligation`, without the marked word.
    **fields
        Further fields of the obligation.
    """
    seen = {"sees": {f"{memory}_word": f"{memory}_stored"}}
    if depth > 1:
        seen = probed(site, **{memory: (depth, bits, "slot")})
    return site.obligation(
        "tokens",
        statement,
        methods=("induction", "pdr"),
        observer=(*observer, *_marks(bits_for(depth - 1), bits)),
        invariants={
            **invariants,
            "one word is marked": f"(!is_open | was_marked) & (slot < {depth})",
            "the marked word is stored": f"!is_stored | ({memory}_word == marked_word)",
        },
        structure={"cycles": CYCLES},
        **{**seen, **fields, "sees": {**sees, **seen["sees"]}, "keeps": site.memories},
    )


def _marks(size: str, bits: int) -> list[str]:
    """Return lines of an observer that mark a word, and follow the steps that use it to the output."""
    return [
        "wire mark = $anyseq;",
        f"reg was_marked = 0; reg is_open = 0; reg is_stored = 0; reg {size} slot = 0; reg [{bits - 1}:0] marked_word;",
        "wire marks = mark & taken & writes & !was_marked;",
        "wire is_used = marks | (is_open & taken & !writes & (address == slot));",
        "always @(posedge clk) was_marked <= !rst & (was_marked | marks);",
        "always @(posedge clk) is_open <= !rst & (marks | (is_open & !(taken & writes & (address == slot))));",
        # A word is in the memory from the second cycle after its step on, until the next one is.
        "always @(posedge clk) is_stored <= !rst & is_open;",
        "always @(posedge clk) if (marks) begin marked_word <= word; slot <= address; end",
        *delayed("is_used", 1, "is_used", CYCLES, resets=True),
    ]
