"""Obligations of an engine's memory side: its memory port keeps the rules of AXI4, and its units those of streams.

Arm IHI 0022, chapters A2 and A3: an address stays until it is taken, and no burst crosses a boundary of 4 KiB or has
more than 256 beats. Requests of the units keep the boundary; the port passes them on unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from amaranth.lib import data

from hwgen.gateware.engine.axi import BORDER_BYTES, MAX_BEATS
from hwgen.gateware.engine.bursts import box_burst, box_layout, request_layout, run_layout
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.engine.job import Load, job_words
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.gateware.engine.memory_side import MemorySideConfig
from hwgen.gateware.engine.port import outstanding_bits, written_layout
from hwgen.gateware.engine.store import BEATS, BURSTS, source_layout
from hwgen.prove import engine_deal, streams
from hwgen.prove.bus import held
from hwgen.prove.engine_check import MIN_GAP, CheckUnit
from hwgen.prove.obligation import Obligation
from hwgen.prove.queues import QueueConfig
from hwgen.prove.site import Site, bits_for

__all__ = [
    "BurstUnit",
    "FetchUnit",
    "LoadUnit",
    "PortUnit",
    "StoreUnit",
    "Unit",
    "engine_parts",
    "memory_side_parts",
    "of_bursts",
    "of_fetch",
    "of_load",
    "of_memory_side",
    "of_port",
    "of_store",
    "port_parts",
    "store_parts",
    "unit_parts",
]

#: Port of a fetch unit that starts a run; ``begin`` is a word of Verilog.
_BEGIN = "begin_"


@dataclass(frozen=True)
class Unit:
    """Unit of an engine's memory side, whose component has the engine's configuration as its own."""

    engine: EngineConfig


class PortUnit(Unit):
    """Memory port."""


class FetchUnit(Unit):
    """Fetch unit."""


class LoadUnit(Unit):
    """Load unit."""


class BurstUnit(Unit):
    """Burst generator."""


@dataclass(frozen=True)
class StoreUnit(Unit):
    """Store unit, with the read latency of the output buffer in cycles."""

    read_latency: int


def engine_parts(design: EngineDesign) -> dict[str, Any]:
    """Return the components of an engine that have obligations, by instance."""
    return {"memory_side": design.memory_side, "core": design.core}


def memory_side_parts(config: MemorySideConfig) -> dict[str, Any]:
    """Return the units of an engine's memory side that have obligations, by instance."""
    engine = config.engine
    kept = {"load_kept": LoadUnit(engine.rows), "map_memory": MapMemoryConfig(engine=engine)}
    return {
        "port": PortUnit(engine),
        "fetch": FetchUnit(engine),
        "load": LoadUnit(engine),
        "store": StoreUnit(engine, config.read_latency),
        "check": CheckUnit(engine),
        **(kept if engine.has_map_memory else {}),
    }


def unit_parts(unit: Unit) -> dict[str, Any]:
    """Return the components of a unit that have obligations, by instance."""
    return {"bursts": BurstUnit(unit.engine)}


def port_parts(unit: PortUnit) -> dict[str, Any]:
    """Return the FIFOs of outstanding reads and writes of a memory port, by instance."""
    widths = outstanding_bits(unit.engine)
    return {
        name: QueueConfig(width, unit.engine.outstanding)
        for name, width in zip(("reads", "writes"), widths, strict=True)
    }


def store_parts(unit: StoreUnit) -> dict[str, Any]:
    """Return the components of a store unit that have obligations, by instance."""
    engine = unit.engine
    return {
        **unit_parts(unit),
        "granted": QueueConfig(source_layout(engine).size, BURSTS),
        "words": QueueConfig(written_layout(engine).size, BEATS),
    }


def _keeping(unit: Unit, site: Site, **fields: Any) -> list[Obligation]:
    """Return the obligations of a unit's output streams, with all instances of the unit kept."""
    kept = tuple(site.module.instances)
    return [replace(rule, keeps=kept, **fields) for rule in streams.obligations(unit, site)]


