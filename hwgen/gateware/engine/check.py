"""What jobs must hold, so that the engine never begins one that would make it wait, or run, for ever.

The rules are written once (`rules`): as conditions of fields they hold for the integers of a `Job` (`faults`, which
tools ask) and for the words that are fetched (`JobCheck`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from amaranth import Cat, Module, Mux, ResetInserter, Signal, Value
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
from hwgen.gateware.lookup import delayed

#: The parts of a job in memory's order, by their names in `Job`.
PARTS: dict[str, type[Part]] = {"load": Load, "compute": Compute, "drain": Drain, "store": Store}
#: Tables that loads may write: those of `hwgen.gateware.engine.add.TABLES` and that of outputs.
TABLES = 4
#: A product of three numbers of n bits in all is 2**(n - 3) at least.
_FACTORS = 3


@dataclass(frozen=True)
class Rule:
    """A condition of some fields of a job and of its number in the program, and what to say where it is broken.

    Parameters
    ----------
    fields : tuple of str
        Those that it looks at, as ``part.name``.
    broken : callable
        Takes the number, the fields, the lengths and the products, all as integers or all as Amaranth's values.
    must : str
        What the last part of these should be.
    lengths : tuple of str
        Fields of which it needs to know the number of bits, up to the highest one.
    products : tuple of (str, int)
        Fields of earlier words, times constants.
    """

    fields: tuple[str, ...]
    broken: Callable[..., Any]
    must: str
    lengths: tuple[str, ...] = ()
    products: tuple[tuple[str, int], ...] = ()

    @property
    def looks_at(self) -> tuple[str, ...]:
        """All fields."""
        return (*self.fields, *self.lengths, *(field for field, _ in self.products))


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
    yield _fits("load", ("x_blocks", "x_rows", "x_words"), words)
    yield _fits(
        "load",
        ("x_blocks", "x_rows", "x_words"),
        engine.addend_words,
        only=("load.addend",),
        where=lambda addend: addend != 0,
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
        lambda _, words, base, tables: (
            (tables != 0) & (words != 0) & (words + base * TABLE_WORDS > TABLES * TABLE_WORDS)
        ),
        f"p_words from table p_base on must lie in {TABLES} tables of {TABLE_WORDS} words",
    )


def _compute_rules(engine: EngineConfig) -> Iterator[Rule]:
    for name in ("kernel_rows", "kernel_columns", "channels"):
        yield Rule(
            ("compute.groups", f"compute.{name}"),
            lambda _, groups, size: (groups != 0) & (size == 0),
            f"{name} must not be 0 where groups is not",
        )
    for name, value, most in (("channelwise", 0, 1), ("channelwise", 1, LANES)):
        yield _fits(
            "compute",
            ("kernel_rows", "kernel_columns", "channels"),
            most * engine.weight_steps,
            only=("compute.groups", f"compute.{name}"),
            where=lambda groups, alone, value=value: (groups != 0) & (alone == value),
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
        ("drain.blocks", "drain.pixels"),
        lambda _, blocks, pixels, held: (blocks != 0) & ((pixels > held) | (pixels + engine.pixels <= held)),
        f"pixels must be as many as its groups of {engine.pixels} hold",
        products=(("compute.groups", engine.pixels),),
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
    yield _fits("store", ("blocks", "rows", "words"), engine.output_words)


def _earlier(part: str, count: str) -> Rule:
    return Rule((f"{part}.{count}",), lambda number, jobs: jobs > number, f"{count} must count earlier jobs")


def _banks(engine: EngineConfig, part: str, some: str, names: tuple[str, ...]) -> Iterator[Rule]:
    for name in names:
        yield Rule(
            (f"{part}.{some}", f"{part}.{name}"),
            lambda _, there, bank: (there != 0) & (bank >= engine.pixels),
            f"{name} must be below {engine.pixels}",
        )


def _fits(
    part: str,
    factors: tuple[str, str, str],
    most: int,
    *,
    only: tuple[str, ...] = (),
    where: Callable[..., Any] = lambda: 1,
) -> Rule:
    """A product is no larger than a buffer, as far as lengths tell: all that exceed it eightfold are found, and none
    that don't exceed it. Without a first factor nothing is moved, and no other one is looked at."""
    longest = most.bit_length() - 1 + _FACTORS

    def broken(_: Any, *values: Any) -> Any:
        conditions, (first, second, third) = values[: len(only)], values[len(only) :]
        return where(*conditions) & (first != 0) & (first + second + third > longest)

    return Rule(
        only,
        broken,
        f"{' times '.join(factors)} must be at most {most:,}",
        lengths=tuple(f"{part}.{name}" for name in factors),
    )


