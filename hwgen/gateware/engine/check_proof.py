"""Proof obligations of the engine's job checker: each rule is evaluated correctly, and each job gets one verdict.

The definition of a rule is the one that the software evaluates (`hwgen.gateware.engine.check.rules`). Here it is an
expression over whole fields of the words that came, in 64 bits, after the last of these words. The emitted module
judges it in stages, on fields and bit lengths that it stored at different times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwgen.gateware.checksum_proof import ChecksumUnit
from hwgen.gateware.engine.check import JobCheck, JobFieldRule, rules
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, SEAL_BITS, WORD_BITS, engine_seal, field_offsets, job_words
from hwgen.gateware.engine.port import Error
from hwgen.gateware.wiring_proof import of_domain
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for
from hwgen.obligations.observers import kept, register, stages

#: Minimum number of cycles without a word between two jobs at the checker's input. The fetch unit keeps them.
MIN_GAP = 3
#: Depth of the k-induction, in cycles: as many as from a job's word to the verdict on a rule.
_INDUCTION_CYCLES = 5
#: Names of the registers that delay the flag of a job's last word until the job's verdict, in pipeline order.
_VERDICT_STAGES = ("is_last_word_1", "is_last_word_2", "crc__verdict")


@dataclass(frozen=True)
class CheckUnit:
    """Configuration of the engine's job checker (`JobCheck`) for its proofs: the engine's configuration."""

    engine: EngineConfig


@dataclass(frozen=True)
class _Expression:
    """Verilog expression (64 bits or one bit) as a rule's operand; Python operators on it write Verilog."""

    text: str

    def _operate(self, operator: str, other: Any) -> _Expression:
        return _Expression(f"({self.text} {operator} {_text(other)})")

    def __and__(self, other: Any) -> _Expression:
        return self._operate("&", other)

    def __or__(self, other: Any) -> _Expression:
        return self._operate("|", other)

    def __add__(self, other: Any) -> _Expression:
        return self._operate("+", other)

    def __mul__(self, other: Any) -> _Expression:
        return self._operate("*", other)

    def __lt__(self, other: Any) -> _Expression:
        return self._operate("<", other)

    def __le__(self, other: Any) -> _Expression:
        return self._operate("<=", other)

    def __gt__(self, other: Any) -> _Expression:
        return self._operate(">", other)

    def __ge__(self, other: Any) -> _Expression:
        return self._operate(">=", other)

    def __eq__(self, other: object) -> Any:
        return self._operate("==", other)

    def __ne__(self, other: object) -> Any:
        return self._operate("!=", other)

    __hash__ = None  # type: ignore[assignment]


def _text(operand: Any) -> str:
    """Return the Verilog text of an operand of a validity rule: an expression, or a number as a 64-bit constant."""
    return operand.text if isinstance(operand, _Expression) else f"64'd{int(operand)}"


def obligations(unit: CheckUnit, site: Site) -> list[Obligation]:
    """Return a list of obligations of the engine's job checker: one per validity rule, one for the jobs' verdicts."""
    engine = unit.engine
    judged = [_of_rule(engine, site, index, rule) for index, rule in enumerate(rules(engine))]
    return [*judged, _of_verdict(engine, site)]


def _word_lines(engine: EngineConfig) -> tuple[tuple[str, ...], dict[str, str], dict[str, str]]:
    """Return a triple: Verilog lines that count a job's words; dict of the assumed gap of jobs; dict of invariants.

    ``index`` is the index of the current word, ``index_1`` and ``index_2`` are its values one and two cycles earlier,
    and ``was_1`` and ``was_2`` say whether a word arrived then. ``jobs`` is the number of jobs that have arrived.
    """
    last, width = job_words(engine) - 1, bits_for(job_words(engine) - 1)
    lines = (
        f"reg {width} index = 0; reg {width} index_1 = 0; reg {width} index_2 = 0; reg was_1 = 0; reg was_2 = 0;",
        f"reg {bits_for(MIN_GAP)} gap = {MIN_GAP}; reg [{COUNT_BITS - 1}:0] jobs = 0;",
        f"wire ends = word__valid & (index == {last});",
        "always @(posedge clk) begin",
        "    index <= rst | ends ? 0 : index + word__valid;",
        "    index_1 <= rst ? 0 : index; index_2 <= rst ? 0 : index_1;",
        "    was_1 <= word__valid & !rst; was_2 <= was_1 & !rst;",
        f"    gap <= rst ? {MIN_GAP} : ends ? 0 : gap + (gap != {MIN_GAP});",
        "    jobs <= rst ? 0 : jobs + ends;",
        "end",
    )
    gap_assumption = {
        f"{MIN_GAP} cycles or more are between two jobs": f"!word__valid | (index != 0) | (gap == {MIN_GAP})"
    }
    invariants = {
        # The module counts words one cycle later than the observer, and once more a cycle later.
        "words are counted": (
            "(word_index == index_1) & (job_word_valid == was_1) & (job_word_valid_1 == was_2) & "
            f"((!was_2 & (index_2 == 0)) | (word_index_delayed == index_2)) & (index <= {last})"
        ),
        "words of two jobs are apart": (
            f"((gap == {MIN_GAP}) | (index == 0)) & ((gap == 0) | (index_1 <= index)) & "
            "((gap <= 1) | (index_2 <= index_1))"
        ),
    }
    return lines, gap_assumption, invariants


