"""Proofs of a layer's output FIFO: it keeps every beat, in order, and offers each one in its cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwgen.gateware.fifo import FRONT_DEPTH, FifoConfig
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.observers import counter, marked, patience, probed, waiting
from hwgen.obligations.site import Proofs, Site, bits_for, own
from hwgen.obligations.streams import of_streams

__all__ = ["PROOFS", "counter_facts", "counters", "obligations"]

MAX_COVERED = 64
"""Largest number of beats that a cover waits for, because runs to it are searched cycle by cycle."""

_TAKEN = "(o__valid & o__ready)"


def obligations(config: FifoConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a FIFO. The order of beats in several pieces of block RAM has none."""
    bound, latency, facts = config.latency - 1, config.latency, _facts(config)
    order = () if config.pieces > 1 else (_block_ram_order if config.in_block_ram else _lut_ram_order,)
    return [
        *of_streams(config, site),
        _of_beats(
            config,
            site,
            "occupancy",
            f"The FIFO holds the beats that were written and not taken, at most {config.depth}, and offers no others.",
            asserts={**facts, "no beat is offered without one that waits": "!o__valid | (waiting != 0)"},
            cover=f"waiting == {min(config.depth, MAX_COVERED)}",
        ),
        *(of_order(config, site) for of_order in order),
        site.obligation(
            "last",
            f"The FIFO marks every {config.beats}th beat as the last of a frame, and no other.",
            methods=("pdr",),
            observer=tuple(counter("beat", config.beats, _TAKEN)),
            asserts={"last marks the last beat": f"o__payload[{config.width}] == (beat == {config.beats - 1})"},
            cover=f"{_TAKEN} & o__payload[{config.width}]",
            free_memories=True,
        ),
        _of_beats(
            config,
            site,
            "progress",
            f"A FIFO that holds a beat offers one after at most {bound} cycles without.",
            *patience("(waiting != 0) & !o__valid", bound),
            invariants=facts,
            asserts={"a waiting beat is offered in time": f"!is_idle | (idle < {bound})"},
            cover="is_idle",
        ),
        _of_beats(
            config,
            site,
            "schedule",
            f"A beat is offered exactly {latency} cycles after its write, or one after the beat before it left.",
            f"reg {bits_for(config.depth + 1)} aged = 0; reg [{latency - 1}:0] written = 0;",
            f"always @(posedge clk) written <= rst ? 0 : {{written[{latency - 2}:0], i__valid}};",
            f"always @(posedge clk) aged <= rst ? 0 : aged + written[{latency - 2}] - {_TAKEN};",
            invariants={
                **facts,
                "beats that wait are offered, or were written in the cycle before": (
                    f"waiting == 32'd0 + aged + {' + '.join(f'written[{age}]' for age in range(latency - 1))}"
                ),
            },
            asserts={"a beat is offered in time": "o__valid == (aged != 0)"},
            cover=f"o__valid & (aged == {min(2, config.depth)})",
        ),
    ]


def counters(config: FifoConfig, prefix: str = "") -> dict[str, str]:
    """Return the counters of a FIFO's beats: path of each signal, with ``prefix`` before it, by its name."""
    names = ("level", *(("stored_beats",) if config.in_block_ram else ()), "o__valid")
    return {f"fifo_{name}": f"{prefix}{name}" for name in names}


def counter_facts(config: FifoConfig) -> dict[str, str]:
    """Return the facts about a FIFO's counters that hold in all runs.

    A counter is at most its memory's depth. Where RAM stores beats, all slots in front of it but one are reserved.
    """
    if not config.in_block_ram:
        return {"level is at most its memory's depth": f"fifo_level <= {config.depth}"}
    return {
        "level is at most its memory's depth": f"fifo_level <= {FRONT_DEPTH}",
        "stored_beats is at most its memory's depth": f"fifo_stored_beats <= {config.depth}",
        "the front is nearly full while the RAM has beats": (
            f"(fifo_stored_beats == 0) | (fifo_level >= {FRONT_DEPTH - 1})"
        ),
    }


def _facts(config: FifoConfig, bits: int = 32) -> dict[str, str]:
    """Return the facts about the beats that wait, with sums of ``bits`` bits."""
    total = " + ".join([f"{bits}'d0", *counters(config)])
    return {
        "the counters' sum is the number of waiting beats": f"{total} == {bits}'d0 + waiting",
        **counter_facts(config),
    }


