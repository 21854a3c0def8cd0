"""Proof obligations of the engine's fetch unit: jobs are requested in order, and their words reach the right queues."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.bursts import ADDRESS_BITS, box_layout, request_layout
from hwgen.gateware.engine.check_proof import MIN_GAP
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.engine.fetch import FetchUnit, PartQueue, queued_parts
from hwgen.gateware.engine.job import COUNT_BITS, PARTS, Load, job_words
from hwgen.gateware.engine.units_proof import FetchUnitConfig, kept_streams, requests_inside
from hwgen.obligations import streams
from hwgen.obligations.composition import wired
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, field_bits, in_circle
from hwgen.obligations.observers import balance, marked, register

#: Emitted name of the fetch unit's port ``begin``, which starts a run; ``begin`` is a Verilog keyword.
_BEGIN = "begin_"
#: Index of the bit in a job's first word that marks the last job of a program.
_END_BIT = Load.layout()["end"].offset


@dataclass(frozen=True)
class PartQueueUnit:
    """Configuration of a FIFO of job parts (`PartQueue`) for its proofs: 64-bit words per part, and depth in parts."""

    words: int
    depth: int


def fetch_parts(unit: FetchUnitConfig) -> dict[str, PartQueueUnit]:
    """Return a dict by instance name of the configurations of the fetch unit's FIFOs of job parts, for proofs."""
    engine = unit.engine
    return {
        f"{name}_queue": PartQueueUnit(part.num_words(engine.variant), engine.queue)
        for name, part in queued_parts(engine).items()
    }


