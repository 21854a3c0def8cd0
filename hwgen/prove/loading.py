"""Obligations ``tokens`` of run-time weights: words that reach the memories, and when a load is good.

The CRC has obligations of its own (`hwgen.prove.checksums`). Its result is free here.
"""

from __future__ import annotations

from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.load.loader import DIGEST_WORDS, LoaderConfig
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site, bits_for

__all__ = ["of_distribute", "of_loader"]


def of_loader(config: LoaderConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a loader: digest, order and number of words, the CRC, and the flag of good weights."""
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
        "    is_fresh <= rst | crc_start | is_fresh & !crc_valid;",
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
            sees={
                "match": "crc.match_detected",
                **{f"crc_{port}": f"crc.{port}" for port in ("start", "valid", "data")},
            },
            asserts={
                "a load begins after the design's digest": (
                    f"(o__valid & o__payload[0]) == (taken_was & same_was & (count_was == {DIGEST_WORDS - 1}))"
                ),
                "each word of a load leaves in the next cycle, unchanged": (
                    f"((o__valid & (o__payload[1:0] == 0)) == {word}) & "
                    f"(!{word} | (o__payload[{PART_BITS + 1}:2] == data_was))"
                ),
                "a load ends if it is whole and its CRC is right": "(o__valid & o__payload[1]) == is_right",
                "the CRC is that of the words of a load": (
                    "(crc_valid == taken) & (!taken | (crc_data == data)) & (!taken | (count != 0) | is_fresh)"
                ),
                "the CRC begins between loads": "!crc_start | !taken & (count == 0)",
                "every other load is an error": "!is_wrong | state__error",
                "weights are not good from the begin of a load": "!(o__valid & o__payload[0]) | !state__good",
                "weights are good again when the end of a load returns": "good_was | !state__good | returns",
            },
            cover="is_right & !rst",
            free_memories=True,
        )
    ]


def of_distribute(config: DistributeConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a link of the chain of run-time weights: it keeps its own words, in order, and no other.

    Memories are filled in turn, each from address 0 on, the lowest part of a word first.
    """
    stores, word_parts = config.stores, config.max_parts
    deepest = max(store.depth for store in stores)
    enables = [f"writes__{store.name}__enable" for store in stores]
    addresses = [name for name in (f"writes__{store.name}__address" for store in stores) if site.has(name)]
    if not site.has(*enables):
        return []
    # The emitted module has one register for the word and for the output that is the whole word.
    whole = next((name for name in _whole_words(config, site)), "")
    if not whole:
        return []
    depths = _by_store([store.depth - 1 for store in stores])
    sizes = _by_store([store.word_parts - 1 for store in stores])
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
        f"wire complete = own & (part == ({sizes})); wire filled = complete & (address == ({depths}));",
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
            sees={} if whole in site.module.ports else {whole: whole},
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
                **{f"{name} is the next one": f"!was_complete | ({name} == was_address)" for name in addresses[:1]},
            },
            cover=f"was_complete & (was_store == {len(stores) - 1})",
        )
    ]


def _whole_words(config: DistributeConfig, site: Site) -> list[str]:
    """Return the signals that hold a word of the widest memory: a register of its own, or the data of such a memory."""
    signals, width = site.module.signals, PART_BITS * config.max_parts
    names = ["loaded_word", *(f"writes__{store.name}__data" for store in config.stores)]
    return [name for name in names if name in signals and signals[name].width == width]


def _by_store(values: list[int]) -> str:
    """Return the Verilog expression of a number that each memory has, by the index ``store``."""
    return " : ".join([*(f"store == {index} ? {value}" for index, value in enumerate(values[:-1])), str(values[-1])])