def _of_beats(
    config: FifoConfig,
    site: Site,
    obligation_kind: str,
    statement: str,
    *observer: str,
    asserts: Mapping[str, str],
    **fields: Any,
) -> Obligation:
    """Return an obligation of a FIFO whose writer has a credit for each beat; ``waiting`` counts the beats in it."""
    return site.obligation(
        obligation_kind,
        statement,
        methods=("induction", "pdr"),
        observer=(*waiting(config.depth + 1, "i__valid", _TAKEN), *observer),
        sees=counters(config) | fields.pop("sees", {}),
        assumes={"the writer has a credit for each beat": f"!i__valid | (waiting < {config.depth})"},
        asserts=asserts,
        free_memories=obligation_kind != "tokens",
        **fields,
    )


def _of_order(config: FifoConfig, site: Site, *observer: str, **fields: Any) -> Obligation:
    """Return the obligation that the marked beat leaves in its turn, with all its values."""
    return _of_beats(
        config,
        site,
        "tokens",
        "Every beat that is written leaves once, with all its values, in the order of writing.",
        *marked(config.depth + 1, config.width, "i__payload", "i__valid", _TAKEN),
        f"reg {bits_for(config.depth - 1)} slot = 0;",
        *observer,
        asserts={
            "the marked beat leaves unchanged, in its turn": f"!leaves | (o__payload[{config.width - 1}:0] == value)"
        },
        cover="leaves",
        **fields,
    )


def _lut_ram_order(config: FifoConfig, site: Site) -> Obligation:
    """Return the obligation of the order of beats in a FIFO in LUT RAM."""
    width, depth = config.width, config.depth
    fields = probed(site, storage=(depth, width, "slot"))
    sees = {"storage_data": site.read_data("storage")}
    is_offered = "(o__valid & (ahead == 0))"
    invariants = {
        **_facts(config),
        "the marked beat waits": "!is_marked | (ahead < waiting)",
        "the memory has the marked values": f"!is_marked | {is_offered} | (storage_word == value)",
        "the offered beat has the marked values": f"!(is_marked & {is_offered}) | (storage_data == value)",
    }
    if depth > 1:
        sees |= {"write_address": "write__addr", "read_address": "read__addr"}
        invariants |= {
            "addresses are inside the memory": f"(reads < {depth}) & (writes < {depth}) & (slot < {depth})",
            "beats are written and read in a circle": "(reads == read_address) & (writes == write_address)",
            "the next beat is written behind the stored ones": (
                f"(32'd0 + reads + fifo_level == writes) | (32'd0 + reads + fifo_level == writes + {depth})"
            ),
            "the marked beat is in its slot": (
                f"!is_marked | {is_offered} | (32'd0 + reads + ahead == slot + fifo_o__valid) | "
                f"(32'd0 + reads + ahead == slot + fifo_o__valid + {depth})"
            ),
        }
    return _of_order(
        config,
        site,
        *counter("writes", depth, "i__valid"),
        *counter("reads", depth, "((fifo_level != 0) & (!o__valid | o__ready))"),
        "always @(posedge clk) if (marks) slot <= writes;",
        invariants=invariants,
        **fields | {"sees": fields["sees"] | sees},
    )


