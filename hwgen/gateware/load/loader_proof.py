"""Proof of the loader of run-time weights: which words reach the memories, and when a load is good.

The CRC is proved separately (`hwgen.gateware.checksum_proof`). Its result is free here.
"""

from __future__ import annotations

from hwgen.gateware import checksum_proof, wiring_proof
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.load.loader import DIGEST_WORDS, LoaderConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for


def obligations(config: LoaderConfig, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` that a weight loader passes on only whole loads, and flags all others."""
    final, half = config.packet_words - 1, 1 << PART_BITS
    low, high = config.digest % half, config.digest >> PART_BITS
    observer = (
        f"reg {bits_for(final + 1)} count = 0; reg {bits_for(final + 1)} count_was = 0;",
        "reg is_same = 1; reg taken_was = 0; reg is_whole = 0; reg is_right = 0; reg is_wrong = 0; reg has_ended = 0;",
        f"reg [{PART_BITS - 1}:0] data_was; reg good_was = 1; reg returns = 0;",
        f"wire [{PART_BITS - 1}:0] data = i__payload[{PART_BITS - 1}:0];",
        f"wire taken = i__valid & i__ready; wire last = i__payload[{PART_BITS}];",
        f"wire same = is_same & ((count >= {DIGEST_WORDS}) | (data == (count[0] ? {PART_BITS}'d{high} : "
        f"{PART_BITS}'d{low})));",
        "reg same_was = 1; reg is_checked = 0; reg is_fresh = 1;",
        "always @(posedge clk) begin",
        f"    count <= rst | (taken & last) ? 0 : taken ? (count == {final + 1} ? count : count + 1) : count;",
        "    is_same <= rst | (taken & last) | (taken ? same : is_same);",
        "    is_fresh <= rst | crc.start | is_fresh & !crc.valid;",
        "    count_was <= count; data_was <= data; same_was <= same; taken_was <= taken & !rst;",
        "    is_checked <= taken & last & !rst;",
        f"    is_whole <= taken & last & same & (count == {final}) & !rst;",
        "    is_right <= is_whole & match & !rst; is_wrong <= is_checked & !(is_whole & match) & !rst;",
        "    good_was <= state__good; returns <= has_ended & back__valid & back__payload[1];",
        "    has_ended <= !rst & ((is_whole & match) | (has_ended & !(back__valid & back__payload[1])));",
        "end",
    )
    word = f"(taken_was & same_was & (count_was >= {DIGEST_WORDS}) & (count_was < {final}))"
    return [
        site.obligation(
            "tokens",
            "Only a load of this design reaches the memories, in order; it is good if it is whole and its CRC right.",
            methods=("pdr",),
            observer=observer,
            sees={"match": "crc.match_detected"},
            asserts={
                "a load begins after the design's digest": (
                    f"(o__valid & o__payload[0]) == (taken_was & same_was & (count_was == {DIGEST_WORDS - 1}))"
                ),
                "each word of a load leaves in the next cycle, unchanged": (
                    f"((o__valid & (o__payload[1:0] == 0)) == {word}) & "
                    f"(!{word} | (o__payload[{PART_BITS + 1}:2] == data_was))"
                ),
                "a load ends if it is whole and its CRC is right": "(o__valid & o__payload[1]) == is_right",
                "the CRC covers the words of a load": (
                    "(crc.valid == taken) & (!taken | (crc.data == data)) & (!taken | (count != 0) | is_fresh)"
                ),
                "the CRC begins between loads": "!crc.start | !taken & (count == 0)",
                "every other load is an error": "!is_wrong | state__error",
                "weights are not good from the begin of a load": "!(o__valid & o__payload[0]) | !state__good",
                "weights are good again when the end of a load returns": "good_was | !state__good | returns",
            },
            cover="is_right & !rst",
            free_memories=True,
        )
    ]


PROOFS = {
    LoaderConfig: Proofs(
        (obligations, wiring_proof.of_domain),
        components=lambda _: {"crc": checksum_proof.ChecksumUnit(PART_BITS)},
        reasons={":open_*": "that no frame begins during a load is simulated"},
    )
}
