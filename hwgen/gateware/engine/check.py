"""What jobs must hold, so that the engine never begins one that would make it wait, or run, for ever.

The rules are written once (`rules`): as conditions of fields they hold for the integers of a `Job` (`faults`, which
tools ask) and for the words that are fetched (`JobCheck`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.crc import catalog
from amaranth.lib.wiring import In, Out

from hwgen.gateware.engine.config import LANES, STRIDES, TABLE_WORDS, EngineConfig
from hwgen.gateware.engine.job import (
    COUNT_BITS,
    SEAL_BITS,
    WORD_BITS,
    Compute,
    Drain,
    Job,
    Load,
    Part,
    Store,
    engine_seal,
)
from hwgen.gateware.engine.port import Error

#: The parts of a job in memory's order, by their names in `Job`.
PARTS: dict[str, type[Part]] = {"load": Load, "compute": Compute, "drain": Drain, "store": Store}
#: Tables that loads may write: those of `hwgen.gateware.engine.add.TABLES` and that of outputs.
TABLES = 4
#: A product of three numbers of n bits in all is 2**(n - 3) at least.
_FACTORS = 3


@dataclass(frozen=True)
class Rule:
    """A condition of some fields of a job, of its number in the program, and what to say where it is broken.

    ``broken`` takes the number and the fields, as integers or as Amaranth's values.
    """

    fields: tuple[str, ...]
    broken: Callable[..., Any]
    must: str


@cache
def rules(engine: EngineConfig) -> tuple[Rule, ...]:
    """Of all jobs of an engine."""
    return (*_load_rules(engine), *_compute_rules(engine), *_drain_rules(engine), *_store_rules(engine))


def _load_rules(engine: EngineConfig) -> Iterator[Rule]:
    for count in ("wait_computed", "wait_stored"):
        yield _earlier("load", count)
    yield Rule(
        ("load.x_blocks", "load.x_rows", "load.x_words"),
        lambda _, blocks, rows, words: (blocks != 0) & ((rows == 0) | (words == 0)),
        "x_rows and x_words must not be 0 where x_blocks is not",
    )
    words = engine.pixels * engine.map_words
    yield Rule(
        ("load.x_blocks", "load.x_rows", "load.x_words"),
        lambda _, *sizes: _exceed(sizes, words),
        f"x_blocks times x_rows times x_words must be at most {words:,}",
    )
    yield Rule(
        ("load.addend", "load.x_blocks", "load.x_rows", "load.x_words"),
        lambda _, addend, *sizes: (addend != 0) & _exceed(sizes, engine.addend_words),
        f"x_blocks times x_rows times x_words must be at most {engine.addend_words:,} with addend",
    )
    yield from _banks(engine, "load", "x_blocks", ("x_first", "x_pitch_rest"))
    yield Rule(
        ("load.w_steps",),
        lambda _, steps: steps > engine.weight_steps,
        f"w_steps must be at most {engine.weight_steps:,}",
    )
    most = LANES * engine.parameter_words
    yield Rule(
        ("load.p_words", "load.tables"),
        lambda _, words, tables: (tables == 0) & (words > most),
        f"p_words must be at most {most:,}",
    )
    yield Rule(
        ("load.p_words", "load.p_base", "load.tables"),
        lambda _, words, base, tables: (tables != 0) & (words + base * TABLE_WORDS > TABLES * TABLE_WORDS),
        f"p_words from table p_base on must lie in {TABLES} tables of {TABLE_WORDS} words",
    )


def _compute_rules(engine: EngineConfig) -> Iterator[Rule]:
    for name in ("kernel_rows", "kernel_columns", "channels"):
        yield Rule(
            ("compute.groups", f"compute.{name}"),
            lambda _, groups, size: (groups != 0) & (size == 0),
            f"{name} must not be 0 where groups is not",
        )
    yield Rule(
        ("compute.groups", "compute.kernel_rows", "compute.kernel_columns", "compute.channels", "compute.channelwise"),
        lambda _, groups, rows, columns, channels, alone: (
            (groups != 0) & (alone == 0) & _exceed((rows, columns, channels), engine.weight_steps)
        ),
        f"kernel_rows times kernel_columns times channels must be at most {engine.weight_steps:,}",
    )
    yield Rule(
        ("compute.groups", "compute.kernel_rows", "compute.kernel_columns", "compute.channels", "compute.channelwise"),
        lambda _, groups, rows, columns, channels, alone: (
            (groups != 0) & (alone != 0) & _exceed((rows, columns, channels), LANES * engine.weight_steps)
        ),
        f"kernel_rows times kernel_columns times channels must be at most {LANES * engine.weight_steps:,} channelwise",
    )
    yield Rule(
        ("compute.groups", "compute.stride"),
        lambda _, groups, stride: (groups != 0) & ((stride < STRIDES[0]) | (stride > STRIDES[-1])),
        f"stride must be from {STRIDES[0]} to {STRIDES[-1]}",
    )
    yield Rule(
        ("compute.groups", "compute.first", "compute.last"),
        lambda _, groups, first, last: ((first == 0) | (last == 0)) & (groups > engine.slots),
        f"groups must be at most {engine.slots} in a chunk of several",
    )
    yield from _banks(engine, "compute", "groups", ("start_rest", "column_rest", "row_rest"))


def _drain_rules(engine: EngineConfig) -> Iterator[Rule]:
    yield _earlier("drain", "wait_stored")
    yield Rule(
        ("compute.groups", "compute.last", "drain.blocks"),
        lambda _, groups, last, blocks: ((groups != 0) & (last != 0)) != (blocks != 0),
        "blocks must not be 0 where sums are complete, and be 0 where none are",
    )
    yield Rule(("drain.blocks",), lambda _, blocks: blocks > engine.blocks, f"blocks must be at most {engine.blocks}")
    yield Rule(
        ("compute.groups", "drain.blocks", "drain.pixels"),
        lambda _, groups, blocks, pixels: (
            (blocks != 0) & ((pixels > groups * engine.pixels) | (pixels + engine.pixels <= groups * engine.pixels))
        ),
        f"pixels must be as many as its groups of {engine.pixels} hold",
    )
    yield Rule(
        ("drain.pool", "drain.columns"),
        lambda _, pool, columns: (pool != 0) & (columns == 0),
        "columns must not be 0 with pool",
    )


def _store_rules(engine: EngineConfig) -> Iterator[Rule]:
    yield Rule(
        ("store.blocks", "store.rows", "store.words"),
        lambda _, blocks, rows, words: (blocks != 0) & ((rows == 0) | (words == 0)),
        "rows and words must not be 0 where blocks is not",
    )
    yield Rule(
        ("store.blocks", "store.rows", "store.words"),
        lambda _, *sizes: _exceed(sizes, engine.output_words),
        f"blocks times rows times words must be at most {engine.output_words:,}",
    )


def _earlier(part: str, count: str) -> Rule:
    return Rule((f"{part}.{count}",), lambda number, jobs: jobs > number, f"{count} must count earlier jobs")


def _banks(engine: EngineConfig, part: str, some: str, names: tuple[str, ...]) -> Iterator[Rule]:
    for name in names:
        yield Rule(
            (f"{part}.{some}", f"{part}.{name}"),
            lambda _, there, bank: (there != 0) & (bank >= engine.pixels),
            f"{name} must be below {engine.pixels}",
        )


def _exceed(factors: tuple[Any, ...], most: int) -> Any:
    """Whether a product of three numbers exceeds a limit: for integers exactly; for values by their lengths, which
    tells all that exceed it eightfold, and none that don't."""
    if all(isinstance(factor, int) for factor in factors):
        return factors[0] * factors[1] * factors[2] > most
    first, second, third = (_length(factor) for factor in factors)
    return first + second + third > most.bit_length() - 1 + _FACTORS