def _block_ram_order(config: FifoConfig, site: Site) -> Obligation:
    """Return the obligation of the order of beats in a FIFO in block RAM.

    The observer follows the marked beat: into the block RAM or past it, through the two cycles of its read, and into
    its slot of the queue in front.
    """
    width, depth = config.width, config.depth
    fields = probed(
        site,
        front=(FRONT_DEPTH, width + 1, "place"),
        refilled=(FRONT_DEPTH, width, "place"),
        storage=(depth, width, "slot"),
    )
    refilled = ("bypass", "refill", "refill_1", "refill_2", "refill_address_1", "refill_address_2")
    sees = {
        "front_write": "write__addr",
        "front_read": "read__addr",
        "refilled_read": "read__addr_2",
        "far_write": "storage_write_address",
        "far_read": "storage_read_address",
        "read_word": site.read_data("storage"),
        "refill_word": "storage_word_1",
        **own(*refilled, "front_data", "refilled_data"),
    }
    observer = (
        "reg is_far = 0; reg is_near = 0; reg is_read = 0; reg is_refill = 0; reg [1:0] place = 0;",
        f"reg {bits_for(depth + 1)} far_ahead = 0;",
        "wire returns = is_marked & is_far & refill & (far_ahead == 0);",
        "always @(posedge clk) far_ahead <= rst ? 0 : marks ? fifo_stored_beats - refill : "
        "far_ahead - (refill & (far_ahead != 0));",
        "always @(posedge clk) if (marks) slot <= far_write;",
        "always @(posedge clk) is_far <= !rst & (marks ? !bypass : is_far & !returns);",
        "always @(posedge clk) is_near <= !rst & (marks ? bypass : is_near);",
        "always @(posedge clk) if ((marks & bypass) | returns) place <= front_write;",
        "always @(posedge clk) is_read <= !rst & returns;",
        "always @(posedge clk) is_refill <= !rst & is_read & is_marked;",
        "wire [1:0] index = place - front_read;",
        "wire [1:0] index_1 = refill_address_1 - front_read;",
        "wire [1:0] index_2 = refill_address_2 - front_read;",
        "wire is_offered = fifo_o__valid & (ahead == 0);",
        "wire is_held = is_marked & !is_far & !is_offered;",
    )
    size = depth.bit_length() + 2  # of sums of two addresses, which a solver decides faster than sums of 32 bits
    zero, whole = f"{size}'d0", f"{size}'d{depth}"
    before = f"{zero} + ahead - fifo_o__valid"
    invariants = {
        **_facts(config, size),
        "the marked beat waits": "!is_marked | (ahead < waiting)",
        "addresses are inside the memory": f"(far_read < {depth}) & (far_write < {depth}) & (slot < {depth})",
        "beats are written behind the stored ones": (
            f"({zero} + far_read + fifo_stored_beats == {zero} + far_write) | "
            f"({zero} + far_read + fifo_stored_beats == far_write + {whole})"
        ),
        "the front's slots follow each other": "(refilled_read == front_read) & "
        "(((front_read + fifo_level) & 3) == front_write)",
        "words that are being read come in time": (
            "(!refill_1 | ((index_1 >= 2) & (index_1 < fifo_level))) & "
            "(!refill_2 | ((index_2 >= 1) & (index_2 < fifo_level)))"
        ),
        "the marked beat is in one place": (
            "(!is_far | (!is_near & !is_read & !is_refill)) & (!is_near | (!is_read & !is_refill)) & "
            "!(is_read & is_refill) & (!is_read | (is_marked & refill_1 & (refill_address_1 == place))) & "
            "(!(is_refill & is_marked) | (refill_2 & (refill_address_2 == place)))"
        ),
        "a marked beat in block RAM is behind those in front": (
            f"!(is_marked & is_far) | (({before} == {zero} + far_ahead + fifo_level) & "
            f"(far_ahead < fifo_stored_beats) & "
            f"(({zero} + far_read + far_ahead == {zero} + slot) | ({zero} + far_read + far_ahead == slot + {whole})))"
        ),
        "a marked beat in front is in its slot": f"!is_held | (({before} == index) & (index < fifo_level))",
        "no other word comes into its slot": (
            "!is_held | ((is_read | !refill_1 | (refill_address_1 != place)) & "
            "(is_refill | !refill_2 | (refill_address_2 != place)))"
        ),
        "the marked values are in block RAM": "!(is_marked & is_far) | (storage_word == value)",
        "the marked values are being read": "(!is_read | (read_word == value)) & "
        "(!(is_refill & is_marked) | (refill_word == value))",
        "the marked values are in front": (
            f"!is_held | (is_near ? (front_word == {{1'b1, value}}) : "
            f"(!front_word[{width}] & (is_read | is_refill | (refilled_word == value))))"
        ),
        "the marked values are offered": (
            f"!(is_marked & is_offered & !is_far) | "
            f"((front_data[{width}] ? front_data[{width - 1}:0] : refilled_data) == value)"
        ),
        "the offered beat is not in block RAM": "!(is_marked & is_offered) | !is_far",
    }
    return _of_order(config, site, *observer, invariants=invariants, **fields | {"sees": fields["sees"] | sees})


PROOFS = {
    FifoConfig: Proofs(
        (obligations,),
        reasons={"": "its memory is in several pieces of block RAM: its beats are simulated"},
    )
}
