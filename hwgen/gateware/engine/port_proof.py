"""Proof obligations of the engine's memory port: the rules of AXI4, and that no outstanding burst is lost."""

from __future__ import annotations

from hwgen.gateware.engine.axi import BORDER_BYTES
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.port import MemoryPort, answer_layout, outstanding_bits, tag_layout
from hwgen.gateware.engine.queue_proof import QueueConfig
from hwgen.gateware.engine.units_proof import PortUnitConfig, within_boundary
from hwgen.obligations.obligation import Obligation, Proofs, Site, field_bits
from hwgen.obligations.observers import balance, delayed, register
from hwgen.obligations.streams import held, no_path


def port_parts(unit: PortUnitConfig) -> dict[str, QueueConfig]:
    """Return a dict of configurations of the port's FIFOs of outstanding bursts, by instance name, for their proofs."""
    widths = outstanding_bits(unit.engine)
    return {
        name: QueueConfig(width, unit.engine.outstanding)
        for name, width in zip(("reads", "writes"), widths, strict=True)
    }


def obligations(unit: PortUnitConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of the memory port: AXI4 rules, no combinational path, and read data with tags."""
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
        lines += balance(f"open_{queue}", 2 * config.outstanding, f"{queue}.w_en", f"{queue}.r_en & {queue}.r_rdy")
        open_bursts |= {
            f"at most {config.outstanding} {queue} are outstanding": (
                f"(open_{queue} == {queue}.level) & (!{queue}.w_en | (open_{queue} < {config.outstanding}))"
            )
        }
    requests, directions = ("fetch", "store", "load"), ("read", "write")
    return [
        site.obligation(
            "bus",
            "Addresses are stable until they are accepted; no burst crosses a boundary of 4 KiB; answers are counted.",
            observer=tuple(lines),
            assumes={
                f"requests of {name} are inside 4 KiB": (
                    f"!{name}__valid | {within_boundary(config, f'{name}__payload')}"
                )
                for name in requests
            },
            invariants={
                f"has_{direction}_room follows the level": (
                    f"(has_{direction}_room == ({direction}s.level != {config.outstanding})) & "
                    f"({direction}s.level <= {config.outstanding})"
                )
                for direction in directions
            },
            asserts={
                **rules,
                **open_bursts,
                "answers are accepted only while bursts are outstanding": (
                    "(!m_axi__rready | (open_reads != 0)) & (!m_axi__bready | (open_writes != 0))"
                ),
                "the port is idle if no burst is outstanding": "idle == ((open_reads == 0) & (open_writes == 0))",
            },
            cover="m_axi__ar_waits & m_axi__arvalid & (open_writes != 0)",
            keeps=("reads", "writes"),
            free_memories=True,
        ),
        no_path(
            site,
            "arready and awready to addresses",
            ["m_axi__arready", "m_axi__awready"],
            [f"m_axi__{channel}{name}" for channel in ("ar", "aw") for name in ("valid", "addr", "len")],
        ),
        _read_answers(config, site),
    ]


def _read_answers(config: EngineConfig, site: Site) -> Obligation:
    """Return the `Obligation` that each word read leaves a cycle later with its burst's tag, first and last marked.

    The first word after the last one of a burst is the first of the next burst. The FIFO of outstanding reads says
    which burst a word belongs to; its output is free here.
    """
    answer, tag_bits = dict(answer_layout(config)), tag_layout(config).size
    is_whole = "half" if config.word_beats > 1 else "1'b1"
    flags = {name: f"answers__payload[{answer[name].offset}]" for name in ("first", "last")}
    return site.obligation(
        "contract",
        "Each word that is read is answered in the next cycle, with its burst's tag, first and last words marked.",
        methods=("pdr",),
        observer=(
            f"wire is_empty = reads.r_rdy & reads.r_data[{tag_bits}]; wire taken = m_axi__rvalid & m_axi__rready;",
            *register("half", "half ^ taken"),
            *register("is_first", f"taken & {is_whole} ? m_axi__rlast : is_first", init=1),
            *delayed("answered", 1, f"is_empty | (taken & {is_whole})", 1, resets=True),
            *delayed("first", 1, "is_first", 1),
            *delayed("last", 1, "is_empty | m_axi__rlast", 1),
            *delayed("tag", tag_bits, f"reads.r_data[{tag_bits - 1}:0]", 1),
        ),
        asserts={
            "answers come in the next cycle": "answers__valid == answered_was",
            "first and last words are marked": (
                f"!answers__valid | (({flags['first']} == first_was) & ({flags['last']} == last_was))"
            ),
            "an answer has its burst's tag": (
                f"!answers__valid | ({field_bits('answers__payload', answer, 'tag')} == tag_was)"
            ),
        },
        cover="answers__valid & !first_was & last_was",
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
