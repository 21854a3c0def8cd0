"""Proofs of a stream's width converter: each channel of a pixel leaves once, in its lane of its beat, in its cycle."""

from __future__ import annotations

from typing import Any

from hwgen.gateware.regroup import RegroupConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, choice, literal, part, repeated
from hwgen.obligations.observers import balance, counter, register
from hwgen.obligations.streams import bits_of_values, of_streams, rules, waits

MAX_PIXELS = 7
"""Maximum number of pixels inside a width converter that the proof's observer can count."""


def obligations(config: RegroupConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of a stream's width converter: occupancy, data, order and cycle of each beat.

    A converter whose streams are always ready takes every beat; ``schedule`` says when it sends them.
    """
    value = config.output.bits * config.output.pixels
    width = config.output.lanes * value
    return [
        *of_streams(config, site),
        _occupancy(config, site),
        _tokens(config, site),
        bits_of_values(site, value, config.lanes * value, width),
        _schedule(config, site),
    ]


def _occupancy(config: RegroupConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a width converter's register of channels does not overflow."""
    inputs, largest = site.streams("input"), max(config.positions) + max(config.advances)
    begins = " | ".join(f"(lanes_left == {position})" for position in config.positions)
    return site.obligation(
        "occupancy",
        f"The register of {config.held} channels has a place for each channel of an accepted beat.",
        methods=("pdr",),
        observer=waits(site, *inputs),
        assumes=rules(*inputs),
        asserts={
            "a beat is accepted only where its channels can begin": f"!input_transfer | {begins}",
            "no more channels are held than the counter counts": f"lanes_held <= {largest}",
            "a beat is valid only if the register holds it": f"!o__valid | (lanes_held >= {config.output.lanes})",
        },
        cover="o__valid" if config.always_ready else "o__valid & !o__ready",
        free_memories=True,
    )


def _of_beats(
    config: RegroupConfig,
    site: Site,
    obligation_kind: str,
    statement: str,
    *observer: str,
    invariants: dict[str, str],
    **fields: Any,
) -> Obligation:
    """Return an `Obligation` of a width converter, with an observer that counts beats in, beats out, pixels inside."""
    num_in, num_out, lanes = len(config.counts), len(config.sizes), config.output.lanes
    taken, sent = _transfers(config)
    begin = choice("beat_in", [output_lanes[0] for output_lanes in config.output_lanes])
    limits = [room + advance for room, advance in zip(config.room, config.advances, strict=True)]
    bounds = [f"((beat_in != {(beat + 1) % num_in}) | (lanes_held <= {most}))" for beat, most in enumerate(limits)]
    indices = [side for side in ("in", "out") if site.has(f"{side}put_beat_index")]  # unless all beats are alike
    counted = [f"({side}put_beat_index == beat_{side})" for side in indices]
    return site.obligation(
        obligation_kind,
        statement,
        observer=(
            *counter("beat_in", num_in, taken),
            *counter("beat_out", num_out, sent),
            *balance("pixels", MAX_PIXELS, "beat_in_ends", "beat_out_ends"),
            *observer,
        ),
        invariants={
            "the counter of held lanes follows from the beats": (
                f"32'd0 + lanes_held + beat_out * {lanes} == pixels * {num_out * lanes} + {begin}"
            ),
            "beats are counted": " & ".join([f"(beat_in < {num_in}) & (beat_out < {num_out})", *counted]),
            "the register is not too full": " & ".join(bounds),
            **invariants,
        },
        **fields,
    )


def _transfers(config: RegroupConfig) -> tuple[str, str]:
    """Return a pair of Verilog conditions: a width converter accepts an input beat, and sends an output beat."""
    if config.always_ready:
        return "i__valid", "o__valid"
    return "(i__valid & i__ready)", "(o__valid & o__ready)"


def _schedule(config: RegroupConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a width converter sends and accepts beats as soon as its register allows.

    `RegroupConfig.completing_beats` lists the input beat that completes each output beat, and `RegroupConfig.waiting`
    how many output beats of earlier pixels may wait when an input beat is accepted.
    """
    num_out, (taken, sent) = len(config.sizes), _transfers(config)
    done = [sum(after < beat for after in config.completing_beats) for beat in range(len(config.counts))]
    complete, most = (choice("beat_in", [literal(entry, 16) for entry in each]) for each in (done, config.waiting))
    return _of_beats(
        config,
        site,
        "schedule",
        "An output beat is valid exactly in the cycle after the input beat that completes it, or after the beat "
        f"before it left; {'in every cycle' if config.always_ready else 'an input beat is accepted as soon as'} few "
        "enough output beats wait.",
        f"wire signed [15:0] earlier = pixels * {num_out} - beat_out;",
        f"wire signed [15:0] complete = {complete};",
        f"wire signed [15:0] most = {most};",
        f"wire signed [15:0] without = earlier - $signed({{1'b0, {sent}}});",
        invariants={},
        asserts={
            "a beat is valid in time": "o__valid == (earlier + complete > 0)",
            **(
                {"a beat can be taken in each cycle": "without <= most"}
                if config.always_ready
                else {"a beat is accepted in time": "i__ready == (without <= most)"}
            ),
        },
        cover=f"{taken} & {sent} & !rst",
        free_memories=True,
    )


def _tokens(config: RegroupConfig, site: Site) -> Obligation:
    """Return the `Obligation` that any one channel of a pixel leaves once, in its lane of its output beat."""
    value, lanes, num_out = config.output.bits * config.output.pixels, config.output.lanes, len(config.sizes)
    width, (taken, sent) = lanes * value, _transfers(config)
    sources = [(beat, lane) for beat, count in enumerate(config.counts) for lane in range(count)]
    targets = [(beat, lane) for beat, size in enumerate(config.sizes) for lane in range(size)]
    spread = repeated("token", config.lanes, value)
    leaving = choice("target_lane", [part("o__payload", lane * value, value) for lane in range(lanes)])
    asserts = {
        "the marked channel leaves unchanged, in its lane of its beat": (
            f"!(is_marked & (ahead == 0) & {sent} & (beat_out == target_beat)) | (({leaving}) == {{{value}{{value}}}})"
        ),
    }
    if not config.always_ready:
        asserts["last marks the last beat of a pixel whose last beat had it"] = (
            f"!{sent} | ((beat_out == {num_out - 1}) ? !(is_marked & (ahead == 0)) | "
            f"(has_last & (o__payload[{width}] == last)) : !o__payload[{width}])"
        )
    zeros = [
        f"(!(beat_out == {beat}) | (o__payload[{width - 1}:{size * value}] == 0))"
        for beat, size in enumerate(config.sizes)
        if size < lanes
    ]
    if zeros:
        asserts["lanes past the last channel are zero"] = f"!o__valid | ({' & '.join(zeros)})"
    return _of_beats(
        config,
        site,
        "tokens",
        "Every channel of a pixel leaves once, in its lane of its beat, and pixels in order.",
        f"wire [{config.lanes - 1}:0] token = $anyseq;",
        "wire token_last = $anyseq;",
        "wire mark = $anyseq;",
        f"wire {bits_for(len(sources) - 1)} channel = $anyconst;",
        f"wire {bits_for(len(config.counts) - 1)} source_beat = {choice('channel', [beat for beat, _ in sources])};",
        f"wire {bits_for(config.lanes - 1)} source_lane = {choice('channel', [lane for _, lane in sources])};",
        f"wire {bits_for(num_out - 1)} target_beat = {choice('channel', [beat for beat, _ in targets])};",
        f"wire {bits_for(lanes - 1)} target_lane = {choice('channel', [lane for _, lane in targets])};",
        "reg [2:0] ahead = 0; reg value = 0; reg last = 0;",
        f"wire marks = mark & !is_marked & {taken} & (beat_in == source_beat);",
        "wire leaves = is_marked & (ahead == 0) & beat_out_ends;",
        *register("is_marked", "marks | (is_marked & !leaves)"),
        "wire passes = is_marked & beat_out_ends & (ahead != 0);",
        "always @(posedge clk) ahead <= rst ? 0 : marks ? pixels - beat_out_ends : ahead - passes;",
        "always @(posedge clk) if (marks) value <= "
        f"{choice('source_lane', [f'token[{lane}]' for lane in range(config.lanes)])};",
        *register("has_last", "!leaves & (has_last | ((marks | is_marked) & beat_in_ends))"),
        "always @(posedge clk) if ((marks | is_marked) & !has_last & beat_in_ends) last <= token_last;",
        *waits(site, *site.streams("input")),
        assumes={**rules(*site.streams("input")), "there are as many channels": f"channel < {len(sources)}"},
        invariants=_marked_channel_facts(config),
        asserts=asserts,
        cover="leaves & !rst",
        drives={"i__payload": spread if config.always_ready else f"{{token_last, {spread}}}"},
    )


def _marked_channel_facts(config: RegroupConfig) -> dict[str, str]:
    """Return a dict from text to Verilog invariant that locates the proof's marked channel in a width converter."""
    lanes, value = config.output.lanes, config.output.bits * config.output.pixels
    registers = [f"held_{lane}" for lane in range(config.held)]
    whole = len(config.sizes) * lanes
    position = f"(32'd0 + ahead * {whole} + target_beat * {lanes} + target_lane - beat_out * {lanes})"
    stored = " & ".join(
        f"(({position} != {lane}) | ({name} == {{{value}{{value}}}}))" for lane, name in enumerate(registers)
    )
    invariants = {
        "the marked pixel waits": (
            "!is_marked | (has_last ? (ahead < pixels) : ((ahead == pixels) & (beat_in > source_beat)))"
        ),
        "only a marked pixel has ended": "is_marked | !has_last",
        "the marked channel is in the register": (
            f"!(is_marked & ((ahead != 0) | (beat_out <= target_beat))) | (({position} < lanes_held) & {stored})"
        ),
    }
    if not config.always_ready:
        invariants["the flag of the newest pixel is kept"] = (
            "!(is_marked & has_last & (pixels == 32'd0 + ahead + 1)) | (is_last_pixel == last)"
        )
    return invariants


PROOFS = {RegroupConfig: Proofs((obligations,))}
