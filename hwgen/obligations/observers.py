"""Verilog lines for observers (monitors in a proof), and obligations on pipelines, which begin at a certain age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hwgen.obligations.obligation import Obligation, Site, bits_for


def age(cycles: int) -> list[str]:
    """Return a list of Verilog lines: a counter ``age`` of cycles since the last reset, which stops at ``cycles``."""
    return [
        f"reg {bits_for(cycles)} age = 0;",
        f"always @(posedge clk) age <= rst ? 0 : age + (age != {cycles});",
    ]


def is_old(cycles: int) -> str:
    """Return a Verilog condition: ``cycles`` cycles have passed since the reset, by the counter ``age``."""
    return f"(age == {cycles})"


def register(name: str, value: str, width: int = 1, init: int = 0, reset: str = "rst") -> list[str]:
    """Return a list of lines of Verilog: a register that loads ``value`` in each cycle, and ``init`` at a reset."""
    range_of = f"[{width - 1}:0] " if width > 1 else ""
    return [f"reg {range_of}{name} = {init};", f"always @(posedge clk) {name} <= {reset} ? {init} : {value};"]


def kept(name: str, width: int, value: str, when: str) -> list[str]:
    """Return a list of Verilog lines: a register that loads ``value`` in cycles with ``when``, else keeps its value."""
    return [f"reg [{width - 1}:0] {name};", f"always @(posedge clk) if ({when}) {name} <= {value};"]


def stages(name: str, width: int, value: str, cycles: int, *, resets: bool = False) -> list[str]:
    """Return a list of Verilog lines: registers ``NAME_1``, ``NAME_2``, .. with a value 1 to ``cycles`` cycles ago.

    With ``resets``, values from before a reset become 0.
    """
    names = [value, *(f"{name}_{count}" for count in range(1, cycles + 1))]
    reset = "rst" if resets else "1'b0"
    return [line for before, stage in pairwise(names) for line in register(stage, before, width, reset=reset)]


def balance(name: str, largest: int, comes: str, leaves: str) -> list[str]:
    """Return a list of Verilog lines: a counter ``name`` of what came minus what left, wide enough for ``largest``."""
    return register(name, f"{name} + ({comes}) - ({leaves})", max(1, largest.bit_length()))


def counter(name: str, count: int, moves: str, last: str = "") -> list[str]:
    """Return a list of Verilog lines: a counter from 0 to ``last`` of cycles with ``moves``; ``NAME_ends``: it wraps.

    ``last`` is ``count - 1`` by default. An expression must not exceed it.
    """
    return [
        f"reg {bits_for(count - 1)} {name} = 0;",
        f"wire {name}_ends = {moves} & ({name} == {last or count - 1});",
        f"always @(posedge clk) {name} <= rst | {name}_ends ? 0 : {name} + {moves};",
    ]


def delayed(name: str, width: int, value: str, cycles: int, *, resets: bool = False) -> list[str]:
    """Return a list of Verilog lines: ``NAME_was``, a value of ``width`` bits as it was ``cycles`` cycles ago.

    With ``resets``, the values of cycles before a reset become 0.
    """
    if cycles == 0:
        return [f"wire [{width - 1}:0] {name}_was = {value};"]
    older = f"{{{name}_past[{width * (cycles - 1) - 1}:0], {value}}}" if cycles > 1 else value
    return [
        f"reg [{width * cycles - 1}:0] {name}_past = 0;",
        f"always @(posedge clk) {name}_past <= {f'rst ? 0 : {older}' if resets else older};",
        f"wire [{width - 1}:0] {name}_was = {name}_past[{width * cycles - 1}:{width * (cycles - 1)}];",
    ]


def patience(is_idle: str, bound: int) -> list[str]:
    """Return a list of Verilog lines: a counter ``idle`` of successive cycles with ``is_idle``, up to ``bound + 1``."""
    return [
        f"reg {bits_for(bound + 1)} idle = 0; wire is_idle = {is_idle};",
        f"always @(posedge clk) idle <= rst | !is_idle ? 0 : idle + (idle != {bound + 1});",
    ]


def since(event: str, cycles: int) -> list[str]:
    """Return a list of Verilog lines: a counter ``since`` of cycles after the last ``event``, up to ``cycles``."""
    return [
        f"reg {bits_for(cycles)} since = {cycles};",
        f"always @(posedge clk) since <= rst ? {cycles} : {event} ? 1 : since + (since != {cycles});",
    ]


def marked(max_beats: int, width: int, value: str, comes: str, taken: str) -> list[str]:
    """Return a list of lines of Verilog that follow one arbitrary beat (transfer) through a queue until it leaves.

    They read ``waiting``, the number of queued beats. While ``is_marked``, ``ahead`` counts the beats before the marked
    one, whose bits are ``value`` in the observer. ``marks`` is high as it comes, ``leaves`` as it leaves.
    """
    return [
        f"wire mark = $anyseq; reg is_marked = 0; reg {bits_for(max_beats)} ahead = 0; reg [{width - 1}:0] value;",
        f"wire marks = mark & {comes} & !is_marked;",
        f"wire leaves = is_marked & {taken} & (ahead == 0);",
        "always @(posedge clk) is_marked <= !rst & (marks | (is_marked & !leaves));",
        f"always @(posedge clk) ahead <= rst ? 0 : marks ? waiting - {taken} : ahead - ({taken} & (ahead != 0));",
        f"always @(posedge clk) if (marks) value <= {value};",
    ]


def probed(site: Site, **memories: tuple[int, int, str]) -> dict[str, Any]:
    """Return a dict of fields of an `Obligation` that let it read a word of each memory at any address.

    Parameters
    ----------
    site : Site
        Site of the component. The module of a memory that has one is kept.
    **memories
        Depth in words, width in bits, and address of each memory, by its name.
    """
    probes: dict[str, list[str]] = {}
    sees, drives = {}, {}
    for memory, (depth, width, address) in memories.items():
        inner = memory if memory in site.module.instances else ""
        prefix, array = (f"{inner}.", "memory") if inner else ("", memory)
        probes.setdefault(inner, []).extend(
            [
                # names that no component gives to a signal of its own
                f"wire {bits_for(depth - 1)} {memory}_probe_address;",
                f"wire [{width - 1}:0] {memory}_probe_word = {array}[{memory}_probe_address];",
            ]
        )
        sees[f"{memory}_word"] = f"{prefix}{memory}_probe_word"
        drives[f"{prefix}{memory}_probe_address"] = address
    return {"sees": sees, "probes": probes, "drives": drives, "keeps": tuple(filter(None, probes))}


def index_of(site: Site, signal: str, bits: int) -> tuple[str, dict[str, int]]:
    """Return a pair: name of a beat's index signal, and a dict of the free input (bits by name) if it is missing.

    Such a module treats all beats alike, and its outputs must be right for a beat of any index.
    """
    return (signal, {}) if site.has(signal) else (f"any_{signal}", {f"any_{signal}": bits})


def pipeline(
    site: Site,
    obligation_kind: str,
    statement: str,
    cycles: int,
    facts: Mapping[str, str],
    *,
    observer: Sequence[str] = (),
    methods: tuple[str, ...] = ("exhaustive",),
    **fields: Any,
) -> Obligation:
    """Return the `Obligation`: ``facts`` (Verilog expressions) hold if no reset was in the last ``cycles`` cycles.

    All registers of the pipeline start with any value. After ``cycles`` cycles its outputs depend only on inputs.

    Parameters
    ----------
    site : Site
        Site of the component.
    obligation_kind, statement : str
        Kind of the obligation, and the property in words.
    cycles : int
        Number of cycles from the earliest input that the facts read, at least, to the outputs.
    facts : mapping of str to str
        Parts of the property: a Verilog expression by the part in words.
    observer : sequence of str, optional
        Lines of Verilog that delay and define values.
    methods : tuple of str, optional
        Names of the methods.
    **fields
        Other fields of the obligation, which can replace the cover. Those in ``asserts`` hold in all cycles.
    """
    guarded = {fact: f"!{is_old(cycles)} | ({expression})" for fact, expression in facts.items()}
    return site.obligation(
        obligation_kind,
        statement,
        methods=methods,
        observer=(*age(cycles), *observer),
        asserts=guarded | fields.pop("asserts", {}),
        **{
            "assumes": {"no reset": "!rst"},
            "cover": is_old(cycles),
            "structure": {"cycles": cycles},
            **fields,
        },
    )