def _length(value: Value) -> Value:
    """Bits up to the highest one."""
    found: Value = Value.cast(0)
    for bit in range(len(value)):
        found = Mux(value[bit], bit + 1, found)
    return found


def faults(engine: EngineConfig, number: int, job: Job) -> Iterator[str]:
    """What is wrong with the fields of job ``number`` of a program."""
    for rule in rules(engine):
        values = [getattr(getattr(job, part), name) for part, name in (field.split(".") for field in rule.fields)]
        if rule.broken(number, *values):
            named = (field.partition(".")[2] for field in rule.fields)
            pairs = [f"{name} {value}" for name, value in zip(named, values, strict=True)]
            shown = ", ".join(pairs) if len(pairs) > 1 else f"{values[0]}"
            yield f"job {number}: {rule.fields[-1].partition('.')[0]}.{rule.must}, not {shown}"


class JobCheck(wiring.Component):
    """Looks at the words of jobs as they are fetched: at their fields and at their seals.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    word : In(stream of 64 bits, always ready)
        Jobs of a program, one after the other, at least three cycles apart.
    fault : Out(Error)
        For a cycle, `LATENCY` cycles after a job's last word: what is wrong with it. ``DAMAGED`` goes before
        ``FOREIGN``, and that before ``FIELD``.
    """

    #: Cycles from a job's last word to what is wrong with it.
    LATENCY = 2

    def __init__(self, config: EngineConfig):
        self._config = config
        super().__init__({"word": In(stream.Signature(WORD_BITS, always_ready=True)), "fault": Out(Error)})

    @property
    def config(self) -> EngineConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        word, valid = Signal(WORD_BITS, reset_less=True), Signal()
        place, number = Signal(range(Job.WORDS)), Signal(COUNT_BITS)
        sealed = valid & (place == Job.WORDS - 1)
        judged = Signal()
        m.d.sync += [word.eq(self.word.payload), valid.eq(self.word.valid), judged.eq(sealed)]
        with m.If(valid):
            m.d.sync += place.eq(Mux(sealed, 0, place + 1))
        with m.If(judged):
            m.d.sync += number.eq(number + 1)
        damaged, foreign = self._elaborate_seal(m, word, valid & ~sealed, number, judged)
        bad = self._elaborate_rules(m, word, valid, place, number, judged)
        with m.If(judged):
            with m.If(damaged):
                m.d.comb += self.fault.eq(Error.DAMAGED)
            with m.Elif(foreign):
                m.d.comb += self.fault.eq(Error.FOREIGN)
            with m.Elif(bad):
                m.d.comb += self.fault.eq(Error.FIELD)
        return m

    def _elaborate_seal(
        self, m: Module, word: Signal, of_parts: Value, number: Signal, judged: Signal
    ) -> tuple[Signal, Signal]:
        """Whether the last word's checksum, and its engine, is another one."""
        crc: Any = catalog.CRC32_ISO_HDLC(data_width=WORD_BITS).create()
        m.submodules.crc = crc
        begin = Signal(init=1)  # with the number of the job to come
        damaged, foreign = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            begin.eq(judged),
            damaged.eq(crc.crc != word[SEAL_BITS:]),
            foreign.eq(word[:SEAL_BITS] != engine_seal(self.config)),
        ]
        m.d.comb += [crc.start.eq(begin), crc.valid.eq(begin | of_parts), crc.data.eq(Mux(begin, number, word))]
        return damaged, foreign

    def _elaborate_rules(
        self, m: Module, word: Signal, valid: Signal, place: Signal, number: Signal, judged: Signal
    ) -> Signal:
        """Whether a rule is broken: each is looked at with the last word that it needs; earlier fields are kept."""
        bad = Signal()
        broken = []
        kept: dict[str, Signal] = {}
        for count, rule in enumerate(rules(self.config)):
            last = max(_word(field) for field in rule.fields)
            values = []
            for field in rule.fields:
                here = _view(field, word)
                if _word(field) != last:
                    if field not in kept:
                        kept[field] = Signal.like(here, name=f"kept_{field.replace('.', '_')}", reset_less=True)
                        with m.If(place == _word(field)):
                            m.d.sync += kept[field].eq(here)
                    here = kept[field]
                values.append(here)
            found = Signal(name=f"broken_{count}")
            m.d.sync += found.eq(valid & (place == last) & rule.broken(number, *values))
            broken.append(found)
        with m.If(judged):
            m.d.sync += bad.eq(0)
        for found in broken:
            with m.If(found):
                m.d.sync += bad.eq(1)
        return bad


def _word(field: str) -> int:
    """The word of a job in which a field lies."""
    part, name = field.split(".")
    before = list(PARTS)[: list(PARTS).index(part)]
    return sum(PARTS[each].WORDS for each in before) + PARTS[part].layout()[name].offset // WORD_BITS


def _view(field: str, word: Signal) -> Value:
    """A field in its word."""
    part, name = field.split(".")
    place = PARTS[part].layout()[name]
    first = place.offset % WORD_BITS
    return word[first : first + place.width]
