"""Load unit of the engine: requests the operands of jobs from memory, and writes them into the buffers."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine.bursts import Bursts, request_of, word_address
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, TABLE_WORDS, EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, Load
from hwgen.gateware.engine.port import Target, answer_layout, read_layout
from hwgen.gateware.engine.reuse_buffer import map_side
from hwgen.gateware.engine.weight_buffer import weight_side
from hwgen.gateware.engine.writes import addend_side
from hwgen.gateware.lookup import named

#: Tuple of each `Target` whose words are read in beats as wide as the bus; other words come one per beat.
WIDE_TARGETS = (Target.MAP, Target.WEIGHTS, Target.ADDEND)


class LoadUnit(ConfiguredComponent[EngineConfig]):
    """Load unit of the engine: requests the jobs' operands (maps, weights, parameters) from memory, in order.

    Each is requested as soon as its buffer words are free.

    Parameters
    ----------
    config : EngineConfig
    has_other : bool
        Whether another load unit fills the same buffers.

    Members
    -------
    part : In(stream of Load)
        Load parts of the jobs. A part is accepted when its last burst is about to be requested.
    computed, stored : In(24)
        Numbers of computed and stored jobs.
    others_loaded : In(24), only if there is another load unit
        Number of jobs that the other load unit has loaded. A part with a map waits for all earlier ones, so that the
        two units never write into the same buffer at once.
    request : Out(stream of read_layout(config))
        Read bursts.

    Latency and throughput
        docs/reference/engine.md, "When bursts are ready".
    """

    def __init__(self, config: EngineConfig, *, has_other: bool = False):
        self._has_other = has_other
        super().__init__(
            config,
            {
                "part": In(stream.Signature(Load.layout(config.variant))),
                "computed": In(COUNT_BITS),
                "stored": In(COUNT_BITS),
                **({"others_loaded": In(COUNT_BITS)} if has_other else {}),
                "request": Out(stream.Signature(read_layout(config))),
            },
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bursts = bursts = Bursts(self.config)
        part, request = self.part.payload, self._elaborate_request(m)
        target, last_box = self._elaborate_boxes(m, bursts)
        met, take = Signal(name="conditions_met"), Signal(name="burst_transfer")
        m.d.comb += [
            take.eq(bursts.o.valid & bursts.o.ready),
            bursts.o.ready.eq(met & ~self.request.valid),
            self.part.ready.eq(bursts.i.ready & last_box),
        ]
        waiting = self.part.valid & ~self.part.ready
        has_turn = self._other_has_loaded(m) if self._has_other else 1
        m.d.sync += met.eq(
            waiting & (part.wait_computed <= self.computed) & (part.wait_stored <= self.stored) & has_turn
        )
        burst = bursts.o.payload
        is_wide = named(Cat(target == option for option in WIDE_TARGETS).any(), "is_wide")
        run = request_of(self.config, burst.run, is_wide)
        deal = _CoreChoice(m, self.config, part, burst, target, take) if self.config.has_cores else None
        with m.If(take):
            m.d.sync += [
                self.request.valid.eq(1),
                *(request.run[name].eq(value) for name, value in run.items()),
                request.tag.target.eq(Mux(burst.run.words == 0, Target.NOTHING, target) if deal else target),
                request.tag.fresh.eq(burst.new_row),
                request.tag.done.eq(burst.last & last_box),
            ]
        with m.Elif(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        if deal:
            with m.If(take):
                m.d.sync += request.tag.cores.eq(deal.cores)
        self._elaborate_addresses(m, burst, take, target, deal, request.tag)
        return m

    def _elaborate_request(self, m: Module) -> Any:
        """Drive the output with a read request, and return the register that holds it until it is accepted.

        The output subtracts the flag `_precedes` from its buffer address.
        """
        if not self.config.lane_bits:
            return self.request.payload
        held = Signal.like(self.request.payload, name="held_request")
        self._precedes = Signal(name="precedes_word")
        # The subtraction comes after the registers, which shortens the path.
        m.d.comb += [
            self.request.payload.eq(held),
            self.request.payload.tag.place.eq(held.tag.place - self._precedes),
        ]
        return held

    def _other_has_loaded(self, m: Module) -> Value:
        """Return a bit: the other load unit has loaded all earlier jobs, or the current job loads no map."""
        jobs = Signal(COUNT_BITS, name="job_index")
        with m.If(self.part.valid & self.part.ready):
            m.d.sync += jobs.eq(jobs + 1)
        return (self.part.payload.x_blocks == 0) | (jobs <= self.others_loaded)

    def _elaborate_boxes(self, m: Module, bursts: Bursts) -> tuple[Any, Signal]:
        """Select a job's next memory region (map, weights, parameters); return its `Target` and a flag of the last."""
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
        weights = named(part.w_steps * self.config.weight_words, "weight_words")
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
            if self.config.has_cores:
                m.d.comb += [box.teams.eq(part.x_teams), box.team_stride.eq(word_address(part.x_team_stride))]
                m.d.comb += [getattr(box, name).eq(part[f"x_{name}"]) for name in ("top", "advance", "height")]
        with m.Elif(has_weights & ~past[1]):
            m.d.comb += [
                target.eq(Target.WEIGHTS),
                last_box.eq(~has_parameters),
                box.address.eq(word_address(part.w_address)),
                box.words.eq(weights),
            ]
            if self.config.has_cores:
                m.d.comb += [box.block_stride.eq(weights), box.blocks.eq(Mux(part.w_blocks == 0, 1, part.w_blocks))]
        with m.Elif(has_parameters):
            m.d.comb += [
                target.eq(Mux(part.tables, Target.TABLES, Target.PARAMETERS)),
                last_box.eq(1),
                box.address.eq(word_address(part.p_address)),
                box.words.eq(part.p_words),
            ]
            if self.config.has_cores:
                with m.If(part.p_dealt):
                    m.d.comb += [box.words.eq(LANES), box.block_stride.eq(LANES), box.blocks.eq(part.p_words[3:])]
        with m.Else():
            m.d.comb += [last_box.eq(1), box.blocks.eq(0)]
        with m.If(bursts.i.ready & bursts.i.valid):
            m.d.sync += past.eq(Mux(last_box, 0, Mux(has_map & ~past[0], 0b01, 0b11)))
        return target, last_box

    def _elaborate_addresses(
        self, m: Module, burst: data.View, take: Signal, target: Any, deal: _CoreChoice | None, tag: Any
    ) -> None:
        """Add the destination (buffer address and bank) of the first burst of each row of a memory box.

        The next row's address is known two cycles ahead. The tag has the position of the first beat's first lane, which
        is before the row if the row begins in another lane. A box's own position is registered: its box is considered
        two cycles before its first burst.
        """
        part = self.part.payload
        begin_place, begin_rest = (
            Signal.like(tag.place, name="box_address", reset_less=True),
            Signal.like(tag.rest, name="box_bank", reset_less=True),
        )
        row_place, row_rest = (
            Signal.like(tag.place, name="row_address", reset_less=True),
            Signal.like(tag.rest, name="row_bank", reset_less=True),
        )
        block_place, next_block = (
            Signal(16, name=name, reset_less=True) for name in ("block_address", "next_block_address")
        )
        next_place = Signal.like(row_place, name="next_row_address", reset_less=True)
        next_rest = Signal.like(row_rest, name="next_row_bank", reset_less=True)
        m.d.sync += begin_rest.eq(0)
        with m.Switch(target):
            with m.Case(Target.PARAMETERS):
                m.d.sync += begin_place.eq(part.p_base)
            with m.Case(Target.TABLES):
                m.d.sync += begin_place.eq(part.p_base * (TABLE_WORDS // LANES))
            with m.Case(Target.MAP):
                m.d.sync += [begin_place.eq(part.x_base), begin_rest.eq(part.x_first)]
            with m.Case(Target.ADDEND):
                m.d.sync += begin_place.eq(part.x_base)
            with m.Case(Target.WEIGHTS):
                m.d.sync += begin_place.eq(part.w_base)
        rest = Signal(range(2 * self.config.pixels), name="row_bank_sum")
        wraps = named(rest >= self.config.pixels, "bank_wraps")
        m.d.comb += rest.eq(row_rest + part.x_pitch_rest)
        m.d.sync += [
            next_block.eq(block_place + (Mux(deal.block_stays, 0, deal.plane) if deal else part.x_plane)),
            next_place.eq(row_place + part.x_pitch_words + wraps),
            next_rest.eq(Mux(wraps, rest - self.config.pixels, rest)),
        ]
        burst_place, first = Signal.like(tag.place, name="burst_address"), Signal.like(tag.rest, name="burst_bank")
        m.d.comb += [burst_place.eq(next_place), first.eq(next_rest)]
        with m.If(burst.new_team if deal else burst.new_box):
            m.d.comb += [burst_place.eq(begin_place), first.eq(begin_rest)]
        with m.Elif(burst.new_block):
            m.d.comb += [burst_place.eq(next_block), first.eq(begin_rest)]
        lane_place, is_before, lane_rest = self._elaborate_first_lane(m, burst, target, burst_place, first)
        with m.If(take & burst.new_row):
            m.d.sync += [
                row_place.eq(burst_place),
                row_rest.eq(first),
                tag.place.eq(lane_place),
                tag.rest.eq(lane_rest),
            ]
            if self.config.lane_bits:
                m.d.sync += self._precedes.eq(is_before)
            with m.If(burst.new_block):
                m.d.sync += block_place.eq(burst_place)

    def _elaborate_first_lane(
        self, m: Module, burst: data.View, target: Any, address: Signal, bank: Signal
    ) -> tuple[Value, Value, Value]:
        """Return a triple for a row's first bus beat: buffer address, bit that subtracts 1 from it, and bank.

        ``address`` and ``bank`` belong to the row's first word; the beat may begin before this word.

        Steps of weights, and words of the addend buffer, are spread over banks.
        """
        config = self.config
        bits, copy_bits = config.lane_bits, config.weight_copies.bit_length() - 1
        if not bits:
            return address, Const(0), bank
        row, first = Signal.like(address, name="first_word_address"), Signal.like(bank, name="first_word_bank")
        most = max(config.pixels, config.weight_banks, config.bus_words)
        lanes_before, banks = Signal(bits, name="lanes_before"), Signal(range(most + 1), name="target_banks")
        box_target, is_wide = Signal(Target, name="box_target"), Signal(name="is_box_wide")
        m.d.sync += [box_target.eq(target), is_wide.eq(Cat(target == option for option in WIDE_TARGETS).any())]
        m.d.comb += [row.eq(address), first.eq(bank), banks.eq(config.pixels)]
        with m.Switch(box_target):
            with m.Case(Target.ADDEND):
                m.d.comb += [row.eq(address[bits:]), first.eq(address[:bits]), banks.eq(config.bus_words)]
            with m.Case(Target.WEIGHTS):
                m.d.comb += [row.eq(address[copy_bits:]), first.eq(address[:copy_bits] * config.weight_words)]
                m.d.comb += banks.eq(config.weight_banks)
        m.d.comb += lanes_before.eq(burst.run.address[:bits] & is_wide.replicate(bits))
        is_before = named(first < lanes_before, "is_before_address")
        # All results are computed in parallel with the comparison, and then chosen, which shortens the path.
        last_banks = named(first + (banks - lanes_before), "bank_before_address")
        return row, is_before, Mux(is_before, last_banks, first - lanes_before)


class _CoreChoice:
    """Circuit that chooses, on an engine of several cores, the cores whose buffers receive a burst's words.

    Parameters
    ----------
    part : View of Load
        Load part that is being requested.
    burst : View of box_burst_layout
    target : Signal
        Target of the burst's box.
    take : Signal
        Whether the burst is requested in this cycle.
    """

    def __init__(
        self, m: Module, config: EngineConfig, part: data.View, burst: data.View, target: Any, take: Signal
    ) -> None:
        cores = range(config.cores)
        is_map = named(Cat(target == option for option in (Target.MAP, Target.ADDEND)).any(), "is_map_box")
        is_weights = named(target == Target.WEIGHTS, "is_weight_box")
        dealt, has_teams = Signal(name="is_dealt", reset_less=True), Signal(name="has_teams", reset_less=True)
        #: Distance, in buffer words, between the successive blocks that one core receives.
        self.plane = Signal(16, name="box_plane", reset_less=True)
        m.d.sync += [
            dealt.eq(Mux(is_map, part.x_dealt, Mux(is_weights, part.w_blocks != 0, part.p_dealt))),
            has_teams.eq(is_map & (part.x_teams != 0)),
            self.plane.eq(Mux(is_map, part.x_plane, Mux(is_weights, part.w_steps, 1))),
        ]
        team, member = Signal(cores, name="team", reset_less=True), Signal(cores, name="member", reset_less=True)
        last_member = Signal(cores, name="last_member", reset_less=True)
        next_team, next_member = Signal.like(team, name="burst_team"), Signal.like(member, name="burst_member")
        # Bursts are two cycles apart, so what follows a team and a member is in registers before it is needed.
        team_after, member_after = (
            Signal(cores, name=name, reset_less=True) for name in ("team_after", "member_after")
        )
        is_last = named(member == last_member, "is_last_member")
        m.d.sync += [
            last_member.eq(((1 << part.members) - 1)[: len(member)]),
            team_after.eq(team + 1),
            member_after.eq(Mux(is_last, 0, member + 1)),
        ]
        m.d.comb += [next_team.eq(team), next_member.eq(member)]
        with m.If(burst.new_box):
            m.d.comb += [next_team.eq(0), next_member.eq(0)]
        with m.Elif(burst.new_team):
            m.d.comb += [next_team.eq(team_after), next_member.eq(0)]
        with m.Elif(burst.new_block & dealt):
            m.d.comb += next_member.eq(member_after)
        with m.If(take):
            m.d.sync += [team.eq(next_team), member.eq(next_member)]
        #: Flag: the next block goes to the same buffer address as the current one, but to another core.
        self.block_stays = named(dealt & ~is_last, "block_stays")
        #: Cores that receive the burst's words, as a mask with one bit per core.
        self.cores = Signal(config.cores, name="burst_cores")
        for core in cores:
            of_team = (Cat(core >> bits == next_team for bits in range(len(team) + 1)) >> part.members)[0]
            of_member = (core & last_member) == next_member
            m.d.comb += self.cores[core].eq((~has_teams | of_team) & (~dealt | of_member))


def fill_streams(config: EngineConfig) -> dict[str, stream.Signature]:
    """Return a dict of signatures of the streams that fill the engine's map, weight and addend buffers, by port name.

    With a map memory, beats of maps are as wide as its rows.
    """
    rows = config.row_engine
    sides = {"map_write": map_side(rows), "weight_write": weight_side(config), "addend_write": addend_side(rows)}
    return {name: stream.Signature(side.beat, always_ready=True) for name, side in sides.items()}


class PlacementUnit(ConfiguredComponent[EngineConfig]):
    """Circuit that writes words read from memory into the engine's buffers, and counts loaded jobs.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    answers : In(stream of answer_layout(config), always ready)
        Words from memory.
    job : Out(stream of 64 bits, always ready)
        Words of jobs, for the fetch unit.
    map_write, weight_write, addend_write : Out(stream, always ready)
        Writes of all words of a beat to the buffers (`fill_streams`).
    parameter_write : Out(stream, always ready)
        Writes of single words of parameters and tables (`PARAMETER_LAYOUT`).
    loaded : Out(24)
        Number of loaded jobs.
    cores : Out(number of cores), only with several cores
        Cores whose buffers are written.

    Latency and throughput
        An answer's words in cycle c are written into a buffer in c + 1; a job's word leaves in c. ``loaded`` increments
        in c + 2 if the word is the last one of a job.
    """

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "answers": In(stream.Signature(answer_layout(config), always_ready=True)),
                "job": Out(stream.Signature(8 * LANES, always_ready=True)),
                "map_write": Out(stream.Signature(map_side(config).beat, always_ready=True)),
                "weight_write": Out(stream.Signature(weight_side(config).beat, always_ready=True)),
                "addend_write": Out(stream.Signature(addend_side(config).beat, always_ready=True)),
                "parameter_write": Out(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                "loaded": Out(COUNT_BITS),
                **({"cores": Out(config.cores)} if config.has_cores else {}),
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
        wraps, bank_after = self._elaborate_next(m, bank)
        with m.If(self.answers.valid & (tag.target != Target.JOB)):  # job words can arrive between bursts of a row
            m.d.sync += [next_address.eq(address + wraps), next_bank.eq(bank_after)]
        self._elaborate_buffers(m, address, bank)
        m.d.comb += [
            self.job.valid.eq(self.answers.valid & (tag.target == Target.JOB)),
            self.job.payload.eq(answer.word),
        ]
        done = Signal(name="job_loaded")
        m.d.sync += [done.eq(self.answers.valid & answer.last & tag.done), self.loaded.eq(self.loaded + done)]
        return m

    def _elaborate_next(self, m: Module, bank: Signal) -> tuple[Signal, Signal]:
        """Return a pair for the beat after this one: bit that its buffer address is one higher, and its bank index.

        A wide beat passes as many banks as it has words.
        """
        config, target = self.config, self.answers.payload.tag.target
        wraps, after = Signal(name="bank_wraps"), Signal.like(bank, name="bank_after")
        banks = {  # number of banks, and number of words of a beat
            Target.MAP: (config.pixels, config.bus_words),
            Target.WEIGHTS: (config.weight_banks, config.bus_words),
            Target.ADDEND: (config.bus_words, config.bus_words),
        }
        with m.Switch(target):
            for option in Target:
                # Beats of parameters and tables have one word. Parameters go to one bank per map of a block in turn.
                num_banks, beat_words = banks.get(option, (LANES, 1))
                last_start = num_banks - beat_words
                with m.Case(option):
                    m.d.comb += wraps.eq(bank >= last_start)
                    m.d.comb += after.eq(Mux(wraps, bank - last_start, bank + beat_words))
        return wraps, after

    def _elaborate_buffers(self, m: Module, address: Signal, bank: Signal) -> None:
        """Add the registered writes of a beat's words into the buffer that its tag names."""
        answer = self.answers.payload
        target = answer.tag.target
        write_address = Signal.like(address, name="write_address", reset_less=True)
        write_bank = Signal.like(bank, name="write_bank", reset_less=True)
        present = Signal.like(answer.present, name="write_present", reset_less=True)
        words = Signal.like(answer.data, name="write_words", reset_less=True)
        word = Signal.like(answer.word, name="write_word", reset_less=True)
        is_table = Signal(name="is_table", reset_less=True)
        m.d.sync += [
            write_address.eq(address),
            write_bank.eq(bank),
            present.eq(answer.present),
            words.eq(answer.data),
            word.eq(answer.word),
            is_table.eq(target == Target.TABLES),
        ]
        if self.config.has_cores:
            m.d.sync += self.cores.eq(answer.tag.cores)
        for port, option in (
            (self.map_write, Target.MAP),
            (self.weight_write, Target.WEIGHTS),
            (self.addend_write, Target.ADDEND),
        ):
            beat = port.payload
            m.d.comb += [beat.bank.eq(write_bank), beat.word.eq(write_address)]
            m.d.comb += [beat.present.eq(present), beat.data.eq(words)]
            m.d.sync += port.valid.eq(self.answers.valid & (target == option))
        entry = self.parameter_write.payload
        m.d.comb += [entry.index.eq(write_address * LANES + write_bank), entry.data.eq(word), entry.tables.eq(is_table)]
        is_parameter = named(
            Cat(target == option for option in (Target.PARAMETERS, Target.TABLES)).any(), "is_parameter"
        )
        m.d.sync += self.parameter_write.valid.eq(self.answers.valid & is_parameter)
