"""Obligations of an engine's memory port: the rules of AXI4, and that no outstanding burst is lost."""

from __future__ import annotations

from hwgen.gateware.engine.axi import BORDER_BYTES
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.port import MemoryPort, answer_layout, outstanding_bits, tag_layout
from hwgen.gateware.engine.queue_proof import QueueConfig
from hwgen.gateware.engine.units_proof import PortUnitConfig, field_bits, within_boundary
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Proofs, Site, bits_for
from hwgen.obligations.streams import held

__all__ = ["PROOFS", "obligations", "port_parts"]


def port_parts(unit: PortUnitConfig) -> dict[str, QueueConfig]:
    """Return the FIFOs of outstanding reads and writes of a memory port, by instance."""
    widths = outstanding_bits(unit.engine)
    return {
        name: QueueConfig(width, unit.engine.outstanding)
        for name, width in zip(("reads", "writes"), widths, strict=True)
    }


def obligations(unit: PortUnitConfig, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's memory port: the rules of AXI4, and that no outstanding burst is lost."""
    config = unit.engine
    lines, rules, open_bursts = [], {}, {}
    for channel, queue in (("ar", "reads"), ("aw", "writes")):
        signals = [f"m_axi__{channel}{name}" for name in ("addr", "len", "size")]
        widths = {name: site.module.ports[name].width for name in signals if site.has(name)}
        more, facts = held(f"m_axi__{channel}", f"m_axi__{channel}valid", f"m_axi__{channel}ready", widths)
        lines += more
        size = signals[2] if signals[2] in widths else str((config.bus_bytes - 1).bit_length())
        rules |= facts
        rules[f"no burst of {channel} crosses a boundary of 4 KiB"] = (
            f"!m_axi__{channel}valid | (32'd0 + {signals[0]}[11:0] + ((32'd1 + {signals[1]}) << {size}) "
            f"<= {BORDER_BYTES})"
        )
        lines += [
            f"reg {bits_for(2 * config.outstanding)} open_{queue} = 0;",
            f"always @(posedge clk) open_{queue} <= rst ? 0 : open_{queue} + {queue}_w_en - "
            f"({queue}_r_en & {queue}_r_rdy);",
        ]
        open_bursts |= {
            f"at most {config.outstanding} {queue} are outstanding": (
                f"(open_{queue} == {queue}_level) & (!{queue}_w_en | (open_{queue} < {config.outstanding}))"
            )
        }
    names = [f"{queue}.{name}" for queue in ("reads", "writes") for name in ("w_en", "r_en", "r_rdy", "level")]
    requests, directions = ("fetch", "store", "load"), ("read", "write")
    return [
        site.obligation(
            "bus",
            "Addresses stay until they are taken, no burst crosses a boundary of 4 KiB, and answers are counted.",
            methods=("induction", "pdr"),
            observer=tuple(lines),
            sees={name.replace(".", "_"): name for name in names}
            | {f"has_{direction}_room": f"has_{direction}_room" for direction in directions},
            assumes={
                f"requests of {name} are inside 4 KiB": (
                    f"!{name}__valid | {within_boundary(config, f'{name}__payload')}"
                )
                for name in requests
            },
            invariants={
                f"has_{direction}_room follows the level": (
                    f"(has_{direction}_room == ({direction}s_level != {config.outstanding})) & "
                    f"({direction}s_level <= {config.outstanding})"
                )
                for direction in directions
            },
            asserts={
                **rules,
                **open_bursts,
                "answers are taken only while bursts are outstanding": (
                    "(!m_axi__rready | (open_reads != 0)) & (!m_axi__bready | (open_writes != 0))"
                ),
                "the port is idle if no burst is outstanding": "idle == ((open_reads == 0) & (open_writes == 0))",
            },
            cover="m_axi__ar_waits & m_axi__arvalid & (open_writes != 0)",
            keeps=("reads", "writes"),
            free_memories=True,
        ),
        site.obligation(
            "path",
            "No combinational path leads from arready and awready to addresses.",
            methods=("structure",),
            structure={
                "no_path": {
                    "from": ["m_axi__arready", "m_axi__awready"],
                    "to": [f"m_axi__{channel}{name}" for channel in ("ar", "aw") for name in ("valid", "addr", "len")],
                }
            },
        ),
        _answers(config, site),
    ]


def _answers(config: EngineConfig, site: Site) -> Obligation:
    """Return the obligation that each word that is read is answered in the next cycle, with its burst's tag and flags.

    The first word behind the last one of a burst is the first of the next burst. Which burst a word belongs to is
    stated by the FIFO of outstanding reads, whose output is free here.
    """
    answer, tag_bits = dict(answer_layout(config)), tag_layout(config).size
    is_whole = "half" if config.word_beats > 1 else "1'b1"
    flags = {name: f"answers__payload[{answer[name].offset}]" for name in ("first", "last")}
    return site.obligation(
        "contract",
        "Each word that is read is answered in the next cycle, with its burst's tag, first and last words marked.",
        methods=("pdr",),
        observer=(
            f"wire is_empty = open & burst[{tag_bits}]; wire taken = m_axi__rvalid & m_axi__rready;",
            "reg half = 0; reg is_first = 1; reg was_answered = 0; reg was_first; reg was_last;",
            f"reg [{tag_bits - 1}:0] was_tag;",
            "always @(posedge clk) begin",
            "    half <= !rst & (half ^ taken);",
            f"    is_first <= rst | (taken & {is_whole} ? m_axi__rlast : is_first);",
            f"    was_answered <= !rst & (is_empty | (taken & {is_whole}));",
            f"    was_first <= is_first; was_last <= is_empty | m_axi__rlast; was_tag <= burst[{tag_bits - 1}:0];",
            "end",
        ),
        sees={"open": "reads.r_rdy", "burst": "reads.r_data"},
        asserts={
            "answers come in the next cycle": "answers__valid == was_answered",
            "first and last words are marked": (
                f"!answers__valid | (({flags['first']} == was_first) & ({flags['last']} == was_last))"
            ),
            "an answer has its burst's tag": (
                f"!answers__valid | ({field_bits('answers__payload', answer, 'tag')} == was_tag)"
            ),
        },
        cover="answers__valid & !was_first & was_last",
        free_memories=True,
    )


PROOFS = {
    PortUnitConfig: Proofs(
        (obligations,),
        port_parts,
        {"": "the bus, its errors, and the pace of requests are stated in part"},
        (MemoryPort,),
    )
}