def _bits(payload: str, fields: Mapping[Any, data.Field], name: str) -> str:
    """Return the Verilog expression of a field of a stream's payload."""
    low, width = fields[name].offset, fields[name].width
    return f"{payload}[{low + width - 1}:{low}]"


def _within_boundary(config: EngineConfig, payload: str) -> str:
    """Return the Verilog expression that a request of the layout `request_layout` crosses no boundary of 4 KiB."""
    fields = dict(request_layout(config))
    beats, address = _bits(payload, fields, "beats"), f"{payload}[{(BORDER_BYTES // LANES).bit_length() - 2}:0]"
    narrow = f"(32'd0 + {address} * {LANES} + {beats} * {min(LANES, config.bus_bytes)} <= {BORDER_BYTES})"
    ends = narrow
    if config.bus_words > 1:
        start = f"(({address} >> {config.lane_bits}) << {config.lane_bits})"
        wide = f"(32'd0 + {start} * {LANES} + {beats} * {config.bus_bytes} <= {BORDER_BYTES})"
        ends = f"({payload}[{fields['wide'].offset}] ? {wide} : {narrow})"
    return f"(({beats} == 0) | (({beats} <= {MAX_BEATS}) & {ends}))"


def _boxes(site: Site, sees: Mapping[str, str], invariants: Mapping[str, str]) -> Obligation:
    """Return the obligation that a unit keeps a box until its burst generator has taken it."""
    bursts = site.inner("bursts")
    assert bursts is not None
    lines, facts = held("box", "box_valid", "box_ready", {"box": bursts.module.ports["i__payload"].width})
    inputs = site.streams("input")
    ports = {f"box_{part}": f"bursts.i__{part}" for part in ("valid", "ready")}
    return site.obligation(
        "stream",
        "A box stays as it is until the burst generator has walked it.",
        methods=("induction", "pdr"),
        observer=(*lines, *streams.waits(site, *inputs)),
        sees={**ports, "box": "bursts.i__payload", **sees},
        assumes=streams.rules(*inputs),
        invariants=invariants,
        asserts=facts,
        cover="box_waits & box_valid",
        keeps=("bursts",),
        free_memories=True,
    )


def _requests(config: EngineConfig, site: Site, **fields: Any) -> Obligation:
    """Return the obligation that the requests of a unit cross no boundary of 4 KiB."""
    inputs = site.streams("input")
    return site.obligation(
        "bus",
        "No requested burst crosses a boundary of 4 KiB, or has more than 256 beats.",
        methods=("pdr",),
        observer=streams.waits(site, *inputs),
        assumes=streams.rules(*inputs),
        asserts={
            "a request is inside 4 KiB": f"!request__valid | {_within_boundary(config, 'request__payload')}",
        },
        cover="request__valid & !request__ready",
        keeps=tuple(site.module.instances),
        free_memories=True,
        **fields,
    )


def _renamed(site: Site, port: str) -> str:
    """Return the port of an instance under the instance's emitted name."""
    instance, _, name = port.partition(".")
    return f"{site.instance(instance)}.{name}"


def of_memory_side(config: MemorySideConfig, site: Site) -> list[Obligation]:
    """Return the obligation that the units of a memory side and its bus are connected by wires.

    With a map memory, stores pass a choice of memories, and only loads and fetches are wires.
    """
    pairs = [("port.fetch", "fetch.request"), ("port.load", "load.request")]
    if not config.engine.has_map_memory:
        pairs.append(("port.store", "store.request"))
    pairs = [tuple(_renamed(site, port) for port in pair) for pair in pairs]
    wires = {f"{one}__{part}": f"{other}__{part}" for one, other in pairs for part in ("valid", "ready", "payload")}
    port = site.inner("port")
    assert port is not None
    wires |= {
        name: _renamed(site, f"port.{name}")
        for name in site.module.ports
        if name.startswith("m_axi__") and name in port.module.ports
    }
    return [
        site.obligation(
            "wires",
            "Requests of the units, and the bus, are wires of the memory port.",
            methods=("structure",),
            structure={"wires": wires},
        )
    ]


