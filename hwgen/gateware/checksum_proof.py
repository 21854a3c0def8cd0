"""Proof obligations ``checksum``: a CRC-32 circuit equals its bit-serial definition, for every state and every word.

IEEE 802.3, clause 3.2.9, and zlib define it: generator polynomial 0x04C11DB7, all ones at the beginning, the lowest bit
of the lowest byte first, and inverted at the end. The state is written with its lowest bit as the highest power, as
RFC 1952 does.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.obligations.obligation import Obligation, Proofs, Site

#: Width of the checksum, in bits.
BITS = 32
_POLYNOMIAL = 0xEDB88320
"""Generator polynomial of CRC-32 without its highest power, reflected: bit 31 is the coefficient of ``x**0``."""
_ONES = f"{BITS}'hffffffff"


@dataclass(frozen=True)
class ChecksumUnit:
    """Description of a CRC-32 circuit to prove: Amaranth's library module for words of ``word_bits`` bits."""

    word_bits: int


def crc_function(word_bits: int) -> tuple[str, ...]:
    """Return a tuple of the lines of a Verilog function from CRC-32 state and word to the next state, bit by bit."""
    return (
        f"function [{BITS - 1}:0] after;",
        f"    input [{BITS - 1}:0] state; input [{word_bits - 1}:0] word; integer index;",
        "    begin",
        "        after = state;",
        f"        for (index = 0; index < {word_bits}; index = index + 1)",
        f"            after = (after >> 1) ^ (after[0] ^ word[index] ? {BITS}'h{_POLYNOMIAL:x} : {BITS}'d0);",
        "    end",
        "endfunction",
    )


def obligations(unit: ChecksumUnit, site: Site) -> list[Obligation]:
    """Return a list of obligations of a CRC-32 circuit: its state after each word, and its outputs for each state."""
    # The register has the highest power in its highest bit.
    reflected = ", ".join(f"crc_reg[{bit}]" for bit in range(BITS))
    begins = " | ".join(["rst", *(name for name in ("start", "verdict") if site.has(name))])
    observer = (
        *crc_function(unit.word_bits),
        f"wire [{BITS - 1}:0] state = {{{reflected}}};",
        f"reg [{BITS - 1}:0] before; reg [{unit.word_bits - 1}:0] word; reg has_word = 0; reg has_begun = 1;",
        "always @(posedge clk) begin",
        f"    before <= state; word <= data; has_word <= valid & !rst; has_begun <= {begins};",
        "end",
        f"wire [{BITS - 1}:0] want = has_begun ? {_ONES} : has_word ? after(before, word) : before;",
    )
    rules = {"no word comes with a start": "!(valid & start)"} if site.has("start") else {}
    stepped = site.obligation(
        "checksum",
        "Each word takes the state of the CRC-32 as many steps on as it has bits; a start or a reset sets all bits.",
        methods=("parity",),
        observer=observer,
        asserts={f"bit {bit} of the state is the definition's": f"state[{bit}] == want[{bit}]" for bit in range(BITS)},
        structure={"cycles": 1},
        assumes=rules,
    )
    outputs = {
        "crc_out": ("the CRC is the inverted state", "crc_out == ~state"),
        "match_detected": (
            "a match is signalled after a word that is the CRC of the words before it, and after no other word",
            "!has_word | (match_detected == (word == ~before))",
        ),
    }
    site.first(*outputs)
    told = site.obligation(
        "checksum",
        "The outputs are the CRC-32 of the words since the start, or whether the last word is the CRC of all others.",
        observer=observer,
        rests_on="checksum",
        asserts=dict(texts for port, texts in outputs.items() if site.has(port)),
        cover=f"has_word & (state != {_ONES})",
        assumes={**rules, "words change the state as they must": "!has_word | (state == want)"},
    )
    return [stepped, told]


PROOFS = {ChecksumUnit: Proofs((obligations,))}
