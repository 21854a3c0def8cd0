"""Proof that a link of the weight-loading chain writes its own words to its memories, in order, and no others."""

from __future__ import annotations

from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, choice


def obligations(config: DistributeConfig, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` that a weight-loading chain link writes only its own words, in order.

    Memories are filled in turn, each starting at address 0, the lowest part of a word first.
    """
    stores, word_parts = config.stores, config.max_parts
    deepest = max(store.depth for store in stores)
    enables = [f"writes__{store.name}__enable" for store in stores]
    for enable in enables:
        site.first(enable)
    # Equal outputs have one port. The register of the word is a port if a memory has the whole word.
    addresses = [site.first(*(f"writes__{store.name}__address" for store in stores))] if deepest > 1 else []
    widest = [store.name for store in stores if store.width == PART_BITS * word_parts]
    whole = site.first(*(f"writes__{name}__data" for name in widest)) if widest else "loaded_word"
    depths = choice("store", [store.depth - 1 for store in stores])
    sizes = choice("store", [store.word_parts - 1 for store in stores])
    words = [
        f"({whole}[{PART_BITS * word_parts - 1}:{PART_BITS * (word_parts - store.word_parts)}] == "
        f"{{{', '.join(f'part_{index}' for index in reversed(range(store.word_parts)))}}})"
        for store in stores
    ]
    observer = (
        f"reg is_active = 0; reg {bits_for(len(stores))} store = 0; reg {bits_for(word_parts)} part = 0;",
        f"reg {bits_for(deepest)} address = 0; reg {bits_for(deepest)} was_address = 0;",
        f"reg {bits_for(len(stores))} was_store = 0; reg was_complete = 0; reg was_passed = 0;",
        f"reg [{PART_BITS + 1}:0] was_beat;",
        "wire begins = i__valid & i__payload[0];",
        "wire own = i__valid & is_active & (i__payload[1:0] == 0);",
        f"wire complete = own & (part == {sizes}); wire filled = complete & (address == {depths});",
        "always @(posedge clk) begin",
        "    part <= rst | begins | complete ? 0 : part + own;",
        "    address <= rst | begins | filled ? 0 : address + complete;",
        "    store <= rst | begins ? 0 : store + filled;",
        f"    is_active <= !rst & (begins | (is_active & !(filled & (store == {len(stores) - 1}))));",
        "    was_complete <= complete & !rst; was_passed <= i__valid & !own & !rst; was_beat <= i__payload;",
        "    was_store <= store; was_address <= address;",
        "end",
        *(
            f"reg [{PART_BITS - 1}:0] part_{index}; always @(posedge clk) if (own & (part == {index})) "
            f"part_{index} <= i__payload[{PART_BITS + 1}:2];"
            for index in range(word_parts)
        ),
    )
    return [
        site.obligation(
            "tokens",
            "The words of the link's memories are written once, in order, and all other beats are passed on.",
            methods=("pdr",),
            observer=observer,
            asserts={
                "other beats leave in the next cycle, unchanged": (
                    "(o__valid == was_passed) & (!o__valid | (o__payload == was_beat))"
                ),
                **{
                    f"{store.name} is written with whole words": (
                        f"({enable} == (was_complete & (was_store == {index}))) & (!{enable} | {word})"
                    )
                    for index, (store, enable, word) in enumerate(zip(stores, enables, words, strict=True))
                },
                **{f"{name} is the next one": f"!was_complete | ({name} == was_address)" for name in addresses},
            },
            cover=f"was_complete & (was_store == {len(stores) - 1})",
        )
    ]


PROOFS = {DistributeConfig: Proofs((obligations,))}