def of_port(unit: PortUnit, site: Site) -> list[Obligation]:
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
                    f"!{name}__valid | {_within_boundary(config, f'{name}__payload')}"
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
    ]


def of_bursts(unit: BurstUnit, site: Site) -> list[Obligation]:
    """Return the obligations of a burst generator: its streams, and the boundaries that no burst crosses."""
    config = unit.engine
    run = dict(run_layout(config))
    address, words = (_bits("o__payload", run, name) for name in ("address", "words"))
    low = f"o__payload[{(config.burst_words - 1).bit_length() - 1}:0]"
    obligations = [
        *_keeping(unit, site),
        site.obligation(
            "bus",
            f"No burst crosses a multiple of {config.burst_words} words.",
            methods=("pdr",),
            observer=streams.waits(site, "i"),
            assumes=streams.rules("i"),
            asserts={"a burst is inside": f"!o__valid | (32'd0 + {low} + {words} <= {config.burst_words})"},
            cover="o__valid & !o__ready",
        ),
    ]
    return obligations if config.has_cores else [*obligations, _walk(unit, site, address, words)]


def _walk(unit: BurstUnit, site: Site, address: str, words: str) -> Obligation:
    """Return the obligation that the bursts of a box have its words, row by row and block by block."""
    box, burst = dict(box_layout(unit.engine)), dict(box_burst(unit.engine))
    names = ("address", "row_stride", "block_stride", "words", "rows", "blocks")
    fields = {name: f"box_{name}" for name in names}
    widths = {name: box[name].width for name in names}
    flag = {name: f"o__payload[{burst[name].offset}]" for name in ("new_row", "new_block", "new_box", "last")}
    observer = [
        *(f"wire [{widths[name] - 1}:0] {alias} = {_bits('i__payload', box, name)};" for name, alias in fields.items()),
        "wire is_empty = box_blocks == 0;",
        "reg is_walking = 0; reg is_row = 1; reg is_block = 1;",
        f"reg [{widths['address'] - 1}:0] next, row, block;",
        f"reg [{widths['words'] - 1}:0] words_left; reg [{widths['rows'] - 1}:0] rows_left;",
        f"reg [{widths['blocks'] - 1}:0] blocks_left;",
        f"wire [{widths['address'] - 1}:0] now = is_walking ? next : box_address;",
        f"wire [{widths['address'] - 1}:0] now_row = is_walking ? row : box_address;",
        f"wire [{widths['address'] - 1}:0] now_block = is_walking ? block : box_address;",
        f"wire [{widths['words'] - 1}:0] now_words = is_walking ? words_left : is_empty ? 0 : box_words;",
        f"wire [{widths['rows'] - 1}:0] now_rows = is_walking ? rows_left : is_empty ? 1 : box_rows;",
        f"wire [{widths['blocks'] - 1}:0] now_blocks = is_walking ? blocks_left : is_empty ? 1 : box_blocks;",
        f"wire ends_row = {words} == now_words;",
        "wire ends_block = ends_row & (now_rows == 1);",
        "wire ends_box = ends_block & (now_blocks == 1);",
        "always @(posedge clk) begin",
        "    if (o__valid & o__ready) begin",
        "        is_walking <= !ends_box; is_row <= ends_row; is_block <= ends_block;",
        "        next <= ends_block ? now_block + box_block_stride : ends_row ? now_row + box_row_stride :",
        f"            now + {words};",
        "        row <= ends_block ? now_block + box_block_stride : ends_row ? now_row + box_row_stride : now_row;",
        "        block <= ends_block ? now_block + box_block_stride : now_block;",
        f"        words_left <= ends_row ? box_words : now_words - {words};",
        "        rows_left <= ends_block ? box_rows : ends_row ? now_rows - 1 : now_rows;",
        "        blocks_left <= ends_block ? now_blocks - 1 : now_blocks;",
        "    end",
        "    if (rst) begin is_walking <= 0; is_row <= 1; is_block <= 1; end",
        "end",
        *streams.waits(site, "i"),
    ]
    registers = {
        **{name: name for name in ("burst_address", "row_address", "block_address", "burst_words")},
        **{name: name for name in ("end_flags", "new_flags")},
        **{f"left_{name}": f"{name}_left" for name in ("words", "rows", "blocks")},
        **{f"next_{name}": f"next_{name}_address" for name in ("row", "block")},
    }
    burst_words = unit.engine.burst_words
    boundary = f"(32'd{burst_words} - now[{(burst_words - 1).bit_length() - 1}:0])"
    return site.obligation(
        "tokens",
        "The bursts of a box have each of its words once: rows in order, and blocks in order.",
        methods=("induction", "pdr"),
        observer=tuple(observer),
        sees={**registers, "state": "fsm_state"},
        invariants={
            "the state is one of three": "state <= 2",
            "a box is offered while it is walked": "(state == 0) ? !is_walking : i_waits",
            "the present burst is known": (
                "(state == 0) | ((burst_address == now) & (row_address == now_row) & (block_address == now_block) & "
                "(left_words == now_words) & (left_rows == now_rows) & (left_blocks == now_blocks) & "
                "(new_flags == {!is_walking, is_block, is_row}))"
            ),
            "the present burst is measured": (
                f"(state != 2) | ((burst_words == (now_words <= {boundary} ? now_words : {boundary})) & "
                f"(end_flags == {{now_blocks == 1, now_rows == 1, now_words <= {boundary}}}) & "
                "(next_row == now_row + box_row_stride) & (next_block == now_block + box_block_stride))"
            ),
            "no row or block is left out": "!is_walking | is_empty | ((rows_left != 0) & (blocks_left != 0))",
            "a walk without words ends at once": "!is_walking | !is_empty",
            "a walk begins with a row and a block": "is_walking | (is_row & is_block)",
        },
        assumes={**streams.rules("i"), "a box has rows": "!i__valid | is_empty | (box_rows != 0)"},
        asserts={
            "a burst begins where the one before ended": f"!o__valid | ({address} == now)",
            "a burst has words of one row": f"!o__valid | ({words} <= now_words)",
            "flags mark first bursts": (
                f"!o__valid | (({flag['new_row']} == is_row) & ({flag['new_block']} == is_block) & "
                f"({flag['new_box']} == !is_walking))"
            ),
            "last marks the end of the box": f"!o__valid | ({flag['last']} == ends_box)",
            "a box is taken with its last burst": "(i__valid & i__ready) == (o__valid & o__ready & ends_box)",
        },
        cover="o__valid & o__ready & ends_box & is_walking",
    )


