"""Proof obligations ``pool``: the maximum or the sum of each channel over a pooling window, or over a whole map.

A maximum is defined by its levels: it reaches a level exactly if some value of the window reaches the level. The level
is any constant (threshold decomposition: Fitch, Coyle, Gallagher, *Median filtering by threshold decomposition*, IEEE
Transactions on Acoustics, Speech, and Signal Processing, 1984).

A sum is defined as the sum of the window's values in a word. The word has as many bits as the sums of so many values
need. Therefore a sum that is equal up to multiples of the word's range is equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from amaranth import Shape

from hwgen.gateware.average import SumConfig
from hwgen.gateware.max_pool import ChannelwisePoolConfig, MaxPoolConfig
from hwgen.gateware.rounding import signed_bits
from hwgen.gateware.stream import at_pixel
from hwgen.gateware.whole_map import RunningSumConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, part, value_of
from hwgen.obligations.observers import counter, delayed, pipeline, probed, register


@dataclass(frozen=True)
class _Tree:
    """Adder tree of a pool in a proof: Verilog expressions of the values it adds and of the sum.

    Parameters
    ----------
    name : str
        Prefix of the observer's names.
    values : list of str
        Bits of the values, in the payload of a step.
    root : str
        Sum of the values: a register of the module, or bits of the output.
    """

    name: str
    values: list[str]
    root: str


def of_max_pool(config: MaxPoolConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation that a max pool's output reaches a level exactly if one of its taps does."""
    shape = config.window.input.shape
    level = value_of("level", shape)
    lines, facts = [f"wire [{shape.width - 1}:0] level = $anyconst;"], {}
    for name, taps, output in _channels(config):
        reaching = " | ".join(f"({value_of(tap, shape)} >= {level})" for tap in taps)
        lines += delayed(f"{name}_step", 1, reaching, config.levels)
        reached = f"{name}_step_was"
        if config.accumulates:
            earlier = f"(!first_was & {name}_reached)"
            lines += [
                f"reg {name}_reached = 0;",
                f"always @(posedge clk) if (step_was) {name}_reached <= {name}_step_was | {earlier};",
            ]
            reached = f"{name}_reached"
        facts[f"{name} reaches a level exactly if a tap does"] = f"({value_of(output, shape)} >= {level}) == {reached}"
    statement = "Each output reaches a level exactly if a tap of its channel in the window reaches it"
    return [_of_steps(config, site, statement, lines, facts, config.levels)]


