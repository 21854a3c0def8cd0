"""Validity rules for the fields of the engine's jobs (descriptors), which software and hardware check.

A program that violates a rule could make the engine wait or run forever.

The rules are written once (`rules`), as conditions on fields. `faults` applies them to the integers of a `Job`, in
software. `JobCheck` applies them to the words that the engine fetches, in hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from amaranth import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import stream
from amaranth.lib.crc import catalog
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine.config import CHAIN, LANES, STRIDES, TABLE_WORDS, EngineConfig
from hwgen.gateware.engine.fixed_unit import LOOKUP_TABLE
from hwgen.gateware.engine.job import COUNT_BITS, SEAL_BITS, WORD_BITS, Job, engine_seal, field_offsets, job_words
from hwgen.gateware.engine.port import Error
from hwgen.gateware.lookup import delayed, named

#: Number of lookup tables that a job can load: three for additions of maps (`shares.TABLES`), and the activation table.
TABLES = 4


@dataclass(frozen=True)
class JobFieldRule:
    """Validity rule for fields of an engine's job (descriptor), with the error text for a violation.

    Parameters
    ----------
    fields : tuple of str
        Fields that the rule reads, as ``part.name``.
    broken : callable
        Condition of a violation. Takes the job's index, then the fields and the products, either all as integers or all
        as Amaranth values.
    must : str
        Text that follows the name of the last part, for example "stride must be from 1 to 4".
    lengths : tuple of str
        Fields whose bit lengths the rule adds. If there are any, a violation also needs a sum above ``max_length``, and
        a first field that is not 0.
    max_length : int
        Largest sum of bit lengths that is always permitted.
    products : tuple of (str, int)
        Fields of earlier words, each with a constant factor.
    """

    fields: tuple[str, ...]
    broken: Callable[..., Any]
    must: str
    lengths: tuple[str, ...] = ()
    max_length: int = 0
    products: tuple[tuple[str, int], ...] = ()

    @property
    def read_fields(self) -> tuple[str, ...]:
        """Tuple of names (``part.name``) of all job fields that the rule reads, as values, bit lengths or factors."""
        return (*self.fields, *self.lengths, *(field for field, _ in self.products))


@cache
def rules(engine: EngineConfig) -> tuple[JobFieldRule, ...]:
    """Return a tuple of each `JobFieldRule` for the fields of a job (descriptor) of an engine."""
    return (*_load_rules(engine), *_compute_rules(engine), *_drain_rules(engine), *_store_rules(engine))


def _load_rules(engine: EngineConfig) -> Iterator[JobFieldRule]:
    for count in ("wait_computed", "wait_stored"):
        yield _counts_earlier_jobs("load", count)
    yield JobFieldRule(
        ("load.x_blocks", "load.x_rows", "load.x_words"),
        lambda _, blocks, rows, words: (blocks != 0) & ((rows == 0) | (words == 0)),
        "x_rows and x_words must not be 0 where x_blocks is not",
    )
    words = engine.cores * engine.pixels * engine.map_words
    yield _product_limit("load", ("x_blocks", "x_rows", "x_words"), words)
    yield _product_limit(
        "load",
        ("x_blocks", "x_rows", "x_words"),
        engine.cores * engine.addend_words,
        only=("load.addend",),
        where=lambda addend: addend != 0,
    )
    yield from _banks(engine, "load", "x_blocks", ("x_first", "x_pitch_rest"))
    yield JobFieldRule(
        ("load.w_steps",),
        lambda _, steps: steps > engine.weight_steps,
        f"w_steps must be at most {engine.weight_steps:,}",
    )
    alignment = LANES * engine.weight_alignment
    if engine.weight_alignment > 1:
        yield JobFieldRule(
            ("load.w_steps", "load.w_address"),
            lambda _, steps, address: (steps != 0) & ((address & (alignment - 1)) != 0),
            f"w_address must be a multiple of {alignment} where w_steps is not 0",
        )
    maximum = LANES * engine.cores * engine.parameter_words
    yield JobFieldRule(
        ("load.p_words", "load.tables"),
        lambda _, words, tables: (tables == 0) & (words > maximum),
        f"p_words must be at most {maximum:,}",
    )
    count = 2 * LOOKUP_TABLE if engine.has_fixed_unit else TABLES
    yield JobFieldRule(
        ("load.p_words", "load.p_base", "load.tables"),
        lambda _, words, base, tables: (
            (tables != 0) & (words != 0) & (words + base * TABLE_WORDS > count * TABLE_WORDS)
        ),
        f"p_words starting at table p_base must lie in {count} tables of {TABLE_WORDS} words",
    )


def _compute_rules(engine: EngineConfig) -> Iterator[JobFieldRule]:
    for name in ("kernel_rows", "kernel_columns", "channels", "folds"):
        yield JobFieldRule(
            ("compute.groups", f"compute.{name}"),
            lambda _, groups, size: (groups != 0) & (size == 0),
            f"{name} must not be 0 where groups is not",
        )
    for name, value, maximum in (("channelwise", 0, CHAIN), ("channelwise", 1, LANES)):
        yield _product_limit(
            "compute",
            ("folds", "kernel_rows", "kernel_columns", "channels"),
            maximum * engine.weight_steps,
            only=("compute.groups", f"compute.{name}"),
            where=lambda groups, alone, value=value: (groups != 0) & (alone == value),
        )
    yield JobFieldRule(
        ("compute.groups", "compute.stride"),
        lambda _, groups, stride: (groups != 0) & ((stride < STRIDES[0]) | (stride > STRIDES[-1])),
        f"stride must be from {STRIDES[0]} to {STRIDES[-1]}",
    )
    yield _product_limit(
        "compute",
        ("groups", "folds"),
        engine.slots,
        only=("compute.first", "compute.last"),
        where=lambda first, last: (first == 0) | (last == 0),
        why=" in a chunk of several",
    )
    yield from _banks(engine, "compute", "groups", ("start_rest", "column_rest", "row_rest"))


def _drain_rules(engine: EngineConfig) -> Iterator[JobFieldRule]:
    yield _counts_earlier_jobs("drain", "wait_stored")
    yield JobFieldRule(
        ("compute.groups", "compute.last", "drain.blocks"),
        lambda _, groups, last, blocks: ((groups != 0) & (last != 0)) != (blocks != 0),
        "blocks must not be 0 where sums are complete, and be 0 where none are",
    )
    for channelwise, count in ((0, engine.blocks), (1, 1)):
        yield JobFieldRule(
            ("compute.channelwise", "drain.blocks"),
            lambda _, alone, blocks, held, value=channelwise, count=count: (
                (alone == value) & (blocks != 0) & ((blocks > held) | (blocks + count <= held))
            ),
            f"blocks must be as many as its folds of {count} hold{', where channelwise' * channelwise}",
            products=(("compute.folds", count),),
        )
    yield JobFieldRule(
        ("compute.channelwise", "drain.blocks", "drain.channelwise"),
        lambda _, alone, blocks, alone_too: (blocks != 0) & (alone != alone_too),
        "channelwise must be equal in compute and drain",
    )
    yield JobFieldRule(
        ("drain.blocks", "drain.pixels"),
        lambda _, blocks, pixels, held: (blocks != 0) & ((pixels > held) | (pixels + engine.pixels <= held)),
        f"pixels must be as many as its groups of {engine.pixels} hold",
        products=(("compute.groups", engine.pixels),),
    )
    yield JobFieldRule(
        ("drain.pool", "drain.columns"),
        lambda _, pool, columns: (pool != 0) & (columns == 0),
        "columns must not be 0 with pool",
    )


def _store_rules(engine: EngineConfig) -> Iterator[JobFieldRule]:
    yield JobFieldRule(
        ("store.blocks", "store.rows", "store.words"),
        lambda _, blocks, rows, words: (blocks != 0) & ((rows == 0) | (words == 0)),
        "rows and words must not be 0 where blocks is not",
    )
    yield _product_limit("store", ("blocks", "rows", "words"), engine.cores * engine.output_words)


def _counts_earlier_jobs(part: str, count: str) -> JobFieldRule:
    return JobFieldRule((f"{part}.{count}",), lambda number, jobs: jobs > number, f"{count} must count earlier jobs")


def _banks(engine: EngineConfig, part: str, some: str, names: tuple[str, ...]) -> Iterator[JobFieldRule]:
    for name in names:
        yield JobFieldRule(
            (f"{part}.{some}", f"{part}.{name}"),
            lambda _, count, bank: (count != 0) & (bank >= engine.pixels),
            f"{name} must be below {engine.pixels}",
        )


def _product_limit(
    part: str,
    factors: tuple[str, ...],
    maximum: int,
    *,
    only: tuple[str, ...] = (),
    where: Callable[..., Any] = lambda: 1,
    why: str = "",
) -> JobFieldRule:
    """Return a `JobFieldRule` that limits a product of k fields to about ``maximum``, by their total bit length.

    It accepts every product up to ``maximum``, and rejects every product of at least ``2**k`` times as much; between
    these two it may do either.

    A product of k numbers with n bits in all is at least ``2**(n - k)``. With a first factor of 0, nothing is moved and
    the rule holds.
    """
    return JobFieldRule(
        only,
        lambda _, *conditions: where(*conditions),
        f"{' times '.join(factors)} must be at most {maximum:,}{why}",
        lengths=tuple(f"{part}.{name}" for name in factors),
        max_length=maximum.bit_length() - 1 + len(factors),
    )


def faults(engine: EngineConfig, job_index: int, job: Job) -> Iterator[str]:
    """Yield an error text for every validity rule that job ``job``, number ``job_index`` of a program, violates.

    `JobCheck` rejects exactly the jobs with a violation.
    """
    for rule in rules(engine):
        values = {field: getattr(getattr(job, field.split(".")[0]), field.split(".")[1]) for field in rule.read_fields}
        operands = [values[field] for field in rule.fields]
        operands += [values[field] * factor for field, factor in rule.products]
        lengths = [values[field].bit_length() for field in rule.lengths]
        is_long = not lengths or (lengths[0] != 0 and sum(lengths) > rule.max_length)
        if is_long and rule.broken(job_index, *operands):
            pairs = [f"{field.partition('.')[2]} {value}" for field, value in values.items()]
            shown = ", ".join(pairs) if len(pairs) > 1 else pairs[0].split()[1]
            part = max(rule.read_fields, key=[*field_offsets()].index).partition(".")[0]
            yield f"job {job_index}: {part}.{rule.must}, not {shown}"


class JobCheck(ConfiguredComponent[EngineConfig]):
    """Circuit that checks jobs (descriptors) word by word during their fetch: fields, checksum and engine digest.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    word : In(stream of 64 bits, always ready)
        Words of the jobs of a program, in order. At least three cycles separate two jobs.
    fault : Out(Error)
        Error of a job, for one cycle, `LATENCY` cycles after its last word. ``DAMAGED`` has priority over ``FOREIGN``,
        and ``FOREIGN`` over ``FIELD``.
    """

    #: Cycles from a job's last word at the input to the job's error code at the output ``fault``.
    LATENCY = 4

    def __init__(self, config: EngineConfig):
        super().__init__(config, {"word": In(stream.Signature(WORD_BITS, always_ready=True)), "fault": Out(Error)})

    def elaborate(self, platform):
        m = Module()
        word, valid = Signal(WORD_BITS, name="job_word", reset_less=True), Signal(name="job_word_valid")
        word_index, job_index = (
            Signal(range(job_words(self.config)), name="word_index"),
            Signal(COUNT_BITS, name="job_index"),
        )
        sealed = named(valid & (word_index == job_words(self.config) - 1), "job_complete")
        judged = Signal(name="verdict")
        m.d.sync += [
            word.eq(self.word.payload),
            valid.eq(self.word.valid),
            judged.eq(delayed(m, "is_last_word", sealed, 2, reset_less=False)),
        ]
        with m.If(valid):
            m.d.sync += word_index.eq(Mux(sealed, 0, word_index + 1))
        with m.If(judged):
            m.d.sync += job_index.eq(job_index + 1)
        damaged, foreign = self._elaborate_seal(m, word, valid & ~sealed, job_index, judged)
        bad = self._elaborate_rules(m, word, valid, word_index, job_index, judged)
        with m.If(judged):
            with m.If(damaged):
                m.d.comb += self.fault.eq(Error.DAMAGED)
            with m.Elif(foreign):
                m.d.comb += self.fault.eq(Error.FOREIGN)
            with m.Elif(bad):
                m.d.comb += self.fault.eq(Error.FIELD)
        return m

    def _elaborate_seal(
        self, m: Module, word: Signal, of_parts: Value, job_index: Signal, judged: Signal
    ) -> tuple[Value, Value]:
        """Check a job's seal (checksum, engine digest); return a pair of bits: bad checksum, job for another engine."""
        crc: Any = catalog.CRC32_ISO_HDLC(data_width=WORD_BITS).create()
        m.submodules.crc = ResetInserter(judged)(crc)  # a reset takes fewer LUTs than the component's ``start``
        m.d.comb += [crc.valid.eq(of_parts), crc.data.eq(word)]
        damaged, foreign = Signal(4, name="damaged_parts", reset_less=True), Signal(name="is_foreign", reset_less=True)
        differ = named(crc.crc ^ word[SEAL_BITS:] ^ job_index, "crc_difference")
        size = len(differ) // len(damaged)
        m.d.sync += [
            damaged.eq(Cat(differ[size * part : size * (part + 1)].any() for part in range(len(damaged)))),
            foreign.eq(word[:SEAL_BITS] != engine_seal(self.config)),
        ]
        return delayed(m, "is_damaged", damaged.any(), 2), delayed(m, "is_foreign", foreign, 2)

    def _elaborate_rules(
        self, m: Module, word: Signal, valid: Signal, word_index: Signal, job_index: Signal, judged: Signal
    ) -> Signal:
        """Add the logic that evaluates all validity rules on a fetched job; return the flag that the job violates one.

        Each rule is evaluated with the last word that it reads. Registers store its fields of earlier words. A sum of
        bit lengths is compared a cycle later.
        """
        operands = _FieldReader(m, self.config, word, word_index)
        word_valid = delayed(m, "job_word_valid", valid, 1, reset_less=False)
        bad = Signal(name="is_rule_broken")
        broken = []
        for count, rule in enumerate(rules(self.config)):
            last = max(operands.word_of(field) for field in rule.read_fields)
            values = [operands.field(field, last) for field in rule.fields]
            values += [operands.product(field, factor) for field, factor in rule.products]
            violated = Signal(name=f"rule_{count}_broken")
            violation = word_valid & (operands.word_index == last) & rule.broken(job_index, *values)
            if rule.lengths:
                applies = Signal(name=f"rule_{count}_applies")
                m.d.sync += applies.eq(violation & (operands.length(rule.lengths[0], last) != 0))
                violation = applies & (operands.total_length(rule.lengths, last) > rule.max_length)
            m.d.sync += violated.eq(violation)
            broken.append(violated)
        with m.If(judged):
            m.d.sync += bad.eq(0)
        with m.Elif(Cat(broken).any()):
            m.d.sync += bad.eq(1)
        return bad


