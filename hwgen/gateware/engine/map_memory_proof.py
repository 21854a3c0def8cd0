"""Proof obligations of the on-chip map memory: bursts are answered and written whole, and read the right words.

Block RAM and UltraRAM are not part of the proof. The rule of a RAM is assumed of one word that the observer chooses:
what is read at its address is what was written there last.
"""

from __future__ import annotations

from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.bursts import request_layout
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.gateware.engine.port import answer_layout, read_layout, written_layout
from hwgen.gateware.engine.queue_proof import WRITTEN, QueueConfig
from hwgen.gateware.wiring_proof import of_domain
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, field_bits
from hwgen.obligations.observers import register, stages
from hwgen.obligations.streams import held

#: Depth of the map memory's FIFO of write bursts that wait for their words.
_BURSTS = 8


def _entry_bits(config: MapMemoryConfig) -> int:
    """Return the width in bits of the index of a bus beat in the map memory: row, and beat within the row."""
    return config.row_bits + config.engine.row_engine.lane_bits - config.engine.lane_bits


def map_memory_parts(config: MapMemoryConfig) -> dict[str, QueueConfig]:
    """Return, as a dict by instance name, the configuration of the map memory's only component with proofs, a FIFO."""
    return {"bursts": QueueConfig(_entry_bits(config) + 2, _BURSTS)}