def of_fetch(unit: FetchUnit, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's fetch unit: its streams, and the boundaries of its requests."""
    return [
        *(rule for rule in _keeping(unit, site) if "request offers" not in rule.statement),
        _fetched(unit, site),
        _requests(unit.engine, site),
    ]


def _fetched(unit: FetchUnit, site: Site) -> Obligation:
    """Return the obligation that a fetch unit's request stays until it is taken.

    A request waits for room in all queues of parts. It stays, because no part can come before all words of its job were
    requested. Words come only after they were requested, and a run begins once after a reset. So words of two jobs are
    as far apart as the check of jobs needs.
    """
    config, words = unit.engine, job_words(unit.engine)
    beats, burst_words = _bits("request__payload", dict(request_layout(config)), "beats"), config.burst_words
    observer = (
        *streams.waits(site, "request"),
        f"reg {bits_for(4 * words)} owed = 0;",
        f"wire {bits_for(MAX_BEATS)} asked = request__valid & request__ready ? {beats} / {config.word_beats} : 0;",
        "always @(posedge clk) owed <= rst ? 0 : owed + asked - word__valid;",
        "reg has_begun = 0;",
        f"always @(posedge clk) has_begun <= !rst & (has_begun | {_BEGIN});",
        f"reg {bits_for(MIN_GAP)} gap = {MIN_GAP};",
        f"always @(posedge clk) gap <= rst ? {MIN_GAP} : word__valid & (word_index == {words - 1}) ? 0 : "
        f"gap + (gap != {MIN_GAP});",
        f"wire [31:0] unasked = (state == 0) ? (is_wanted ? {words} : 0) : left;",
    )
    boundary = f"(32'd{burst_words} - now[{(burst_words - 1).bit_length() - 1}:0])"
    return site.obligation(
        "stream",
        "A beat that request offers stays as it is until it is taken.",
        methods=("induction", "pdr"),
        observer=observer,
        sees={
            "is_wanted": "is_job_wanted",
            "word_index": "word_index",
            "state": "bursts.fsm_state",
            "now": "bursts.burst_address",
            "left": "bursts.words_left",
            "burst_words": "bursts.burst_words",
            "end_flags": "bursts.end_flags",
            "left_rows": "bursts.rows_left",
            "left_blocks": "bursts.blocks_left",
        },
        assumes={
            "words come after they were requested": "!word__valid | (owed != 0)",
            "a run begins once": f"!has_begun | !{_BEGIN}",
        },
        invariants={
            "nothing is wanted before the run": (
                "has_begun | (!is_wanted & (state == 0) & (owed == 0) & (word_index == 0))"
            ),
            "a job is requested while it is wanted": "(state == 0) | ((state <= 2) & is_wanted)",
            "a job's words are requested, owed, or have come": (
                f"(32'd0 + owed + word_index + unasked == {words}) | (!is_wanted & (owed == 0) & (word_index == 0))"
            ),
            "words of one job come": f"word_index < {words}",
            "a job is requested after the job before": (
                f"(gap == {MIN_GAP}) | ((owed == 0) & (word_index == 0) & ((gap > 1) | (state <= gap)))"
            ),
            "the present burst has words": f"(state == 0) | ((left != 0) & (left <= {words}))",
            "a job is one row": "(state == 0) | ((left_rows == 1) & (left_blocks == 1))",
            "the present burst is measured": (
                f"(state != 2) | ((burst_words == (left <= {boundary} ? left : {boundary})) & "
                f"(end_flags == {{2'd3, left <= {boundary}}}))"
            ),
        },
        asserts={
            **streams.rules("request"),
            f"{MIN_GAP} cycles or more are between two jobs": f"!word__valid | (word_index != 0) | (gap == {MIN_GAP})",
        },
        cover="request_waits & request__valid & !rst",
        keeps=tuple(site.module.instances),
        free_memories=True,
    )


def of_load(unit: LoadUnit, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's load unit: its stream of requests, and their boundaries."""
    part = dict(Load.layout(unit.engine.variant))
    flags = {"has_map": "x_blocks", "has_weights": "w_steps", "has_parameters": "p_words"}
    flags = {flag: name for flag, name in flags.items() if site.has(flag)}  # a map memory has maps alone
    known = [f"({flag} == ({_bits('part__payload', part, name)} != 0))" for flag, name in flags.items()]
    held_part = {"the boxes of a part are known while it waits": f"!has_part | (part_waits & {' & '.join(known)})"}
    signals = {name: name for name in ("has_part", *flags)}
    dealt = engine_deal.of_deal(unit.engine, site)
    return [*_keeping(unit, site), _boxes(site, signals, held_part), _requests(unit.engine, site), *dealt]


def of_store(unit: StoreUnit, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's store unit: streams, boundaries, and the words of each granted burst."""
    ports = {"written__valid": "words.r_rdy", "written__payload": "words.r_data", "written__ready": "words.r_en"}
    return [
        *(rule for rule in _keeping(unit, site) if "written offers" not in rule.statement),
        _boxes(site, {}, {}),
        _requests(unit.engine, site),
        site.obligation(
            "wires",
            "Words to write leave from their FIFO.",
            methods=("structure",),
            structure={"wires": ports},
        ),
        _words(unit, site),
    ]


def _words(unit: StoreUnit, site: Site) -> Obligation:
    """Return the obligation that a granted burst of n beats writes n beats into the FIFO, the last one marked.

    The observer marks a burst as it leaves the FIFO of granted bursts, and counts the beats before it.
    """
    engine, latency = unit.engine, unit.read_latency
    source, word = dict(source_layout(engine)), dict(written_layout(engine))
    reads = _bits("granted_data", source, "reads")
    last = f"words_data[{word['last'].offset}]"
    flags = [f"flags_{stage}" for stage in range(1, latency + 1)]
    in_flight = " + ".join(["32'd0", *(f"{name}[0]" for name in flags)])
    older = {
        name: " + ".join(["32'd0", *(f"{other}[0]" for other in flags[index + 1 :])])
        for index, name in enumerate(flags)
    }
    observer = (
        "wire mark = $anyseq;",
        "wire pops = granted_valid & granted_pop;",
        "reg is_marked = 0; reg is_current = 0;",
        "reg [15:0] owed = 0; reg [15:0] ahead = 0; reg [15:0] remaining = 0;",
        "wire marks = mark & pops & !is_marked;",
        "wire own = is_marked & (ahead == 0) & words_push;",
        "always @(posedge clk) begin",
        f"    owed <= rst ? 0 : owed + (pops ? {reads} : 0) - words_push;",
        "    is_marked <= !rst & (marks | (is_marked & !(own & (remaining == 1))));",
        "    is_current <= !rst & (marks | (is_current & !pops));",
        "    ahead <= rst ? 0 : marks ? owed - words_push : ahead - (words_push & (ahead != 0));",
        f"    remaining <= rst ? 0 : marks ? {reads} : remaining - own;",
        "end",
    )
    ranks = [
        f"(!({name}[0] & is_marked & ({older[name]} >= ahead) & ({older[name]} < 32'd0 + ahead + remaining)) | "
        f"({name}[1] == ({older[name]} + 1 == 32'd0 + ahead + remaining)))"
        for name in flags
    ]
    return site.obligation(
        "tokens",
        "A granted burst writes as many beats as it has, and marks the last one.",
        methods=("induction", "pdr"),
        observer=observer,
        sees={
            "granted_pop": "granted.r_en",
            "granted_valid": "granted.r_rdy",
            "granted_data": "granted.r_data",
            "granted_push": "granted.w_en",
            "granted_level": "granted.level",
            "words_push": "words.w_en",
            "words_data": "words.w_port__data",
            "words_level": "words.level",
            "words_pop": "words.r_en",
            "reads_left": "reads_left",
            "free_beats": "free_beats",
            "has_room": "has_room",
            **{name: f"read_{name}" for name in flags},
        },
        assumes={"a granted burst has beats": f"!granted_valid | (({reads} != 0) & ({reads} <= {MAX_BEATS}))"},
        invariants={
            "beats are being read": f"owed == 32'd0 + reads_left + {in_flight}",
            "reads are bounded": f"reads_left <= {MAX_BEATS}",
            "each beat in flight has room": f"free_beats + words_level + {in_flight} == {BEATS}",
            "a marked burst has beats": "!is_marked | (remaining != 0)",
            "marked beats are being read": (
                f"!is_marked | (is_current ? (32'd0 + ahead + remaining == owed) : "
                f"(32'd0 + ahead + remaining <= {in_flight}))"
            ),
            "marks in flight are the last beats": " & ".join(ranks) or "1",
            "has_room follows the level": f"(has_room == (granted_level != {BURSTS})) & (granted_level <= {BURSTS})",
        },
        asserts={
            "beats are written for granted bursts": "!words_push | (owed != 0)",
            "the last beat of a burst is marked, and no other": f"!own | ({last} == (remaining == 1))",
            "beats are written if there is room": f"!words_push | (words_level < {BEATS})",
            "bursts are granted if there is room": f"!granted_push | (granted_level < {BURSTS})",
        },
        cover="own & (remaining == 1)",
        keeps=("granted", "words"),
        free_memories=True,
    )
