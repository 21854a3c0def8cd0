"""Load unit of the engine: requests the operands of jobs from memory, and writes them into the buffers."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine.bursts import Bursts, request_of, word_address
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, TABLE_WORDS, EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, Load
from hwgen.gateware.engine.port import Target, answer_layout, read_layout
from hwgen.gateware.engine.reuse_buffer import map_write
from hwgen.gateware.engine.weight_buffer import weight_write
from hwgen.gateware.naming import named


class LoadUnit(ConfiguredComponent[EngineConfig]):
    """Load unit of the engine, which requests the operands of all jobs from memory, in order.

    Each is requested as soon as its buffer words are free.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    part : In(stream of Load)
        Load parts of the jobs. A part is taken when its last burst is about to be requested.
    computed, stored : In(24)
        Numbers of computed and stored jobs.
    request : Out(stream of read_layout(config))
        Read bursts.

    Latency and throughput
        docs/reference/engine.md, "When bursts are ready".
    """

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "part": In(stream.Signature(Load.layout())),
                "computed": In(COUNT_BITS),
                "stored": In(COUNT_BITS),
                "request": Out(stream.Signature(read_layout(config))),
            },
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bursts = bursts = Bursts(self.config)
        part, request = self.part.payload, self.request.payload
        target, last_box = self._elaborate_boxes(m, bursts)
        met, take = Signal(name="conditions_met"), Signal(name="burst_transfer")
        m.d.comb += [
            take.eq(bursts.o.valid & bursts.o.ready),
            bursts.o.ready.eq(met & ~self.request.valid),
            self.part.ready.eq(bursts.i.ready & last_box),
        ]
        waiting = self.part.valid & ~self.part.ready
        m.d.sync += met.eq(waiting & (part.wait_computed <= self.computed) & (part.wait_stored <= self.stored))
        burst = bursts.o.payload
        run = request_of(self.config, burst.run, (target == Target.MAP) | (target == Target.WEIGHTS))
        with m.If(take):
            m.d.sync += [
                self.request.valid.eq(1),
                *(request.run[name].eq(value) for name, value in run.items()),
                request.tag.target.eq(target),
                request.tag.fresh.eq(burst.new_row),
                request.tag.done.eq(burst.last & last_box),
            ]
        with m.Elif(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        self._elaborate_addresses(m, burst, take, target)
        return m

    def _elaborate_boxes(self, m: Module, bursts: Bursts) -> tuple[Any, Signal]:
        """Add the choice of a job's next memory box (map, weights, parameters); return its target, and if it is last.

        The box goes to the burst generator.
        """
        part, box = self.part.payload, bursts.i.payload
        past = Signal(2, name="boxes_done")  # bit 0: the map; bit 1: the weights
        target, last_box = Signal(Target, name="target"), Signal(name="is_last_box")
        seen, has_map, has_weights, has_parameters = (
            Signal(name=name) for name in ("has_part", "has_map", "has_weights", "has_parameters")
        )
        m.d.sync += [
            seen.eq(self.part.valid & ~self.part.ready),
            has_map.eq(part.x_blocks != 0),
            has_weights.eq(part.w_steps != 0),
            has_parameters.eq(part.p_words != 0),
        ]
        m.d.comb += [bursts.i.valid.eq(seen), box.rows.eq(1), box.blocks.eq(1)]
        with m.If(has_map & ~past[0]):
            m.d.comb += [
                target.eq(Mux(part.addend, Target.ADDEND, Target.MAP)),
                last_box.eq(~has_weights & ~has_parameters),
                box.address.eq(word_address(part.x_address)),
                box.row_stride.eq(word_address(part.x_row_stride)),
                box.block_stride.eq(word_address(part.x_block_stride)),
                box.blocks.eq(part.x_blocks),
                box.rows.eq(part.x_rows),
                box.words.eq(part.x_words),
            ]
        with m.Elif(has_weights & ~past[1]):
            m.d.comb += [
                target.eq(Target.WEIGHTS),
                last_box.eq(~has_parameters),
                box.address.eq(word_address(part.w_address)),
                box.words.eq(part.w_steps * self.config.weight_words),
            ]
        with m.Elif(has_parameters):
            m.d.comb += [
                target.eq(Mux(part.tables, Target.TABLES, Target.PARAMETERS)),
                last_box.eq(1),
                box.address.eq(word_address(part.p_address)),
                box.words.eq(part.p_words),
            ]
        with m.Else():
            m.d.comb += [last_box.eq(1), box.blocks.eq(0)]
        with m.If(bursts.i.ready & bursts.i.valid):
            m.d.sync += past.eq(Mux(last_box, 0, Mux(has_map & ~past[0], 0b01, 0b11)))
        return target, last_box

    def _elaborate_addresses(self, m: Module, burst: data.View, take: Signal, target: Any) -> None:
        """Add the logic that gives the first burst of each row in memory its address and bank in the target buffer.

        The next row's address is known two cycles ahead.
        """
        part, tag = self.part.payload, self.request.payload.tag
        begin_place, begin_rest = Signal.like(tag.place, name="box_address"), Signal.like(tag.rest, name="box_bank")
        row_place, row_rest = (
            Signal.like(tag.place, name="row_address", reset_less=True),
            Signal.like(tag.rest, name="row_bank", reset_less=True),
        )
        block_place, next_block = (
            Signal(16, name=name, reset_less=True) for name in ("block_address", "next_block_address")
        )
        next_place = Signal.like(row_place, name="next_row_address", reset_less=True)
        next_rest = Signal.like(row_rest, name="next_row_bank", reset_less=True)
        with m.Switch(target):
            with m.Case(Target.PARAMETERS):
                m.d.comb += begin_place.eq(part.p_base)
            with m.Case(Target.TABLES):
                m.d.comb += begin_place.eq(part.p_base * (TABLE_WORDS // LANES))
            with m.Case(Target.MAP, Target.ADDEND):
                m.d.comb += [begin_place.eq(part.x_base), begin_rest.eq(part.x_first)]
            with m.Case(Target.WEIGHTS):
                m.d.comb += begin_place.eq(part.w_base)
        rest = Signal(range(2 * self.config.pixels), name="row_bank_sum")
        wraps = named(rest >= self.config.pixels, "bank_wraps")
        m.d.comb += rest.eq(row_rest + part.x_pitch_rest)
        m.d.sync += [
            next_block.eq(block_place + part.x_plane),
            next_place.eq(row_place + part.x_pitch_words + wraps),
            next_rest.eq(Mux(wraps, rest - self.config.pixels, rest)),
        ]
        place, first = Signal.like(tag.place, name="burst_address"), Signal.like(tag.rest, name="burst_bank")
        m.d.comb += [place.eq(next_place), first.eq(next_rest)]
        with m.If(burst.new_box):
            m.d.comb += [place.eq(begin_place), first.eq(begin_rest)]
        with m.Elif(burst.new_block):
            m.d.comb += [place.eq(next_block), first.eq(begin_rest)]
        with m.If(take & burst.new_row):
            m.d.sync += [row_place.eq(place), row_rest.eq(first), tag.place.eq(place), tag.rest.eq(first)]
            with m.If(burst.new_block):
                m.d.sync += block_place.eq(place)


def fills(config: EngineConfig) -> dict[str, stream.Signature]:
    """Return a mapping from the name of each write stream into the engine's map and weight buffers to its signature.

    There are two streams for each buffer if a bus beat has two words.
    """
    ends = ("", "_high")[: config.bus_words]
    layouts = {"map_write": map_write(config), "weight_write": weight_write(config)}
    return {
        f"{name}{end}": stream.Signature(layout, always_ready=True) for name, layout in layouts.items() for end in ends
    }


class Placement(ConfiguredComponent[EngineConfig]):
    """Component that writes words returned by memory into the engine's buffers, and counts the jobs that are loaded.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    answers : In(stream of answer_layout(config), always ready)
        Words from memory.
    job : Out(stream of 64 bits, always ready)
        Words of jobs, for the fetch unit.
    map_write, weight_write, parameter_write, addend_write : Out(stream, always ready)
        Writes to the buffers: `map_write`, `weight_write`, `PARAMETER_LAYOUT` and `EngineConfig.addend_write`.
    map_write_high, weight_write_high : Out(stream, always ready)
        Writes of a beat's second word, in the cycle of the first. Only with a bus of two words.
    loaded : Out(24)
        Number of loaded jobs.

    Latency and throughput
        An answer's word in cycle c is written into a buffer in c + 1; a job's word leaves in c. ``loaded`` increments
        in c + 2 if the word is the last one of a job.
    """

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "answers": In(stream.Signature(answer_layout(config), always_ready=True)),
                "job": Out(stream.Signature(8 * LANES, always_ready=True)),
                **{name: Out(signature) for name, signature in fills(config).items()},
                "parameter_write": Out(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                "addend_write": Out(stream.Signature(config.addend_write, always_ready=True)),
                "loaded": Out(COUNT_BITS),
            },
        )

    def elaborate(self, platform):
        m = Module()
        answer, tag = self.answers.payload, self.answers.payload.tag
        address, bank = Signal.like(tag.place, name="word_address"), Signal.like(tag.rest, name="word_bank")
        next_address = Signal.like(address, name="next_word_address", reset_less=True)
        next_bank = Signal.like(bank, name="next_word_bank", reset_less=True)
        fresh = named(answer.first & tag.fresh, "is_fresh_word")
        m.d.comb += [address.eq(Mux(fresh, tag.place, next_address)), bank.eq(Mux(fresh, tag.rest, next_bank))]
        word, wraps = (
            Signal(8 * LANES, name="word"),
            Signal(2, name="bank_wraps"),
        )  # whether the bank wraps before the next word, and before the word behind the next
        behind: tuple[Value, Value] = (address + wraps[0], Mux(wraps[0], 0, bank + 1))
        after = behind
        if self.config.bus_words > 1:
            low, high = answer.data[: len(word)], answer.data[len(word) :]
            both, following = answer.present.all(), Signal.like(address, name="address_plus_one")
            m.d.comb += [word.eq(Mux(answer.present[0], low, high)), following.eq(address + 1)]
            behind = (Mux(wraps[0], following, address), behind[1])
            later = Mux(wraps[0], 1, Mux(wraps[1], 0, bank + 2))
            after = (Mux(Mux(both, wraps.any(), wraps[0]), following, address), Mux(both, later, behind[1]))
            self._elaborate_high(m, *behind, high, both)
        else:
            m.d.comb += word.eq(answer.data)
        self._elaborate_buffers(m, address, bank, word, wraps)
        with m.If(self.answers.valid & (tag.target != Target.JOB)):  # job words can arrive between bursts of a row
            m.d.sync += [next_address.eq(after[0]), next_bank.eq(after[1])]
        m.d.comb += [self.job.valid.eq(self.answers.valid & (tag.target == Target.JOB)), self.job.payload.eq(word)]
        done = Signal(name="job_loaded")
        m.d.sync += [done.eq(self.answers.valid & answer.last & tag.done), self.loaded.eq(self.loaded + done)]
        return m

    def _elaborate_high(self, m: Module, address: Value, bank: Value, word: Value, both: Value) -> None:
        """Add the writes of a two-word beat's second word into the map buffer or weight buffer that its tag names."""
        tag = self.answers.payload.tag
        write_address = Signal.like(tag.place, name="write_address_high", reset_less=True)
        write_bank = Signal.like(tag.rest, name="write_bank_high", reset_less=True)
        write_word = Signal.like(word, name="write_word_high", reset_less=True)
        m.d.sync += [write_address.eq(address), write_bank.eq(bank), write_word.eq(word)]
        for name, target, fields in (
            ("map_write_high", Target.MAP, {"word": write_address, "bank": write_bank}),
            ("weight_write_high", Target.WEIGHTS, {"step": write_address, "block": write_bank}),
        ):
            payload = getattr(self, name).payload
            m.d.comb += [payload.data.eq(write_word), *(payload[field].eq(value) for field, value in fields.items())]
            m.d.sync += getattr(self, name).valid.eq(self.answers.valid & both & (tag.target == target))

    def _elaborate_buffers(self, m: Module, address: Signal, bank: Signal, word: Signal, wraps: Signal) -> None:
        """Add the writes of a beat's first or only word to the buffer that its tag names; drive ``wraps``.

        ``wraps`` tells whether ``bank`` is the last bank of this buffer, and whether it is the second last.
        """
        target = self.answers.payload.tag.target
        write_address = Signal.like(address, name="write_address", reset_less=True)
        write_bank = Signal.like(bank, name="write_bank", reset_less=True)
        write_word = Signal.like(word, name="write_word", reset_less=True)
        is_table = Signal(name="is_table", reset_less=True)
        m.d.sync += [
            write_address.eq(address),
            write_bank.eq(bank),
            write_word.eq(word),
            is_table.eq(target == Target.TABLES),
        ]
        index = write_address * LANES + write_bank
        for port, targets, size, fields in (
            (self.map_write, [Target.MAP], self.config.pixels, {"word": write_address, "bank": write_bank}),
            (
                self.weight_write,
                [Target.WEIGHTS],
                self.config.weight_words,
                {"step": write_address, "block": write_bank},
            ),
            (self.parameter_write, [Target.PARAMETERS, Target.TABLES], LANES, {"index": index, "tables": is_table}),
            (self.addend_write, [Target.ADDEND], 1, {"word": write_address}),
        ):
            payload = port.payload
            m.d.comb += [payload.data.eq(write_word), *(payload[field].eq(value) for field, value in fields.items())]
            m.d.sync += port.valid.eq(0)
            with m.If(Cat(target == option for option in targets).any()):
                m.d.comb += wraps.eq(Cat(bank == size - 1, bank == size - 2 if size > 1 else 0))
                m.d.sync += port.valid.eq(self.answers.valid)