def obligations(config: MapMemoryConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of the on-chip map memory: answers, writes, and words that are read back."""
    return [_burst_answers(config, site), _writes(config, site), _words(config, site)]


def _read_lines(config: MapMemoryConfig) -> list[str]:
    """Return a list of observer lines (Verilog) that track a read burst: ``left`` beats, current one ``index``."""
    rows = config.engine.row_engine
    fields, run = read_layout(rows), request_layout(rows)
    run_base = fields["run"].offset
    beats = field_bits("load__payload", run, "beats", run_base)
    address, lanes = field_bits("load__payload", run, "address", run_base), rows.lane_bits
    return [
        f"reg {bits_for(MAX_BEATS)} left = 0; reg {bits_for(MAX_BEATS)} index = 0; reg is_empty = 0;",
        f"reg [{config.row_bits - 1}:0] row; reg [{lanes - 1}:0] begin_at; reg [{lanes - 1}:0] end_at;",
        f"reg [{fields['tag'].width - 1}:0] tag;",
        f"wire [{run['address'].width - 1}:0] address = {address};",
        f"wire {bits_for(MAX_BEATS)} beats = {beats};",
        "wire starts = load__valid & load__ready;",
        "always @(posedge clk) begin",
        "    left <= rst ? 0 : starts ? (beats == 0 ? 1 : beats) : left - (left != 0);",
        "    index <= rst | starts ? 0 : index + (left != 0);",
        "    if (starts) begin",
        f"        is_empty <= beats == 0; row <= address >> {lanes}; begin_at <= address[{lanes - 1}:0];",
        f"        end_at <= {field_bits('load__payload', run, 'end', run_base)};",
        f"        tag <= {field_bits('load__payload', fields, 'tag')};",
        "    end",
        "end",
        f"wire [{config.row_bits - 1}:0] present_row = row + index;",
        f"wire [{rows.bus_words - 1}:0] present;",
        *(
            f"assign present[{lane}] = !is_empty & ((index != 0) | ({lane} >= begin_at)) & "
            f"((left != 1) | (end_at == 0) | ({lane} < end_at));"
            for lane in range(rows.bus_words)
        ),
    ]


def _burst_answers(config: MapMemoryConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that each beat of a read burst is answered a fixed number of cycles later."""
    rows, latency = config.engine.row_engine, config.READ_LATENCY
    answer = dict(answer_layout(rows))
    flags = "{present, left == 1, index == 0, tag}"
    width = rows.bus_words + 2 + answer["tag"].width
    sent = f"{{{', '.join(field_bits('answers__payload', answer, n) for n in ('present', 'last', 'first', 'tag'))}}}"
    stages = [f"stage_{cycle}" for cycle in range(1, latency + 1)]
    shifts = zip(stages, [flags, *stages], strict=False)
    return site.obligation(
        "contract",
        f"A read burst of n beats is answered by n beats from {latency + 1} cycles after it was taken on, an empty one "
        "by one; the next one is accepted with the last beat.",
        observer=(
            *_read_lines(config),
            *register("is_due", f"{{is_due[{latency - 2}:0], left != 0}}", latency),
            *(f"reg [{width - 1}:0] {new}; always @(posedge clk) {new} <= {old};" for new, old in shifts),
        ),
        assumes={f"a burst has at most {MAX_BEATS} beats": f"!load__valid | (beats <= {MAX_BEATS})"},
        invariants={
            "beats are counted": (
                f"(reads_left == left) & ((left == 0) | (32'd0 + left + index <= {MAX_BEATS})) & "
                "((left == 0) | ((read_row == present_row) & (read_tag == tag) & "
                "(is_first_read == (index == 0)) & (is_empty_read == is_empty) & (begin_lane == begin_at) & "
                "(end_lane == end_at)))"
            ),
            "answers are on their way": " & ".join(
                [
                    "(read_valid_1 == is_due[0]) & (read_valid_2 == is_due[1])",
                    *(f"(!is_due[{n - 1}] | (read_flags_{n} == stage_{n}))" for n in range(1, latency + 1)),
                ]
            ),
        },
        asserts={
            "a burst is accepted when the previous one has been read": "load__ready == (left <= 1)",
            "answers come in time": f"answers__valid == is_due[{latency - 1}]",
            "an answer belongs to its beat": f"!answers__valid | ({sent} == {stages[-1]})",
        },
        cover="answers__valid & (left == 1) & (index == 3)",
        free_memories=True,
    )  # fmt: skip


def _writes(config: MapMemoryConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a write burst's words go to consecutive addresses, and that it ends once."""
    engine, bits = config.engine, _entry_bits(config)
    low = config.engine.row_engine.lane_bits - engine.lane_bits
    word = written_layout(engine)
    waiting, stays = held("head", "bursts.r_rdy", "bursts.r_en", {"head": bits + 2})
    beat_words = engine.bus_words
    enables = [
        f"(was_written & (was_index[{low - 1}:0] == {lane // beat_words}) & was_present[{lane % beat_words}])"
        if low
        else f"(was_written & was_present[{lane}])"
        for lane in range(engine.row_words)
    ]
    return site.obligation(
        "tokens",
        "Words are written in the next cycle, from the address of their burst on; a burst ends with its last word.",
        observer=(
            *waiting,
            f"wire [{bits - 1}:0] head_beat = head[{bits - 1}:0];",
            f"wire head_done = head[{bits}]; wire head_empty = head[{bits + 1}];",
            f"reg [{bits - 1}:0] count = 0; wire last = {field_bits('written__payload', word, 'last')};",
            "reg was_written = 0;",
            f"reg [{bits - 1}:0] was_index; reg [{word['data'].width - 1}:0] was_data; "
            f"reg [{word['present'].width - 1}:0] was_present;",
            "always @(posedge clk) begin",
            "    count <= rst ? 0 : written__valid ? (last ? 0 : count + 1) : count;",
            "    was_written <= written__valid & !rst; was_index <= head_beat + count;",
            f"    was_data <= {field_bits('written__payload', word, 'data')};",
            f"    was_present <= {field_bits('written__payload', word, 'present')};",
            "end",
        ),
        sees={"head": "bursts.r_data"},
        assumes={
            "the oldest burst stays valid until it is accepted": " & ".join(f"({fact})" for fact in stays.values()),
            "a word comes for the oldest burst, which has words": "!written__valid | (bursts.r_rdy & !head_empty)",
            f"a burst has at most {MAX_BEATS} words": f"!written__valid | last | (count != {MAX_BEATS - 1})",
        },
        invariants={
            "words are counted": "is_first_write == (count == 0)",
            "the next word is known": (
                "(count == 0) | (bursts.r_rdy & !head_empty & (next_write_index == head_beat + count))"
            ),
            "no burst is too long": f"count < {MAX_BEATS}",
        },
        asserts={
            "words are always taken": "written__ready" if site.has("written__ready") else "1",
            "a burst ends with its last word, or at once": (
                "bursts.r_en == (bursts.r_rdy & (head_empty | (written__valid & last)))"
            ),
            "each stored job is signalled once": "stored == (bursts.r_en & head_done)",
            "a word is written into its place": (
                f"(write_enables_delayed == {{{', '.join(reversed(enables))}}}) & (!was_written | "
                f"((write_words == was_data) & (write_row == was_index[{bits - 1}:{low}])))"
            ),
        },
        cover="bursts.r_en & (count == 2)",
        free_memories=True,
    )


def _word_at(index: str, payload: str, count: int, base: int = 0) -> str:
    """Return the Verilog expression of 64-bit word ``index`` of ``count`` words in a payload, from bit ``base`` up."""
    size = 8 * LANES
    words = [f"{payload}[{base + (word + 1) * size - 1}:{base + word * size}]" for word in range(count)]
    return " : ".join([*(f"{index} == {word} ? {text}" for word, text in enumerate(words[:-1])), words[-1]])


def _words(config: MapMemoryConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a read returns the word that was last written at its address."""
    engine, size = config.engine, 8 * LANES
    rows, latency, lanes = engine.row_engine, config.READ_LATENCY, engine.row_words
    bits = config.row_bits
    bank_bits = bits - (engine.kept_rows - 1).bit_length()
    names = {(bank, lane): f"bank_{bank}_{lane}__r0_data" for bank in range(config.banks) for lane in range(lanes)}
    answers = dict(answer_layout(rows))["data"].offset
    bank_of = f"row_at[{bits - 1}:{bits - bank_bits}]" if bank_bits else "1'd0"
    ram = " : ".join(
        [
            *(f"({bank_of} == {bank}) & (lane_at == {lane}) ? {name}" for (bank, lane), name in names.items()),
            f"{size}'d0",
        ]
    )
    answer = _word_at("lane_at", "answers__payload", lanes, answers)
    words = _word_at(f"(lane_at % {engine.bus_words})", "write_words", engine.bus_words)
    return site.obligation(
        "tokens",
        "An answer has the words that were written at its address last, whatever the bank.",
        methods=("pdr",),
        observer=(
            f"wire [{bits - 1}:0] row_at = $anyconst; wire {bits_for(lanes - 1)} lane_at = $anyconst;",
            f"reg is_written = 0; reg [{size - 1}:0] value;",
            "wire writes = write_enables_delayed[lane_at] & (write_row == row_at);",
            f"wire [{size - 1}:0] new_word = {words};",
            "always @(posedge clk) begin is_written <= is_written | writes; if (writes) value <= new_word; end",
            "wire reads = is_written & !writes & (read_row == row_at);",
            f"reg [{latency - 1}:0] is_read = 0; always @(posedge clk) is_read <= {{is_read[{latency - 2}:0], reads}};",
            *stages("value", size, "value", latency),
            f"wire [{size - 1}:0] ram = {ram};",
        ),
        assumes={"a RAM reads what was written last, in the next cycle": "!is_read[0] | (ram == value_1)"},
        asserts={"an answer has the word": f"!is_read[{latency - 1}] | (({answer}) == value_{latency})"},
        cover=f"is_read[{latency - 1}] & (value_{latency} == 5)",
    )


PROOFS = {
    MapMemoryConfig: Proofs(
        (obligations, of_domain),
        map_memory_parts,
        {"bank_*": "a memory of run time, whose words are free in the proofs around it", "bursts:w_*": WRITTEN},
    )
}