def of_sum(config: SumConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of an average pool's sums: adder trees over taps, accumulation over cycles."""
    channels, shape, levels = _channels(config), config.window.input.shape, len(config.level_bits)
    if not config.accumulates:
        trees = [_Tree(name, taps, output) for name, taps, output in channels]
        return [_of_trees(site, trees, shape, levels)]
    trees = [_Tree(name, taps, f"{name}_level_{levels - 1}_0") for name, taps, _ in channels if levels]
    width, lines, facts = signed_bits(*config.sum_range), [], {}
    for name, taps, output in channels:
        step = f"$signed({name}_level_{levels - 1}_0)" if trees else value_of(taps[0], shape)
        lines += [
            f"reg signed [{width - 1}:0] {name}_sum = 0;",
            f"always @(posedge clk) if (step_was) {name}_sum <= first_was ? {step} : {name}_sum + {step};",
        ]
        facts[f"{name} is the sum of all steps"] = f"{value_of(output, config.result)} == {name}_sum"
    statement = "Each output is the sum of its channel over all steps of the window"
    whole = _of_steps(config, site, statement, lines, facts, levels, rests_on="pool" if trees else "")
    return [_of_trees(site, trees, shape, levels), whole] if trees else [whole]


def _of_trees(site: Site, trees: Sequence[_Tree], shape: Shape, cycles: int) -> Obligation:
    """Return the proof `Obligation` that each adder tree's output is the sum of its values, ``cycles`` cycles later."""
    bits = site.module.ports["i__payload"].width
    lines, facts = delayed("payload", bits, "i__payload", cycles), {}
    lowest = -(1 << shape.width - 1) if shape.signed else 0
    for tree in trees:
        values = [value_of(bits.replace("i__payload", "payload_was"), shape) for bits in tree.values]
        width = signed_bits(len(values) * lowest, len(values) * (lowest + (1 << shape.width) - 1))
        lines.append(f"wire signed [{width - 1}:0] {tree.name}_values = {' + '.join(values)};")
        facts[f"{tree.name} is the sum of its values"] = f"$signed({tree.root}) == {tree.name}_values"
    return pipeline(
        site,
        "pool",
        f"Each sum of a step is the sum of its {len(trees[0].values)} values, {cycles} cycles later.",
        cycles,
        facts,
        methods=("algebra", "exhaustive", "induction"),
        observer=lines,
    )


def _channels(config: ChannelwisePoolConfig) -> list[tuple[str, list[str], str]]:
    """Return a list of a pool's output values: name, taps in one cycle, and output, as Verilog expressions."""
    window, source = config.window, config.window.input
    bits = config.result.width  # type: ignore[attr-defined]
    first = dict(window.step_layout)["taps"].offset
    channels = []
    for lane, pixel in product(range(config.lanes), range(window.pixels)):
        positions = ((pixel * window.taps + tap) * source.lanes + lane for tap in range(window.taps))
        taps = [part("i__payload", first + position * source.bits, source.bits) for position in positions]
        output = part("o__payload", (lane * window.pixels + pixel) * bits, bits)
        channels.append((at_pixel(f"lane_{lane}", pixel, window.pixels), taps, output))
    return channels


def _of_steps(
    config: Any, site: Site, statement: str, lines: Sequence[str], facts: dict[str, str], levels: int, **fields: Any
) -> Obligation:
    """Return the `Obligation` that ``facts`` hold for a pool's partial result after each step (cycle) of a window.

    The lines can read ``step_was`` and ``first_was``: a step of ``levels`` cycles ago, and whether it is the first one
    of its window.
    """
    layout = dict(config.window.step_layout)
    is_first, is_last = (part("i__payload", layout[name].offset, 1) for name in ("first", "last"))
    result = "has_result" if config.accumulates else "step_was"
    return site.obligation(
        "pool",
        f"{statement}, {config.latency} cycles after the last step.",
        observer=(
            *register("is_inside", f"i__valid & !{is_last}"),
            *delayed("step", 1, "i__valid", levels, resets=True),
            *delayed("first", 1, is_first, levels),
            *register("has_result", "step_was"),
            *lines,
        ),
        assumes={
            "a window begins with its first step": f"!i__valid | (is_inside != {is_first})",
            "the steps of a window have no gap": "!is_inside | i__valid",
        },
        asserts={fact: f"!{result} | ({expression})" for fact, expression in facts.items()},
        cover=f"{result} & o__valid",
        structure={"cycles": config.latency + 1},
        **fields,
    )


def of_running_sum(config: RunningSumConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of a global pool: an output is the sum of its channel over all pixels of the map.

    The observer adds up the values of one fold, any of them.
    """
    source, layout, wait = config.window.input, dict(config.window.step_layout), 1 + config.memory_cycles
    width = signed_bits(*(source.frame_pixels * end for end in source.value_range))
    is_first, is_last = (part("i__payload", layout[name].offset, 1) for name in ("first", "last"))
    has_folds = source.folds > 1
    fold, size = bits_for(source.folds - 1), config.result.width
    lines = [
        f"wire {fold} marked_fold = $anyconst;" if has_folds else "wire marked_fold = 0;",
        *counter("fold_index", source.folds, "i__valid"),
        *delayed("step", 1, "i__valid & (fold_index == marked_fold)", wait, resets=True),
        *delayed("first", 1, is_first, wait),
        *delayed("last", 1, is_last, wait),
        *register("is_begun", "is_begun | (step_was & first_was)"),
        *register("is_done", "step_was & last_was & (is_begun | first_was)"),
    ]
    facts, invariants = {}, {"a fold comes next": f"fold_index < {source.folds}"}
    trees = _pixel_trees(config)
    for lane, lane_trees in enumerate(trees):
        if source.pixels == 1:
            (value,) = lane_trees[0].values
            lines += delayed(f"lane_{lane}_value", source.bits, value, wait)
            step = value_of(f"lane_{lane}_value_was", source.shape)
        else:
            for tree in lane_trees:
                lines += delayed(tree.name, config.span_bits, tree.root, config.memory_cycles)
            step = " + ".join(f"$signed({tree.name}_was)" for tree in lane_trees)
        lines += [
            f"reg signed [{width - 1}:0] lane_{lane}_sum = 0;",
            f"always @(posedge clk) if (step_was) lane_{lane}_sum <= (first_was ? 0 : lane_{lane}_sum) + {step};",
        ]
        is_sum = f"$signed({part('o__payload', lane * size, size)}) == lane_{lane}_sum"
        facts[f"lane {lane} is the sum over the map"] = f"!is_done | ({is_sum})"
        stored = part("sums_word", lane * size, size) if has_folds else part("o__payload", lane * size, size)
        invariants[f"the sum so far of lane {lane} is stored"] = f"!is_begun | ($signed({stored}) == lane_{lane}_sum)"
    rules: dict[str, str] = {}
    fields = probed(site, sums=(source.folds, config.sum_bits, "marked_fold")) if has_folds else {}
    if has_folds:
        fold_bits = part("i__payload", layout["fold"].offset, layout["fold"].width)
        rules = {
            "a fold is marked": f"marked_fold < {source.folds}",
            "folds come in turn": f"!i__valid | ({fold_bits} == fold_index)",
        }
    sums = [tree for lane_trees in trees for tree in lane_trees] if source.pixels > 1 else []
    return [
        *([_of_trees(site, sums, source.shape, 1)] if sums else []),
        site.obligation(
            "pool",
            f"Each output is the sum of its channel over the {source.frame_pixels} pixels of the map.",
            observer=tuple(lines),
            assumes=rules,
            invariants=invariants,
            asserts=facts,
            cover="is_done & o__valid",
            rests_on="pool" if sums else "",
            # A word that is read came through the pipeline, and so did the step that wrote it.
            structure={"cycles": 2 * wait + 1},
            **fields,
        ),
    ]


def _pixel_trees(config: RunningSumConfig) -> list[list[_Tree]]:
    """Return a list: per lane of a global pool, the adder trees over a beat's pixels, each of up to eight pixels."""
    source, spans = config.window.input, config.pixel_spans
    first = dict(config.window.step_layout)["operand"].offset
    lanes = []
    for lane in range(config.lanes):
        trees = []
        for index, pixels in enumerate(spans):
            positions = (lane * source.pixels + pixel for pixel in pixels)
            values = [part("i__payload", first + position * source.bits, source.bits) for position in positions]
            name = f"pixel_sum_{lane}" if len(spans) == 1 else f"pixel_sum_{lane}_{index}"
            trees.append(_Tree(f"lane_{lane}_span_{index}", values, name))
        lanes.append(trees)
    return lanes


PROOFS = {
    MaxPoolConfig: Proofs((of_max_pool,), resets=False),
    SumConfig: Proofs((of_sum,), resets=False),
    RunningSumConfig: Proofs((of_running_sum,), resets=False),
}
