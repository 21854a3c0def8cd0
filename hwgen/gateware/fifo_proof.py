"""Proof obligations of a layer's output FIFO: every written beat leaves once, in order, and is valid in its cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwgen.gateware.fifo import FRONT_DEPTH, FifoConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, in_circle
from hwgen.obligations.observers import balance, counter, marked, probed, register
from hwgen.obligations.streams import of_streams

MAX_COVERED = 64
"""Maximum number of stored beats in a FIFO proof's cover statement, because its run is searched cycle by cycle."""

_TAKEN = "(o__valid & o__ready)"


def obligations(config: FifoConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of a FIFO: occupancy, order of the beats, ``last``, and cycle of each beat.

    The order is not proved if several block RAM memories, one per address range, store the beats.
    """
    latency, facts = config.latency, _facts(config)
    order = () if config.num_pieces > 1 else (_block_ram_order if config.in_block_ram else _lut_ram_order,)
    return [
        *of_streams(config, site),
        _of_beats(
            config,
            site,
            "occupancy",
            f"The FIFO holds the beats that were written and not taken, at most {config.depth}, and offers no others.",
            asserts={**facts, "no beat is valid at the output without one that waits": "!o__valid | (waiting != 0)"},
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
            "schedule",
            f"A beat is valid exactly {latency} cycles after its write, or one after the previous beat left.",
            *register("written", f"{{written[{latency - 2}:0], i__valid}}", latency),
            *balance("aged", config.depth + 1, f"written[{latency - 2}]", _TAKEN),
            invariants={
                **facts,
                "beats that wait are valid at the output, or were written in the previous cycle": (
                    f"waiting == 32'd0 + aged + {' + '.join(f'written[{age}]' for age in range(latency - 1))}"
                ),
            },
            asserts={"a beat is valid in time": "o__valid == (aged != 0)"},
            cover=f"o__valid & (aged == {min(2, config.depth)})",
        ),
    ]


def counters(config: FifoConfig, prefix: str = "") -> list[str]:
    """Return a list of Verilog names of a FIFO's counters of beats, each after ``prefix``, the path of the instance."""
    return [f"{prefix}{name}" for name in ("level", *(["stored_beats"] if config.in_block_ram else []), "o__valid")]


def counter_facts(config: FifoConfig, prefix: str = "") -> dict[str, str]:
    """Return a dict from text to Verilog invariant on a FIFO's counters, whose names begin with ``prefix``.

    A counter is at most its memory's depth. While RAM stores beats, all slots of the queue but one are reserved.
    """
    if not config.in_block_ram:
        return {"level is at most its memory's depth": f"{prefix}level <= {config.depth}"}
    return {
        "level is at most its memory's depth": f"{prefix}level <= {FRONT_DEPTH}",
        "stored_beats is at most its memory's depth": f"{prefix}stored_beats <= {config.depth}",
        "the front is nearly full while the RAM has beats": (
            f"({prefix}stored_beats == 0) | ({prefix}level >= {FRONT_DEPTH - 1})"
        ),
    }


def _facts(config: FifoConfig, bits: int = 32) -> dict[str, str]:
    """Return a dict from text to Verilog invariant: a FIFO's counters sum, in ``bits`` bits, to its number of beats."""
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
    """Return a proof `Obligation` of a FIFO whose writer holds credits, with an observer that counts its beats."""
    return site.obligation(
        obligation_kind,
        statement,
        observer=(*balance("waiting", config.depth + 1, "i__valid", _TAKEN), *observer),
        assumes={"the writer has a credit for each beat": f"!i__valid | (waiting < {config.depth})"},
        asserts=asserts,
        free_memories=obligation_kind != "tokens",
        **fields,
    )


def _of_order(config: FifoConfig, site: Site, *observer: str, **fields: Any) -> Obligation:
    """Return the `Obligation` that any one marked beat leaves a FIFO in its turn, with all its values."""
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
    """Return the proof `Obligation` that a FIFO in LUT RAM keeps the order and the values of its beats."""
    width, depth = config.width, config.depth
    fields = probed(site, storage=(depth, width, "slot"))
    is_offered = "(o__valid & (ahead == 0))"
    invariants = {
        **_facts(config),
        "the marked beat waits": "!is_marked | (ahead < waiting)",
        "the memory has the marked values": f"!is_marked | {is_offered} | (storage_word == value)",
        "the offered beat has the marked values": (
            f"!(is_marked & {is_offered}) | ({site.read_data('storage')} == value)"
        ),
    }
    if depth > 1:
        invariants |= {
            "addresses are inside the memory": f"(reads < {depth}) & (writes < {depth}) & (slot < {depth})",
            "beats are written and read in a circle": "(reads == read__addr) & (writes == write__addr)",
            "the next beat is written after the stored ones": in_circle("reads", "level", "writes", depth),
            "the marked beat is in its slot": (
                f"!is_marked | {is_offered} | {in_circle('reads', 'ahead', 'slot + o__valid', depth)}"
            ),
        }
    return _of_order(
        config,
        site,
        *counter("writes", depth, "i__valid"),
        *counter("reads", depth, "((level != 0) & (!o__valid | o__ready))"),
        "always @(posedge clk) if (marks) slot <= writes;",
        invariants=invariants,
        **fields,
    )


def _block_ram_order(config: FifoConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a FIFO in block RAM keeps the order and the values of its beats.

    The observer follows the marked beat: into the block RAM or past it, through the two cycles of its read, and into
    its slot of the queue of oldest beats.
    """
    width, depth = config.width, config.depth
    fields = probed(
        site,
        front=(FRONT_DEPTH, width + 1, "place"),
        refilled=(FRONT_DEPTH, width, "place"),
        storage=(depth, width, "slot"),
    )
    fields["sees"] |= {"far_read": "storage_read_address", "far_write": "storage_write_address"}
    observer = (
        "reg is_far = 0; reg is_near = 0; reg is_read = 0; reg is_refill = 0; reg [1:0] place = 0;",
        f"reg {bits_for(depth + 1)} far_ahead = 0;",
        "wire returns = is_marked & is_far & refill & (far_ahead == 0);",
        "always @(posedge clk) far_ahead <= rst ? 0 : marks ? stored_beats - refill : "
        "far_ahead - (refill & (far_ahead != 0));",
        "always @(posedge clk) if (marks) slot <= far_write;",
        "always @(posedge clk) is_far <= !rst & (marks ? !bypass : is_far & !returns);",
        "always @(posedge clk) is_near <= !rst & (marks ? bypass : is_near);",
        "always @(posedge clk) if ((marks & bypass) | returns) place <= write__addr;",
        "always @(posedge clk) is_read <= !rst & returns;",
        "always @(posedge clk) is_refill <= !rst & is_read & is_marked;",
        "wire [1:0] index = place - read__addr;",
        "wire [1:0] index_1 = refill_address_1 - read__addr;",
        "wire [1:0] index_2 = refill_address_2 - read__addr;",
        "wire is_offered = o__valid & (ahead == 0);",
        "wire is_held = is_marked & !is_far & !is_offered;",
    )
    size = depth.bit_length() + 2  # of sums of two addresses, which a solver decides faster than sums of 32 bits
    zero, whole = f"{size}'d0", f"{size}'d{depth}"
    before = f"{zero} + ahead - o__valid"
    invariants = {
        **_facts(config, size),
        "the marked beat waits": "!is_marked | (ahead < waiting)",
        "addresses are inside the memory": f"(far_read < {depth}) & (far_write < {depth}) & (slot < {depth})",
        "beats are written after the stored ones": (
            f"({zero} + far_read + stored_beats == {zero} + far_write) | "
            f"({zero} + far_read + stored_beats == far_write + {whole})"
        ),
        "the front's slots follow each other": "(read__addr_2 == read__addr) & "
        "(((read__addr + level) & 3) == write__addr)",
        "words that are being read come in time": (
            "(!refill_1 | ((index_1 >= 2) & (index_1 < level))) & (!refill_2 | ((index_2 >= 1) & (index_2 < level)))"
        ),
        "the marked beat is in one place": (
            "(!is_far | (!is_near & !is_read & !is_refill)) & (!is_near | (!is_read & !is_refill)) & "
            "!(is_read & is_refill) & (!is_read | (is_marked & refill_1 & (refill_address_1 == place))) & "
            "(!(is_refill & is_marked) | (refill_2 & (refill_address_2 == place)))"
        ),
        "a marked beat in block RAM follows those in the front registers": (
            f"!(is_marked & is_far) | (({before} == {zero} + far_ahead + level) & "
            f"(far_ahead < stored_beats) & "
            f"(({zero} + far_read + far_ahead == {zero} + slot) | ({zero} + far_read + far_ahead == slot + {whole})))"
        ),
        "a marked beat in the front registers is in its slot": f"!is_held | (({before} == index) & (index < level))",
        "no other word comes into its slot": (
            "!is_held | ((is_read | !refill_1 | (refill_address_1 != place)) & "
            "(is_refill | !refill_2 | (refill_address_2 != place)))"
        ),
        "the marked values are in block RAM": "!(is_marked & is_far) | (storage_word == value)",
        "the marked values are being read": f"(!is_read | ({site.read_data('storage')} == value)) & "
        "(!(is_refill & is_marked) | (storage_word_1 == value))",
        "the marked values are in the front registers": (
            f"!is_held | (is_near ? (front_word == {{1'b1, value}}) : "
            f"(!front_word[{width}] & (is_read | is_refill | (refilled_word == value))))"
        ),
        "the marked values are valid at the output": (
            f"!(is_marked & is_offered & !is_far) | "
            f"((front_data[{width}] ? front_data[{width - 1}:0] : refilled_data) == value)"
        ),
        "the offered beat is not in block RAM": "!(is_marked & is_offered) | !is_far",
    }
    return _of_order(config, site, *observer, invariants=invariants, **fields)


PROOFS = {
    FifoConfig: Proofs(
        (obligations,),
        reasons={"": "its memory is in several pieces of block RAM: its beats are simulated"},
    )
}