class _FieldReader:
    """Circuit that supplies job fields to validity rules: from the job's newest word, or from a register.

    Fields are available one cycle after the newest word. Equal operands are shared.

    Parameters
    ----------
    m : Module
    config : EngineConfig
    word : Signal
        Word that arrives in this cycle.
    word_index : Signal
        Index of the word in its job.
    """

    def __init__(self, m: Module, config: EngineConfig, word: Signal, word_index: Signal) -> None:
        self._m, self._now, self._offsets = m, word, field_offsets(config.variant)
        self._word = Signal.like(word, name="job_word_delayed", reset_less=True)
        self.word_index = Signal.like(word_index, name="word_index_delayed", reset_less=True)
        m.d.sync += [self._word.eq(word), self.word_index.eq(word_index)]
        self._shared: dict[Any, Value] = {}

    def word_of(self, field: str) -> int:
        """Return the index in the job of the 64-bit word that contains the field ``field`` (``part.name``)."""
        return self._offsets[field][0] // WORD_BITS

    def _bits(self, field: str) -> tuple[int, int]:
        """Return, as a pair, the bit offset of a job field in its 64-bit word, and the field's width in bits."""
        offset, width = self._offsets[field]
        return offset % WORD_BITS, width

    def field(self, field: str, last: int) -> Value:
        """Return the value of a job field, valid one cycle after the job's word with index ``last`` arrives."""
        first, width = self._bits(field)
        return self._stored(field, self._word[first : first + width], last, field)

    def length(self, field: str, last: int) -> Value:
        """Return the bit length of a job field's value, valid one cycle after the job's word ``last`` arrives."""
        first, width = self._bits(field)
        length = self._shared.get((first, width))
        if length is None:
            length = self._shared[first, width] = Signal(
                range(width + 1), name=f"bit_length_{first}_{width}", reset_less=True
            )
            self._m.d.sync += length.eq(_length(self._now[first : first + width]))
        return self._stored(f"length of {field}", length, last, field)

    def total_length(self, fields: tuple[str, ...], last: int) -> Value:
        """Return the sum of the fields' bit lengths, valid two cycles after the job's word ``last`` arrives."""
        if (fields, last) not in self._shared:
            first, *others = (self.length(field, last) for field in fields)
            name = f"{fields[0].replace('.', '_')}_total_length"
            self._shared[fields, last] = delayed(self._m, name, sum(others, first), 1)
        return self._shared[fields, last]

    def product(self, field: str, factor: int) -> Value:
        """Add a multiplier of a stored job field by a constant; return its product, a registered `Signal`."""
        value = self.field(field, -1)
        name = f"{field.replace('.', '_')}_times_{factor}"
        product = Signal(len(value) + factor.bit_length(), name=name, reset_less=True)
        parts = [value << bit for bit in range(factor.bit_length()) if factor >> bit & 1]
        self._m.d.sync += product.eq(sum(parts[1:], parts[0]))  # additions take no DSP slice
        return product

    def _stored(self, key: str, value: Value, last: int, field: str) -> Value:
        """Return ``value`` if job word ``last`` contains ``field``, otherwise a register that stores the value."""
        if self.word_of(field) == last:
            return value
        if key not in self._shared:
            name = f"stored_{key.replace('.', '_').replace(' ', '_')}"
            self._shared[key] = Signal(len(value), name=name, reset_less=True)
            with self._m.If(self.word_index == self.word_of(field)):
                self._m.d.sync += self._shared[key].eq(value)
        return self._shared[key]


def _length(value: Value) -> Value:
    """Return the bit length of an Amaranth value, the index of its highest set bit plus one, as an Amaranth value."""
    if len(value) == 1:
        return value
    half = 1 << (len(value) - 1).bit_length() - 1
    low, high = value[:half], value[half:]
    return Mux(high.any(), half + _length(high), _length(low))