def obligations(unit: FetchUnitConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of the engine's fetch unit: streams, memory requests, and destinations of words."""
    return [
        *kept_streams(unit, site, without="request"),
        requests_inside(unit.engine, site),
        _stable(unit, site),
        _queue_has_room(unit, site),
        _requests(unit, site),
        _words(unit, site),
        _wires(unit, site),
    ]


def _shared_fields(unit: FetchUnitConfig, site: Site) -> dict[str, Any]:
    """Return a dict of keyword arguments for the fetch unit's obligations: observer of a job's words, invariants.

    ``owed`` is the number of words that were requested and have not arrived, ``gap`` the number of cycles since the
    last word of a job, and ``unasked`` the number of words of the current job that are not requested yet.
    """
    config, words = unit.engine, job_words(unit.engine)
    beats, burst_words = field_bits("request__payload", request_layout(config), "beats"), config.burst_words
    observer = (
        *streams.waits(site, "request"),
        "wire asks = request__valid & request__ready;",
        f"wire {bits_for(MAX_BEATS)} asked = {beats} / {config.word_beats};",
        *balance("owed", 4 * words, "asks ? asked : 0", "word__valid"),
        *register("has_begun", f"has_begun | {_BEGIN}"),
        f"reg {bits_for(MIN_GAP)} gap = {MIN_GAP};",
        f"always @(posedge clk) gap <= rst ? {MIN_GAP} : word__valid & (word_index == {words - 1}) ? 0 : "
        f"gap + (gap != {MIN_GAP});",
        f"wire [31:0] unasked = (state == 0) ? (is_job_wanted ? {words} : 0) : left;",
    )
    boundary = f"(32'd{burst_words} - now[{(burst_words - 1).bit_length() - 1}:0])"
    queues = [f"{name}_queue" for name in queued_parts(config)]
    return {
        "observer": observer,
        "within": "bursts",
        "sees": {"state": "bursts.fsm_state", "now": "bursts.burst_address", "left": "bursts.words_left"},
        "assumes": {
            "words come after they were requested": "!word__valid | (owed != 0)",
            "a run begins once": f"!has_begun | !{_BEGIN}",
        },
        "invariants": {
            "nothing is wanted before the run": (
                "has_begun | (!is_job_wanted & (state == 0) & (owed == 0) & (word_index == 0))"
            ),
            "a job is requested while it is wanted": "(state == 0) | ((state <= 2) & is_job_wanted)",
            "a job's words are requested, owed, or have come": (
                f"(32'd0 + owed + word_index + unasked == {words}) | (!is_job_wanted & (owed == 0) & (word_index == 0))"
            ),
            "words of one job come": f"word_index < {words}",
            "a job is requested after the previous job": (
                f"(gap == {MIN_GAP}) | ((owed == 0) & (word_index == 0) & ((gap > 1) | (state <= gap)))"
            ),
            "the current burst has words": f"(state == 0) | ((left != 0) & (left <= {words}))",
            "a job is one row": "(state == 0) | ((rows_left == 1) & (blocks_left == 1))",
            "the current burst is measured": (
                f"(state != 2) | ((burst_words == (left <= {boundary} ? left : {boundary})) & "
                f"(end_flags == {{2'd3, left <= {boundary}}}))"
            ),
            **({"a job has no teams": "((state == 0) | (teams_left == 1)) & ((state != 2) | is_last_team)"}
               if config.has_cores else {}),
            **{
                f"{queue} knows whether it has room": (
                    f"({queue}.room == ({queue}.level != {config.queue})) & ({queue}.level <= {config.queue})"
                )
                for queue in queues
            },
            "words that are owed have room": "has_room | ((owed == 0) & (word_index == 0))",
        },
        "keeps": tuple(site.module.instances),
        "free_memories": True,
    }  # fmt: skip


def _extend_fields(shared: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a copy of the keyword arguments ``shared`` with ``fields`` added: tuples appended, dicts merged."""
    return shared | {
        name: (*shared[name], *value) if isinstance(value, tuple) else shared[name] | value
        for name, value in fields.items()
    }


def _stable(unit: FetchUnitConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a fetch unit's memory request stays unchanged until it is accepted.

    A request waits for room in all queues of parts. It stays, because no part can arrive before all words of its job
    were requested. Words arrive only after they were requested, and a run begins once after a reset. Therefore words of
    two jobs are as far apart as the job checker needs.
    """
    return site.obligation(
        "stream",
        "A valid beat on request stays valid and unchanged until it is accepted.",
        asserts={
            **streams.rules("request"),
            f"{MIN_GAP} cycles or more are between two jobs": f"!word__valid | (word_index != 0) | (gap == {MIN_GAP})",
        },
        cover="request_waits & request__valid & !rst",
        **_shared_fields(unit, site),
    )


def _queue_has_room(unit: FetchUnitConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that each FIFO of job parts has room for a job's words when they arrive."""
    rooms = " & ".join(f"{name}_queue.room" for name in queued_parts(unit.engine))
    return site.obligation(
        "occupancy",
        "Words of jobs come only while each queue has room for another part.",
        asserts={"a word has room": f"!word__valid | ({rooms})"},
        cover="word__valid & !rst",
        **_shared_fields(unit, site),
    )


def _requests(unit: FetchUnitConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a program's jobs are requested once, in order, up to its last job."""
    config, words = unit.engine, job_words(unit.engine)
    request = dict(request_layout(config))
    address, beats = (field_bits("request__payload", request, name) for name in ("address", "beats"))
    bursts, box = site.part("bursts"), box_layout(config)
    box_address = bursts.fields("i__payload", box)["address"]
    narrow = f"!request__payload[{request['wide'].offset}]" if "wide" in request else "1"
    shared = _shared_fields(unit, site)
    return site.obligation(
        "tokens",
        "The words of a program's jobs are requested once, in order, up to the job that ends the program.",
        asserts={
            "a request begins where the previous one ended": f"!request__valid | ({address} == next)",
            "a request has words of one job": (
                f"!request__valid | ((asked != 0) & (asked <= job_left) & ({beats} == asked * {config.word_beats}) "
                f"& {narrow})"
            ),
            "nothing is requested but for a run, and up to the end": "!request__valid | (has_begun & !has_ended)",
        },
        cover=f"asks & (asked == job_left) & (next == {5 * words})",
        **_extend_fields(
            shared,
            observer=(
                f"reg [{ADDRESS_BITS - 1}:0] next; reg {bits_for(words)} job_left; reg ends; reg has_ended = 0;",
                "always @(posedge clk) begin",
                f"    next <= {_BEGIN} ? program_base[31:{LANES.bit_length() - 1}] : next + (asks ? asked : 0);",
                f"    job_left <= {_BEGIN} ? {words} : asks ? (asked == job_left ? {words} : job_left - asked) : "
                "job_left;",
                f"    if (word__valid & (word_index == 0)) ends <= word__payload[{_END_BIT}];",
                f"    has_ended <= !rst & (has_ended | (word__valid & (word_index == {words - 1}) & ends));",
                "end",
            ),
            invariants={
                "the job's address is known": (
                    "!has_begun | (state == 0 ? "
                    f"({box_address} == next) & (job_left == {words}) : (now == next) & (left == job_left) & "
                    f"({box_address} + {ADDRESS_BITS}'d{words} == next + job_left))"
                ),
                "the end of the program is known": "(word_index == 0) | (is_program_end == ends)",
                "nothing is requested after the end": (
                    "!has_ended | (has_begun & !is_job_wanted & (state == 0) & (owed == 0) & (word_index == 0))"
                ),
            },
        ),
    )


def _words(unit: FetchUnitConfig, site: Site) -> Obligation:
    """Return the `Obligation` that each word of a job is written once, to its place in one FIFO, and jobs are counted.

    A job has the parts of its units in the order of `PARTS`, and its seal.
    """
    engine, words = unit.engine, job_words(unit.engine)
    sizes = {name: part.num_words(engine.variant) for name, part in queued_parts(engine).items()}
    first = dict(zip(PARTS, accumulate((sizes[name] for name in PARTS), initial=0), strict=False))
    asserts = {}
    for name, size in sizes.items():
        queue, begin = f"{name}_queue", first.get(name, 0)
        mine = f"(word__valid & (count >= {begin}) & (count < {begin + size}))"
        asserts |= {
            f"each word of {name} is written at its position": (
                f"({queue}.enable == ({mine} ? {size}'d1 << (count - {begin}) : {size}'d0)) & "
                f"(!{mine} | ({queue}.word == word__payload))"
            ),
            f"a part of {name} is complete with its job": f"{queue}.push == (word__valid & (count == {words - 1}))",
        }
    return site.obligation(
        "tokens",
        "Each word of a job is written once, at its position in its unit's part; jobs are counted.",
        asserts={
            **asserts,
            "jobs are counted": "jobs == num_jobs",
            "the end of the program is seen": "ended == has_ended",
        },
        cover="completes & !rst",
        **_extend_fields(
            _shared_fields(unit, site),
            observer=(
                f"reg {bits_for(words)} count = 0; reg ends; reg has_ended = 0; reg [{COUNT_BITS - 1}:0] num_jobs = 0;",
                f"wire completes = word__valid & (count == {words - 1});",
                "always @(posedge clk) begin",
                "    count <= rst | completes ? 0 : count + word__valid;",
                "    num_jobs <= rst ? 0 : num_jobs + completes;",
                f"    if (word__valid & (count == 0)) ends <= word__payload[{_END_BIT}];",
                "    has_ended <= !rst & (completes ? ends : has_ended);",
                "end",
            ),
            invariants={
                "words are counted": "count == word_index",
                "the end of the program is known": "(count == 0) | (is_program_end == ends)",
            },
        ),
    )  # fmt: skip


def _wires(unit: FetchUnitConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that the fetch unit's output streams are wires from its FIFOs of job parts."""
    wires = {
        f"{name}__{port}": f"{name}_queue.o__{port}"
        for name in queued_parts(unit.engine)
        for port in ("valid", "ready", "payload")
    }
    return wired(site, "Parts of jobs leave from their queues.", wires)


def of_part_queue(unit: PartQueueUnit, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of a FIFO of job parts: each part leaves once, unchanged and in order.

    The observer keeps the words that were written last, and marks a part when it is complete. It chooses an arbitrary
    slot of the memory, and keeps what is written there. The rule of a RAM is assumed of the slot: solvers are slow with
    memories whose words are written in pieces.
    """
    bits, depth, words = 8 * LANES, unit.depth, range(unit.words)
    address, width = bits_for(depth - 1), bits * unit.words
    word_of = {word: f"[{bits * word + bits - 1}:{bits * word}]" for word in words}
    return [
        *streams.of_streams(unit, site),
        site.obligation(
            "tokens",
            "Each part that is complete leaves once, with the words that were written for it, in order.",
            observer=(
                f"wire {address} slot = $anyconst;",
                f"reg [{width - 1}:0] stored;",
                f"reg [{width - 1}:0] last_part; wire [{width - 1}:0] new_part; wire [{width - 1}:0] new_slot;",
                *(f"assign new_part{at} = enable[{word}] ? word : last_part{at};" for word, at in word_of.items()),
                *(
                    f"assign new_slot{at} = enable[{word}] & (write__addr == slot) ? word : stored{at};"
                    for word, at in word_of.items()
                ),
                "always @(posedge clk) begin last_part <= new_part; stored <= new_slot; end",
                *register("has_word", "push ? 0 : has_word | enable", unit.words),
                "wire takes = o__valid & o__ready; wire completes = push & (write__addr == slot);",
                *balance("waiting", depth + 1, "push", "takes"),
                *marked(depth + 1, width, "new_part", "completes", "takes"),
                *register("is_due", "!o__valid & (waiting != 0)"),
            ),
            assumes={
                "words are written only if there is room": "room | !(push | (enable != 0))",
                "a complete part has all of its words": f"!push | ((has_word | enable) == {{{unit.words}{{1'b1}}}})",
                "a RAM reads what was written last": f"(read__addr != slot) | ({site.read_data('parts')} == stored)",
            },
            invariants={
                "the level is the number of stored parts": f"(level + o__valid == waiting) & (level <= {depth})",
                "parts are written after the stored ones": (
                    f"(read__addr < {depth}) & (write__addr < {depth}) & "
                    f"{in_circle('read__addr', 'level', 'write__addr', depth)}"
                ),
                "the marked part follows the parts stored before it": (
                    f"!is_marked | ((ahead < waiting) & (slot < {depth}) & ((o__valid & (ahead == 0)) | "
                    f"{in_circle('read__addr', 'ahead', 'slot + o__valid', depth)}))"
                ),
                **{
                    f"word {word} of the part being written is in its slot": (
                        f"(write__addr != slot) | !has_word[{word}] | (stored{at} == last_part{at})"
                    )
                    for word, at in word_of.items()
                },
                "the marked part is stored, or offered": (
                    "!is_marked | (value == (o__valid & (ahead == 0) ? o__payload : stored))"
                ),
            },
            asserts={
                "the marked part leaves unchanged, in its turn": "!leaves | (o__payload == value)",
                "parts are written only over parts that left": f"!push | (level < {depth})",
                "the queue says whether it has room": f"room == (level != {depth})",
                "a part is valid two cycles after it is complete, or one after the part before": "!is_due | o__valid",
            },
            cover="leaves & (slot != 0)" if depth > 1 else "leaves",
            free_memories=True,
        ),
    ]


PROOFS = {
    FetchUnitConfig: Proofs(
        (obligations,),
        fetch_parts,
        {"bursts:o__payload": "marks of rows and blocks, which a fetch has no use for"},
        (FetchUnit,),
    ),
    PartQueueUnit: Proofs((of_part_queue,), others=(PartQueue,)),
}