def _of_rule(engine: EngineConfig, site: Site, index: int, rule: JobFieldRule) -> Obligation:
    """Return the proof `Obligation` that a validity rule's flag rises for exactly the jobs that violate the rule."""
    offsets = field_offsets(engine.variant)
    word_of = {name: offsets[name][0] // WORD_BITS for name in rule.read_fields}
    last = max(word_of.values())
    observer, gap_assumption, counted = _word_lines(engine)
    lines = list(observer)
    for word in sorted(set(word_of.values())):
        lines += kept(f"word_{word}", WORD_BITS, "word__payload", f"word__valid & (index == {word})")
    fields = {}
    for name in dict.fromkeys(rule.read_fields):
        offset, width = offsets[name]
        fields[name] = name.replace(".", "_")
        low = offset % WORD_BITS
        lines.append(f"wire [63:0] {fields[name]} = word_{word_of[name]}[{low + width - 1}:{low}];")
    operands = [_Expression(fields[name]) for name in rule.fields]
    operands += [_Expression(f"({fields[name]} * 64'd{factor})") for name, factor in rule.products]
    lines.append("wire [63:0] number = jobs;")
    conditions = [_text(rule.broken(_Expression("number"), *operands))]
    if rule.lengths:
        lengths = [_length(fields[name], offsets[name][1]) for name in rule.lengths]
        conditions.append(f"({fields[rule.lengths[0]]} != 0)")  # with a first factor of 0 nothing is moved
        conditions.append(f"(({' + '.join(lengths)}) > 64'd{rule.max_length})")
    lines.append(f"wire breaks = {' & '.join(f'({condition})' for condition in conditions)};")
    # `JobCheck` raises a rule's flag two cycles after the last word that the rule reads. It compares a sum of bit
    # lengths one cycle later than the rule itself.
    delays = 3 if rule.lengths else 2
    lines += register("due", f"word__valid & (index == {last})")
    lines += stages("due", 1, "due & breaks", delays, resets=True)
    invariants = _stored_field_invariants(site, rule, last, word_of, fields, offsets)
    needs_number = any("number" in condition for condition in conditions)
    if needs_number:
        waiting = " + ".join([f"{COUNT_BITS}'d0", *_VERDICT_STAGES])
        invariants["each job that came is judged, or will be"] = (
            f"jobs == job_index + {waiting} + (was_1 & (index_1 == {job_words(engine) - 1}))"
        )
    return site.obligation(
        "rules",
        f"A job breaks rule {index} if and only if the flag rises: {rule.must}.",
        observer=tuple(lines),
        assumes=gap_assumption,
        invariants={**counted, **invariants},
        asserts={"the flag is the rule's": f"rule_{index}_broken == due_{delays}"},
        cover=f"due_{delays}",
        structure={"cycles": _INDUCTION_CYCLES},
    )


def _length(field: str, width: int) -> str:
    """Return the Verilog expression of the bit length of a job field: the index of its highest set bit plus one."""
    return "(" + " : ".join([*(f"{field}[{bit}] ? 64'd{bit + 1}" for bit in reversed(range(width))), "64'd0"]) + ")"


def _stored_field_invariants(
    site: Site,
    rule: JobFieldRule,
    last: int,
    word_of: dict[str, int],
    fields: dict[str, str],
    offsets: Any,
) -> dict[str, str]:
    """Return a dict of a rule's invariants: registers hold the fields (or bit lengths) of the job's earlier words."""
    invariants = {}
    values = {name: (f"stored_{fields[name]}", fields[name]) for name in rule.fields}
    values |= {f"product {name}": (f"stored_{fields[name]}", fields[name]) for name, _ in rule.products}
    values |= {
        f"length {name}": (f"stored_length_of_{fields[name]}", _length(fields[name], offsets[name][1]))
        for name in rule.lengths
    }
    for key, (stored, value) in values.items():
        word = word_of[key.split()[-1]]
        if site.has(stored) and (word < last or key.startswith("product")):
            invariants[f"{stored} is known after its word"] = f"(index_2 <= {word}) | ({stored} == {value})"
    return invariants


def _of_verdict(engine: EngineConfig, site: Site) -> Obligation:
    """Return the `Obligation` that each job's error code appears once, in the right cycle, and is the job's own."""
    observer, gap_assumption, counted = _word_lines(engine)
    latency = JobCheck.LATENCY
    flags = [f"rule_{index}_broken" for index in range(len(rules(engine)))]
    lines = [
        *observer,
        *stages("ends", 1, "ends", 3, resets=True),
        *register("due", "ends_3"),
        # A flag of the job that is judged rises with the verdict at the latest, and one of the next job later.
        f"wire breaks = {' | '.join(flags)};",
        "reg is_bad = 0; reg is_damaged = 0; reg is_foreign = 0; reg is_fresh = 1;",
        f"reg [{WORD_BITS - 1}:0] word_1; always @(posedge clk) word_1 <= word__payload;",
        f"wire is_part = was_1 & (index_1 != {job_words(engine) - 1});",
        *kept("seal", WORD_BITS, "word__payload", "ends"),
        *kept("number", COUNT_BITS, "jobs", "ends"),
        "always @(posedge clk) begin",
        "    is_fresh <= rst | crc.verdict | is_fresh & !is_part;",
        "    is_bad <= !rst & !due & (is_bad | breaks);",
        f"    if (ends_1) is_damaged <= (crc.crc_out ^ {{8'd0, number}}) != seal[{WORD_BITS - 1}:{SEAL_BITS}];",
        f"    if (ends_1) is_foreign <= seal[{SEAL_BITS - 1}:0] != 32'd{engine_seal(engine)};",
        "end",
    ]
    codes = {name: int(error.value) for name, error in (("damaged", Error.DAMAGED), ("foreign", Error.FOREIGN))}
    want = f"is_damaged ? {codes['damaged']} : is_foreign ? {codes['foreign']} : is_bad ? {int(Error.FIELD.value)} : 0"
    return site.obligation(
        "tokens",
        f"The verdict of each job comes {latency} cycles after its last word: its checksum, engine and rules, in turn.",
        observer=tuple(lines),
        assumes=gap_assumption,
        invariants={
            **counted,
            "the last word is on its way": " & ".join(
                f"({stage} == {name})" for stage, name in zip(_VERDICT_STAGES, ("ends_2", "ends_3", "due"), strict=True)
            ),
            "jobs are apart": (
                f"((gap >= 1) == !(ends_1)) & ((gap >= 2) == !(ends_1 | ends_2)) & "
                f"((gap == {MIN_GAP}) == !(ends_1 | ends_2 | ends_3)) & (!(ends_1 | ends_2 | ends_3) | (index == 0))"
            ),
            "each job that came is judged, or will be": (
                f"jobs == job_index + {COUNT_BITS}'d0 + ends_1 + ends_2 + ends_3 + due"
            ),
            "broken rules are kept": "is_rule_broken == is_bad",
            "the checksum begins again after a job": "is_fresh == ((index_1 == 0) & !(ends_1 | ends_2 | ends_3 | due))",
        },
        asserts={
            "the error is the job's": f"fault == (due ? ({want}) : 0)",
            "the checksum covers the words of the parts": (
                "(crc.valid == is_part) & (!is_part | (crc.data == word_1)) & (!is_part | (index_1 != 0) | is_fresh)"
            ),
            "the checksum begins between jobs": "!crc.verdict | !was_1 & (index_1 == 0)",
        },
        cover="due & is_bad & !is_damaged & !is_foreign",
        structure={"cycles": _INDUCTION_CYCLES},
    )


PROOFS = {
    CheckUnit: Proofs(
        (obligations, of_domain),
        lambda _: {"crc": ChecksumUnit(WORD_BITS)},
        others=(JobCheck,),
    )
}
