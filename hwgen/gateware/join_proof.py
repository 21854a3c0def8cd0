"""Proof obligations ``tokens`` and ``progress`` of joins: outputs are the inputs' beats, in order, without delay.

A join reads a beat of each input, or of one input in turn, or keeps the beats of a map of one pixel for a whole frame.
A copy is a join of one input.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.gateware import kept_proof
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.stream import numbered
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, choice, part
from hwgen.obligations.observers import counter, delayed


def obligations(config: JoinConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of a join: it outputs its input beats' values, and starts as soon as it can."""
    tokens = _in_turn if config.in_turn else _kept_pixel if config.spread else _beats_together
    return [tokens(config, site), _progress(config, site)]


def _ports(config: JoinConfig) -> list[str]:
    """Return a list of the Verilog names of a join's input streams."""
    return [numbered("i", index, len(config.inputs)) for index in range(len(config.inputs))]


def _step_lines(config: JoinConfig) -> list[str]:
    """Return a list of Verilog lines that count a join's steps (cycles) per pixel, and say when their beats are valid.

    If inputs come in turn, ``turn`` is the input of the step. If the last input is kept, ``writes`` is high in the
    steps that read a beat of it.
    """
    names = _ports(config)
    lines = ["wire taken = start;", *counter("fold_count", config.output_folds, "taken")]
    if config.in_turn:
        bits = max(1, (len(names) - 1).bit_length())
        turn = choice("fold_count", [f"{bits}'d{index}" for index in config.step_inputs])
        offered = choice("turn", [f"{name}__valid" for name in names])
        return [*lines, f"wire [{bits - 1}:0] turn = {turn};", f"wire is_offered = {offered};"]
    *others, last = [f"{name}__valid" for name in names]
    if config.spread:
        lines += [*counter("window_count", config.windows, "fold_count_ends"), "wire writes = window_count == 0;"]
        last = f"({last} | !writes)"
    return [*lines, f"wire is_offered = {' & '.join([*others, last])};"]


def _ready_facts(config: JoinConfig, site: Site) -> dict[str, str]:
    """Return a dict from text to Verilog fact: a join's input is ready exactly in the steps that read a beat of it.

    A ``ready`` that is ``start`` has no port in the emitted module, except in a join with inputs in turn.
    """
    names = _ports(config)
    takes = ["taken"] * len(names)
    if config.in_turn:
        takes = [f"(taken & (turn == {index}))" for index in range(len(names))]
    elif config.spread:
        takes[-1] = "(taken & writes)"
    return {
        f"a step takes a beat of {name} in its turn, and nothing else does": f"{name}__ready == {when}"
        for name, when in zip(names, takes, strict=True)
        if when != "taken" or site.has(f"{name}__ready")
    }


def _index_fact(site: Site) -> dict[str, str]:
    """Return a dict from text to Verilog fact: port ``fold`` counts a pixel's steps (cycles); empty without it."""
    return {"steps of a pixel are counted": "fold == fold_count"} if site.has("fold") else {}


def _input_data(config: JoinConfig) -> list[str]:
    """Return a list of the Verilog expressions of the beat on each of a join's inputs, without ``last``."""
    return [
        part(f"{name}__payload", 0, beat.data_bits) for name, beat in zip(_ports(config), config.inputs, strict=True)
    ]


