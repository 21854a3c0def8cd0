"""Proof obligations of sums rounded to float32 after each addition: pooling windows, and elementwise sums of maps.

The obligations are called ``pool`` or ``elementwise``. The first one is about the tables: each addend is the entry of
its value. The second one is about the chain of adders: each partial sum is the previous one plus an addend, rounded to
24 significant bits, ties to even.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

from amaranth import Shape

from hwgen.gateware.average import FloatSumConfig
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.requantise_proof import float32
from hwgen.gateware.rounding import signed_bits, to_float32
from hwgen.gateware.stream import at_pixel
from hwgen.obligations.obligation import Obligation, Proofs, Site, part, signed_number, table
from hwgen.obligations.observers import delayed, pipeline


@dataclass(frozen=True)
class _Addend:
    """Addend of a rounded sum in a proof: its lookup table, and the operand value that addresses the table.

    Parameters
    ----------
    table : str
        Name of the table in the observer.
    words : tuple of int
        Entries, from the smallest value's to the largest value's.
    value : int
        First bit of the value in the payload of a step.
    shape : Shape
        Type of the value.
    """

    table: str
    words: tuple[int, ...]
    value: int
    shape: Shape


@dataclass(frozen=True)
class _Chain:
    """Chain of rounding adders for one output value, in a proof: its addends, and its signals' Verilog names.

    Parameters
    ----------
    links : list of str
        Beginning of the signals' names in the module, by addend.
    addends : list of _Addend
        Addends in their order.
    output : str
        Bits of the sum in the output.
    """

    links: list[str]
    addends: list[_Addend]
    output: str


def of_float_sum(config: FloatSumConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of an average pool's sums with float32 rounding, and of its counts of taps."""
    window, source = config.window, config.window.input
    layout, pixels = dict(window.step_layout), window.pixels
    chains = []
    for lane, pixel in product(range(config.lanes), range(pixels)):
        name, width = at_pixel(f"lane_{lane}", pixel, pixels), config.result.width
        first, links, addends = (lane * pixels + pixel) * width, [], []
        for tap in range(window.taps):
            position = (pixel * window.taps + tap) * source.lanes + lane
            links.append(f"{name}_tap_{tap}")
            first_bit = layout["taps"].offset + position * source.bits
            addends.append(_Addend("terms", config.terms, first_bit, source.shape))
        chains.append(_Chain(links, addends, part("o__payload", first, config.sum_bits)))
    counts = _count_facts(config) if config.count_bits else {}
    if _is_single(config):
        _, excess = config.additions[-1]
        chains = [replace(chain, output=f"{chain.links[-1]}_{'sum' if excess else 'exact_sum'}") for chain in chains]
    return _obligations("pool", config, site, chains, counts)


def _is_single(config: FloatSumConfig) -> bool:
    """Return whether an average pool outputs one sum and one count per beat, each a Verilog signal of its own."""
    return bool(config.count_bits) and config.lanes * config.window.pixels == 1 and len(config.additions) > 0


def _count_facts(config: FloatSumConfig) -> dict[str, str]:
    """Return a dict from text to Verilog fact: the bits above each window sum are the number of taps in the map."""
    window, taps = config.window, config.window.taps
    begin = dict(window.step_layout)["inside"].offset
    facts = {}
    for lane, pixel in product(range(config.lanes), range(window.pixels)):
        flags = [f"payload_old[{begin + pixel * taps + tap}]" for tap in range(taps)]
        first = (lane * window.pixels + pixel) * config.result.width + config.sum_bits
        count = part("o__payload", first, config.count_bits)
        if _is_single(config):
            wait = config.arrivals[-1] - config.arrivals[-2] - 1
            count = f"taps_inside_{taps - 1}{f'_delayed_{wait}' if wait else ''}"
        name = at_pixel(f"lane_{lane}", pixel, window.pixels)
        facts[f"{name} has the number of taps in the map"] = f"{count} == {' + '.join(flags)}"
    return facts


