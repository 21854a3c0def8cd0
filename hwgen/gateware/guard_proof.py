"""Proof obligations of a frame guard: only whole frames leave, and whole frames that arrive pass unchanged.

With packets, ``last`` of the input ends a packet of several frames, and the number of frames can change from packet to
packet. The observer chooses the number whenever ``load`` shows the guard that no packet is under way.
"""

from __future__ import annotations

from hwgen.gateware.guard import PACKET, PACKET_BITS, GuardConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, field_bits
from hwgen.obligations.observers import register
from hwgen.obligations.streams import of_streams, rules, waits

_SENT, _TAKEN = "(o__valid & o__ready)", "(i__valid & i__ready)"


def obligations(config: GuardConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of a frame guard: stream protocol, whole frames, error flags, and progress."""
    return [*of_streams(config, site), _tokens(config, site), *_progress(config, site)]


def _tokens(config: GuardConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a guard outputs whole frames, padded with zeros or cut, with error flags."""
    beats, width = config.beats, config.beat.data_bits
    lines, assumed, counted = _sizes(config, site)
    # A bus shell clears errors in each cycle: the port is a constant there, and not emitted.
    clear = "error__clear" if "error__clear" in site.module.ports else "1'b1"
    data, leaving = f"i__payload[{width - 1}:0]", f"o__payload[{width - 1}:0]"
    observer = [
        *_positions(config),
        *lines,
        f"wire ends = {_TAKEN} & i__payload[{width}];",
        "wire is_too_short = ends & !is_whole & !is_final_in; wire is_too_long = " + _TAKEN + " & !ends & is_final_in;",
        *register("is_short", f"is_short ? !({_SENT} & is_final_out) : is_too_short"),
        *register("was_short", f"is_too_short | (was_short & !{clear})"),
        *register("was_long", f"is_too_long | (was_long & !{clear})"),
        *waits(site, "i"),
    ]
    begin = "(beat_in == 0) & (frame_in == 0)"
    what = "A packet has as many frames as the guard was set to" if config.packets else "An input frame is one frame"
    return site.obligation(
        "tokens",
        f"Frames of {beats} beats leave: those that come, completed with zeros or without surplus beats. {what}.",
        observer=tuple(observer),
        assumes={**rules("i"), **assumed},
        invariants={
            "beats are counted": " & ".join(
                [
                    f"(beat_in < {beats}) & (beat_out < {beats}) & (frame_in < count) & (frame_out < count)",
                    *(["(beat_index == beat_out)"] if beats > 1 else []),
                    *counted,
                ]
            ),
            "the state follows from the beats": "(is_filling == is_short) & (is_dropping == is_whole)",
            "beats are received as they leave": (
                f"is_short ? ({begin} & !is_whole & ((beat_out != 0) | (frame_out != 0))) : "
                f"is_whole ? ({begin} & (beat_out == 0) & (frame_out == 0)) : "
                "((beat_in == beat_out) & (frame_in == frame_out))"
            ),
        },
        asserts={
            "last marks the last beat of each frame": (
                f"!o__valid | (o__payload[{width}] == (beat_out == {beats - 1}))"
            ),
            "an accepted beat leaves in the same cycle, or is surplus": f"!{_TAKEN} | {_SENT} | is_whole",
            "a beat leaves where it came, unchanged": (
                f"!({_TAKEN} & {_SENT}) | ((beat_in == beat_out) & (frame_in == frame_out) & ({data} == {leaving}))"
            ),
            "only the rest of what was too short is filled": f"!{_SENT} | {_TAKEN} | (is_short & ({leaving} == 0))",
            "surplus beats do not leave": "!is_whole | !o__valid",
            "errors are flagged until they are cleared": "(error__short == was_short) & (error__long == was_long)",
            **(
                {"a packet is under way": "in_packet == ((frame_out != 0) | is_short | is_whole)"}
                if config.packets
                else {}
            ),
        },
        cover=f"is_short & {_SENT} & is_final_out" if beats > 1 or config.packets else f"is_whole & {_TAKEN} & ends",
        run=_example_run(config, site) if beats > 1 else {},
    )


def _example_run(config: GuardConfig, site: Site) -> dict[str, str]:
    """Return a dict from input port to value, for a run without stalls whose beats all end a one-frame packet."""
    run = {"i__valid": "1'b1", "i__payload": f"{{1'b1, {config.beat.data_bits}'d0}}", "o__ready": "1'b1"}
    if not config.packets:
        return run
    fields = dict(PACKET)
    highest = PACKET.size
    for port in packet_ports(site):
        width = site.module.ports[port].width
        lowest = highest - width
        bits = {name: fields[name].offset - lowest for name in ("single", "next_single", "load")}
        ones = sum(1 << bits[name] for name in ("single", "next_single") if 0 <= bits[name] < width)
        told = f" | ({width}'d0 + !has_size << {bits['load']})" if 0 <= bits["load"] < width else ""
        run[port] = f"{width}'d{ones}{told}"
        highest = lowest
    return run | {"size": "1", "i__valid": "has_size"}


def _positions(config: GuardConfig) -> list[str]:
    """Return a list of Verilog lines that count a packet's beats and frames at the guard's input and output.

    ``is_whole`` is high if all beats of a packet have come, but not its end.
    """
    last, width = config.beats - 1, config.beat.data_bits
    lines = [
        f"wire is_final_in = !is_whole & (beat_in == {last}) & (frame_in == count - 1);",
        f"wire is_final_out = (beat_out == {last}) & (frame_out == count - 1);",
        *register("is_whole", f"{_TAKEN} ? !i__payload[{width}] & (is_whole | is_final_in) : is_whole"),
    ]
    for side, moves, restarts in (
        ("in", f"({_TAKEN} & !is_whole)", f"({_TAKEN} & i__payload[{width}]) | ({_TAKEN} & is_final_in)"),
        ("out", _SENT, f"({_SENT} & is_final_out)"),
    ):
        lines = [
            f"reg {bits_for(max(last, 1))} beat_{side} = 0; reg [{PACKET_BITS - 1}:0] frame_{side} = 0;",
            *lines,
            f"wire wraps_{side} = beat_{side} == {last};",
            "always @(posedge clk) begin",
            f"    beat_{side} <= rst | {restarts} ? 0 : {moves} ? (wraps_{side} ? 0 : beat_{side} + 1) : beat_{side};",
            f"    frame_{side} <= rst | {restarts} ? 0 : frame_{side} + ({moves} & wraps_{side});",
            "end",
        ]
    bits = f"[{PACKET_BITS - 1}:0]"
    return [f"reg {bits} count = 1;" if config.packets else f"wire {bits} count = 1;", *lines]


def packet_ports(site: Site) -> tuple[str, ...]:
    """Return a tuple of the names of a guard's ports that carry the packet size, the highest bits first."""
    return tuple(each.name for each in reversed(site.carriers("packet", PACKET)))


def _sizes(config: GuardConfig, site: Site) -> tuple[list[str], dict[str, str], list[str]]:
    """Return a triple: Verilog lines that track a guard's packet size; dict of assumptions on its ports; invariants."""
    if not config.packets:
        return [], {}, []
    single, load, next_single = (field_bits("packet", PACKET, name) for name in ("single", "load", "next_single"))
    before_last, size = field_bits("packet", PACKET, "before_last"), PACKET_BITS
    ports = packet_ports(site)
    lines = [] if ports == ("packet",) else [f"wire [{PACKET.size - 1}:0] packet = {{{', '.join(ports)}}};"]
    lines += [
        f"wire [{size - 1}:0] size = $anyseq; always @(posedge clk) if ({load}) count <= size;",
        *register("has_size", f"has_size | {load}"),
        "wire is_under_way = (beat_out != 0) | (frame_out != 0) | is_short | is_whole;",
    ]
    assumed = {
        "a packet has frames": f"!{load} | ((size != 0) & ({next_single} == (size == 1)))",
        "the size changes between packets": f"!{load} | (!is_under_way & !{_TAKEN})",
        "the size is set before the first beat after a reset": "has_size | !i__valid",
        "the size is the one that was set": (
            f"!has_size | (({single} == (count == 1)) & ((count == 1) | ({before_last} == count - {size}'d2)))"
        ),
    }
    is_last = "(frame_index_is_last == (frame_out == count - 1))"
    return lines, assumed, [f"(frame_index == frame_out) & (has_size ? {is_last} : !is_under_way)"]


def _progress(config: GuardConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation that a frame guard refuses a beat for fewer cycles than a frame has beats.

    It refuses beats only while it fills a short frame, and fills it whether beats come or not. A packet is filled to
    its end.
    """
    if config.packets:
        return [_packet_progress(config, site)]
    bound = config.beats - 1
    if not bound:
        return []
    return [
        site.obligation(
            "progress",
            f"A beat that comes waits for at most {bound} cycles with the reader ready. A short frame is filled "
            "without waiting for beats.",
            observer=(
                f"reg {bits_for(bound + 1)} refused = 0;",
                "wire is_refused = i__valid & !i__ready & o__ready;",
                f"always @(posedge clk) refused <= rst | i__ready ? 0 : refused + (is_refused & (refused != {bound}));",
            ),
            invariants={
                "the frame has more beats than were refused": (
                    f"(beat_index <= {bound}) & (!is_filling | (refused < beat_index))"
                ),
            },
            asserts={
                "a beat is not refused too often": f"!is_refused | (refused < {bound})",
                "a short frame is filled without a beat": "!is_filling | o__valid",
            },
            cover="is_refused & !rst",
        )
    ]


def _packet_progress(config: GuardConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a frame guard delays an input beat only while it fills a short packet.

    The obligation ``tokens`` states how many beats a packet has.
    """
    width = config.beat.data_bits
    return site.obligation(
        "progress",
        "A beat that comes is refused to a ready reader only while a packet that was too short is filled.",
        methods=("pdr",),
        observer=(
            f"wire ends = {_TAKEN} & i__payload[{width}];",
            # A packet is filled from the cycle after its end until ``in_packet`` falls.
            *register("may_fill", f"ends | (may_fill & !{_TAKEN})"),
        ),
        asserts={
            "a beat is refused while a packet is filled": "!(i__valid & !i__ready & o__ready) | (may_fill & o__valid)",
            "a short packet is filled without a beat": "!is_filling | o__valid",
            "surplus beats are accepted at once": "!is_dropping | i__ready",
        },
        cover="i__valid & !i__ready & o__ready & !rst",
    )


PROOFS = {GuardConfig: Proofs((obligations,))}