def faults(engine: EngineConfig, number: int, job: Job) -> Iterator[str]:
    """What is wrong with the fields of job ``number`` of a program: whatever `JobCheck` finds there."""
    for rule in rules(engine):
        values = {field: getattr(getattr(job, field.split(".")[0]), field.split(".")[1]) for field in rule.looks_at}
        operands = [values[field] for field in rule.fields]
        operands += [values[field].bit_length() for field in rule.lengths]
        operands += [values[field] * factor for field, factor in rule.products]
        if rule.broken(number, *operands):
            pairs = [f"{field.partition('.')[2]} {value}" for field, value in values.items()]
            shown = ", ".join(pairs) if len(pairs) > 1 else pairs[0].split()[1]
            part = max(rule.looks_at, key=_word).partition(".")[0]
            yield f"job {number}: {part}.{rule.must}, not {shown}"


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
    LATENCY = 3

    def __init__(self, config: EngineConfig):
        self._config = config
        super().__init__({"word": In(stream.Signature(WORD_BITS, always_ready=True)), "fault": Out(Error)})

    @property
    def config(self) -> EngineConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        word, valid = Signal(WORD_BITS, name="job_word", reset_less=True), Signal(name="job_word_valid")
        place, number = Signal(range(Job.WORDS), name="word_index"), Signal(COUNT_BITS, name="job_index")
        sealed = valid & (place == Job.WORDS - 1)
        judged = Signal(name="verdict")
        m.d.sync += [
            word.eq(self.word.payload),
            valid.eq(self.word.valid),
            judged.eq(delayed(m, "is_last_word", sealed, 1, reset_less=False)),
        ]
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
    ) -> tuple[Value, Value]:
        """Whether the last word's checksum, and its engine, is another one."""
        crc: Any = catalog.CRC32_ISO_HDLC(data_width=WORD_BITS).create()
        m.submodules.crc = ResetInserter(judged)(crc)  # which begins anew for less than its own ``start``
        m.d.comb += [crc.valid.eq(of_parts), crc.data.eq(word)]
        damaged, foreign = Signal(4, name="damaged_parts", reset_less=True), Signal(name="is_foreign", reset_less=True)
        differ = crc.crc ^ word[SEAL_BITS:] ^ number
        size = len(differ) // len(damaged)
        m.d.sync += [
            damaged.eq(Cat(differ[size * part : size * (part + 1)].any() for part in range(len(damaged)))),
            foreign.eq(word[:SEAL_BITS] != engine_seal(self.config)),
        ]
        late = delayed(m, "is_damaged", damaged.any(), 1)
        return late, delayed(m, "is_foreign", foreign, 1)

    def _elaborate_rules(
        self, m: Module, word: Signal, valid: Signal, place: Signal, number: Signal, judged: Signal
    ) -> Signal:
        """Whether a rule is broken: each is looked at with the last word that it needs; what it needs of earlier ones
        is kept."""
        operands = _Operands(m, word, place)
        here = delayed(m, "job_word_valid", valid, 1, reset_less=False)
        bad = Signal(name="is_rule_broken")
        broken = []
        for count, rule in enumerate(rules(self.config)):
            last = max(_word(field) for field in rule.looks_at)
            values = [operands.field(field, last) for field in rule.fields]
            values += [operands.length(field, last) for field in rule.lengths]
            values += [operands.product(field, factor) for field, factor in rule.products]
            found = Signal(name=f"rule_{count}_broken")
            m.d.sync += found.eq(here & (operands.place == last) & rule.broken(number, *values))
            broken.append(found)
        with m.If(judged):
            m.d.sync += bad.eq(0)
        with m.Elif(Cat(broken).any()):
            m.d.sync += bad.eq(1)
        return bad


class _Operands:
    """What rules look at, a cycle after the word: of that word, or kept of earlier ones. Equal ones are made once."""

    def __init__(self, m: Module, word: Signal, place: Signal) -> None:
        self._m, self._now = m, word
        self._word = Signal.like(word, name="job_word_delayed", reset_less=True)
        self.place = Signal.like(place, name="word_index_delayed", reset_less=True)
        m.d.sync += [self._word.eq(word), self.place.eq(place)]
        self._made: dict[Any, Signal] = {}

    def field(self, field: str, last: int) -> Value:
        return self._kept(field, _view(field, self._word), last, field)

    def length(self, field: str, last: int) -> Value:
        first, width = _bits(field)
        made = self._made.get((first, width))
        if made is None:
            made = self._made[first, width] = Signal(
                range(width + 1), name=f"bit_length_{first}_{width}", reset_less=True
            )
            self._m.d.sync += made.eq(_length(self._now[first : first + width]))
        return self._kept(f"length of {field}", made, last, field)

    def product(self, field: str, factor: int) -> Value:
        value = self.field(field, -1)
        product = Signal(len(value) + factor.bit_length(), name=f"{field.replace('.', '_')}_product", reset_less=True)
        parts = [value << bit for bit in range(factor.bit_length()) if factor >> bit & 1]
        self._m.d.sync += product.eq(sum(parts[1:], parts[0]))  # no slice for this
        return product

    def _kept(self, key: str, value: Value, last: int, field: str) -> Value:
        if _word(field) == last:
            return value
        if key not in self._made:
            name = f"stored_{key.replace('.', '_').replace(' ', '_')}"
            self._made[key] = Signal(len(value), name=name, reset_less=True)
            with self._m.If(self.place == _word(field)):
                self._m.d.sync += self._made[key].eq(value)
        return self._made[key]


def _length(value: Value) -> Value:
    """Bits up to the highest one."""
    if len(value) == 1:
        return value
    half = 1 << (len(value) - 1).bit_length() - 1
    low, high = value[:half], value[half:]
    return Mux(high.any(), half + _length(high), _length(low))


def _word(field: str) -> int:
    """The word of a job in which a field lies."""
    part, name = field.split(".")
    before = list(PARTS)[: list(PARTS).index(part)]
    return sum(PARTS[each].WORDS for each in before) + PARTS[part].layout()[name].offset // WORD_BITS


def _bits(field: str) -> tuple[int, int]:
    """The first bit of a field in its word, and how many there are."""
    part, name = field.split(".")
    place = PARTS[part].layout()[name]
    return place.offset % WORD_BITS, place.width


def _view(field: str, word: Signal) -> Value:
    """A field in its word."""
    first, width = _bits(field)
    return word[first : first + width]