def of_float_join(config: FloatJoinConfig, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of an elementwise sum of several feature maps with float32 rounding."""
    layout, pixels, width = dict(config.window.step_layout), config.window.pixels, config.result.width
    chains = []
    for lane, pixel in product(range(config.lanes), range(pixels)):
        position, name = lane * pixels + pixel, at_pixel(f"lane_{lane}", pixel, pixels)
        links = [f"{name}_input_{index}" for index in range(len(config.tables))]
        addends = [
            _Addend(f"terms_{index}", words, layout[f"operand_{index}"].offset + position * beat.bits, beat.shape)
            for index, (words, beat) in enumerate(zip(config.tables, config.window.inputs, strict=True))
        ]
        chains.append(_Chain(links, addends, part("o__payload", position * width, width)))
    return _obligations("elementwise", config, site, chains, {})


def _obligations(
    obligation_kind: str, config: Any, site: Site, chains: list[_Chain], counts: Mapping[str, str]
) -> list[Obligation]:
    """Return a list of two obligations of chains of rounding adders: their lookup tables, and partial sums."""
    return [
        _of_tables(obligation_kind, config, site, chains, counts),
        _of_chains(obligation_kind, config, site, chains),
    ]


def _of_tables(
    obligation_kind: str, config: Any, site: Site, chains: list[_Chain], counts: Mapping[str, str]
) -> Obligation:
    """Return the proof `Obligation` that each addend is its value's table entry, when the previous sum is complete."""
    bits, cycles = site.module.ports["i__payload"].width, config.latency
    lines = [
        *delayed("payload", bits, "i__payload", cycles),
        f"wire [{bits - 1}:0] payload_old = payload_was;",
    ]
    tables = {addend.table: addend for chain in chains for addend in chain.addends}
    for name, addend in tables.items():
        lines += table(name, addend.words, signed=addend.shape.signed)
    facts = dict(counts)
    for chain in chains:
        for link, addend, arrival in zip(chain.links, chain.addends, (1, *config.arrivals), strict=False):
            entry = site.read_data(f"{link}_terms")
            value = part("payload_past", bits * (arrival - 1) + addend.value, addend.shape.width)
            words = f"{addend.table}[{value}]"
            width = max(signed_bits(*addend.words), 2)
            lines.append(f"wire signed [{width - 1}:0] {link}_expected = {words};")
            entry_bits = site.module.signals[entry].width
            facts[f"{link} has the entry of its value"] = f"{entry} == {link}_expected[{entry_bits - 1}:0]"
    return pipeline(
        site,
        obligation_kind,
        "Each addend is the entry of its value in the table, in the cycle that completes the previous sum.",
        cycles,
        facts,
        observer=lines,
        keeps=site.memories,
        cover="",
    )


def _of_chains(obligation_kind: str, config: Any, site: Site, chains: list[_Chain]) -> Obligation:
    """Return the proof `Obligation` that each partial sum is the previous one plus an addend, rounded to float32."""
    cycles = config.latency
    lines, facts, ranges, rules = [], {}, {}, {}
    for chain in chains:
        for step in _additions(config, site, chain):
            lines += step.lines
            facts |= step.facts
            ranges |= step.ranges
            rules |= step.rules
    return pipeline(
        site,
        obligation_kind,
        "Each partial sum is the one before it plus an addend, rounded to 24 significant bits.",
        cycles,
        facts,
        methods=("induction", "pdr"),
        observer=lines,
        assumes={"no reset": "!rst", **rules},
        rests_on=obligation_kind,
        invariants=ranges,
        free_memories=True,
        structure={"cycles": 5},
    )


@dataclass(frozen=True)
class _Addition:
    """Verilog of one addition in a chain of rounding adders: definition, and facts about its sum and addend.

    Parameters
    ----------
    lines : list of str
        Lines of Verilog that define the sum.
    facts, ranges, rules : dict of str to str
        Facts about the sum, its range, and the range of its addend.
    """

    lines: list[str]
    facts: dict[str, str]
    ranges: dict[str, str]
    rules: dict[str, str]


def _sum_names(config: Any, site: Site, chain: _Chain, index: int) -> tuple[str, str]:
    """Return a pair: the Verilog names of the exact and of the rounded partial sum after a chain's addend ``index``."""
    link, is_last = chain.links[index], index == len(chain.links) - 1
    if index == 0:
        return (term := site.read_data(f"{link}_terms")), term
    _, excess = config.additions[index - 1]
    if not excess:
        return (total := chain.output if is_last else f"{link}_exact_sum"), total
    return f"{link}_exact_sum", chain.output if is_last else f"{link}_sum"


def _partial_sum_ranges(chain: _Chain) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield, per addend of a chain, the (low, high) ranges of the exact and of the rounded partial sum."""
    low = high = 0
    for addend in chain.addends:
        exact = low + min(addend.words), high + max(addend.words)
        low, high = map(to_float32, exact)
        yield exact, (low, high)


def _additions(config: Any, site: Site, chain: _Chain) -> Iterator[_Addition]:
    """Yield an `_Addition` (Verilog) per addend of a chain; the first one only limits the first addend's range."""
    ends, first = list(_partial_sum_ranges(chain)), chain.links[0]
    within = _within(site.read_data(f"{first}_terms"), *ends[0][1])
    yield _Addition([], {}, {}, {f"{first} is in the range of its table": within})
    for index, (arrival, arrived) in enumerate(pairwise(config.arrivals), start=1):
        link, addend = chain.links[index], chain.addends[index]
        _, before = _sum_names(config, site, chain, index - 1)
        exact, rounded = _sum_names(config, site, chain, index)
        term = site.read_data(f"{link}_terms")
        # Rounding can make a number one bit wider.
        width = signed_bits(*ends[index][0]) + 1
        lines = [
            *delayed(f"{link}_before", width, f"$signed({before})", 1),
            *delayed(f"{link}_added", width, f"$signed({term})", 1),
            f"wire signed [{width - 1}:0] {link}_defined = {link}_before_was + {link}_added_was;",
        ]
        facts = {f"{link} is an exact sum": f"$signed({exact}) == {link}_defined"}
        rules = {f"{link} is in the range of its table": _within(term, min(addend.words), max(addend.words))}
        ranges = {f"{link} is in its range": f"(age < {arrival + 1}) | {_within(exact, *ends[index][0])}"}
        if exact != rounded:
            lines += [
                f"wire signed [{width - 1}:0] {link}_extended = $signed({exact});",
                *delayed(f"{link}_unrounded", width, f"{link}_extended", arrived - arrival - 1),
                f"wire signed [{width - 1}:0] {link}_unrounded_sum = {link}_unrounded_was;",
                *float32(f"{link}_float", f"{link}_unrounded_sum", width),
            ]
            facts[f"{link} is rounded"] = f"$signed({rounded}) == {link}_float"
            ranges[f"{link} is in its range once rounded"] = f"(age < {arrived}) | {_within(rounded, *ends[index][1])}"
        yield _Addition(lines, facts, ranges, rules)


def _within(name: str, low: int, high: int) -> str:
    """Return the Verilog condition that the signal ``name``, as a signed number, is between ``low`` and ``high``."""
    return f"(($signed({name}) >= {signed_number(low)}) & ($signed({name}) <= {signed_number(high)}))"


PROOFS = {
    FloatSumConfig: Proofs((of_float_sum,), resets=False),
    FloatJoinConfig: Proofs((of_float_join,), resets=False),
}