def _beats_together(config: JoinConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` of a join that reads a beat of each input: it outputs them together, unchanged."""
    return _of_values(
        config,
        site,
        "A step takes a beat of each input, and has their values, unchanged, in the next cycle.",
        list(reversed(_input_data(config))),
    )


def _in_turn(config: JoinConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` of a join that reads its inputs in turn: it outputs each beat read, unchanged."""
    operand = dict(config.step_layout)["operand"]
    widest = operand.width // (config.input.lanes * config.pixels)
    words = []
    for index, (name, beat) in enumerate(zip(_ports(config), config.inputs, strict=True)):
        values = [
            f"{widest}'d0 | {part(f'{name}__payload', position * beat.bits, beat.bits)}"
            for position in reversed(range(beat.lanes * beat.pixels))
        ]
        source = [f"{(len(config.inputs) - 1).bit_length()}'d{index}"] if len(config.inputs) > 1 else []
        words.append(f"{{{', '.join([*source, *(f'({value})' for value in values)])}}}")
    return _of_values(
        config,
        site,
        "A step takes a beat of the input whose turn it is, all beats of a pixel from each input, and has its values, "
        "unchanged, in the next cycle.",
        [choice("turn", words)],
    )


def _of_values(config: JoinConfig, site: Site, statement: str, words: Sequence[str]) -> Obligation:
    """Return the proof `Obligation` that a join outputs ``words``, highest bits first, in the cycle after each step."""
    width = config.step_layout.size
    return site.obligation(
        "tokens",
        statement,
        observer=(
            *_step_lines(config),
            *delayed("step", width, f"{{{', '.join(words)}}}", 1),
            *delayed("taken", 1, "taken", 1, resets=True),
        ),
        invariants={"steps are counted within a pixel": f"fold_count < {config.output_folds}"},
        asserts={
            "a step is accepted when its beats are valid": "!taken | is_offered",
            **_ready_facts(config, site),
            **_index_fact(site),
            "a step leaves in the next cycle": "o__valid == taken_was",
            "the step has the values of the beats": "!o__valid | (o__payload == step_was)",
        },
        cover="o__valid & start",
    )


def _kept_pixel(config: JoinConfig, site: Site) -> Obligation:
    """Return the `Obligation` of a join whose last input is a map of one pixel, which it stores for all pixels."""
    *others, last = _input_data(config)
    (*_, kept), fields = config.inputs, dict(config.step_layout)
    widths = [beat.data_bits for beat in config.inputs]
    counters = {"window_index": "window_count"} if site.has("window_index") else {}
    below = sum(widths[:-1])
    return kept_proof.obligation(
        site,
        "A step takes a beat of each input but the last one, whose beats come with the first pixel and are kept.",
        "shared_beats",
        kept.folds,
        kept.data_bits,
        observer=[
            *_step_lines(config),
            f"wire {bits_for(kept.folds - 1)} address = fold_count;",
            f"wire [{kept.data_bits - 1}:0] word = {last};",
            *delayed("step", below, f"{{{', '.join(reversed(others))}}}", config.latency),
            *delayed("taken", 1, "taken", config.latency, resets=True),
        ],
        invariants={
            "steps are counted within a frame": (
                f"(fold_count < {config.output_folds}) & (window_count < {config.windows})"
            ),
            **{f"{signal} follows from the steps": f"{signal} == {value}" for signal, value in counters.items()},
        },
        asserts={
            "a step is accepted when its beats are valid": "!taken | is_offered",
            **_ready_facts(config, site),
            **_index_fact(site),
            f"a step leaves after {config.latency} cycles": "o__valid == taken_was",
            "the step has the values of the beats": f"!o__valid | ({part('o__payload', 0, below)} == step_was)",
            "the step has the kept values": (
                f"!is_used_was | ({part('o__payload', fields[f'operand_{len(others)}'].offset, kept.data_bits)} == "
                "marked_word)"
            ),
        },
        cover="is_used_was & !rst",
    )


def _progress(config: JoinConfig, site: Site) -> Obligation:
    """Return the `Obligation` that a join's step (cycle) starts once its beats are valid and its results fit."""
    return site.obligation(
        "progress",
        "A step is accepted when its beats are valid and there is room.",
        methods=("pdr",),
        # A register, because ABC searches no run of a circuit without one.
        observer=(*_step_lines(config), *delayed("taken", 1, "taken", 1, resets=True)),
        asserts={"a step is accepted": "!(room & is_offered) | taken", **_ready_facts(config, site)},
        cover="taken_was",
    )


PROOFS = {JoinConfig: Proofs((obligations,))}
