"""Lines of observers that count the steps of windows, and assertions on the taps of a step.

Line buffers and tile buffers share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.obligations.expressions import choice
from hwgen.obligations.site import bits_for

__all__ = ["Condition", "delays", "has_tap", "marked_word", "tap_asserts", "token_beat", "token_words"]

Condition = Callable[[int, int, int], str]
"""Type of a Verilog condition on a tap: ``condition(stage, window, tap)``, with the tap's stage of the pipeline."""


def delays(counts: Mapping[str, int], latency: int) -> list[str]:
    """Return lines that delay a step's valid bit and counts: ``has_step_N`` and ``NAME_N`` in stage N of the pipeline.

    Parameters
    ----------
    counts : mapping of str to int
        Number of values of each count, by its name.
    latency : int
        Number of stages behind stage 0.
    """
    lines = []
    for stage in range(1, latency + 1):
        before = stage - 1
        lines += [
            f"reg has_step_{stage} = 0;",
            f"always @(posedge clk) has_step_{stage} <= !rst & has_step_{before};",
        ]
        for name, count in counts.items():
            lines += [
                f"reg {bits_for(count - 1)} {name}_{stage} = 0;",
                f"always @(posedge clk) {name}_{stage} <= {name}_{before};",
            ]
    return lines


def has_tap(window: LineBufferConfig, stage: int, tap: int) -> str:
    """Return the condition that the step in a stage of the pipeline has a tap: the last tap fold can have fewer."""
    return choice(f"tap_fold_{stage}", [f"1'b{int(tap < len(taps))}" for taps in window.step_taps])


def marked_word(window: LineBufferConfig) -> str:
    """Return the marked word as the value of a tap: each channel's bit, repeated over the width of a value."""
    bits = window.input.bits
    return ", ".join(f"{{{bits}{{word[{lane}]}}}}" for lane in reversed(range(window.input.lanes)))


def token_beat(source: BeatFormat) -> str:
    """Return a beat whose values each repeat one bit of the wire ``token``, and whose ``last`` is ``token_last``."""
    token = ", ".join(
        f"{{{source.bits}{{token[{lane * source.pixels + pixel}]}}}}"
        for lane in reversed(range(source.lanes))
        for pixel in reversed(range(source.pixels))
    )
    return f"{{token_last, {token}}}"


def token_words(window: LineBufferConfig) -> list[str]:
    """Return the bits of the wire ``token`` that are the channels of each pixel of a beat."""
    source = window.input
    return [
        f"{{{', '.join(f'token[{lane * source.pixels + pixel}]' for lane in reversed(range(source.lanes)))}}}"
        for pixel in range(source.pixels)
    ]


def tap_asserts(
    window: LineBufferConfig, latency: int, is_present: Condition, is_marked: Condition, is_padding: Condition
) -> dict[str, str]:
    """Return the assertions on the output: which steps are valid, first and last, and the value of each of their taps.

    Parameters
    ----------
    window : LineBufferConfig
        Windows and format of the steps.
    latency : int
        Cycles from a step to its taps on the output.
    is_present, is_marked, is_padding : Condition
        Whether a step has the tap, whether it is the marked word of the frame or tile that is read, and whether it is
        outside of the map.
    """
    bits, lanes, taps = window.input.bits, window.input.lanes, window.taps
    layout = dict(window.step_layout)
    asserts = {"steps come a fixed number of cycles after their start": f"o__valid == has_step_{latency}"}
    for flag, tap_fold, inner in (("first", 0, 0), ("last", window.tap_folds - 1, window.group_folds - 1)):
        asserts[f"{flag} marks the {flag} step of a fold"] = (
            f"!o__valid | (o__payload[{layout[flag].offset}] == "
            f"((tap_fold_{latency} == {tap_fold}) & (inner_{latency} == {inner})))"
        )
    pad = window.pad_value & ((1 << bits) - 1)
    for index in range(window.pixels):
        for tap in range(taps):
            offset = layout["taps"].offset + (index * taps + tap) * lanes * bits
            value = f"o__payload[{offset + lanes * bits - 1}:{offset}]"
            here = f"o__valid & {is_present(latency, index, tap)}"
            asserts[f"tap {tap} of window {index} is the pixel that it covers"] = (
                f"!({here} & is_open_{latency} & {is_marked(latency, index, tap)}) | "
                f"({value} == {{{marked_word(window)}}})"
            )
            if window.inside:
                flag = f"o__payload[{layout['inside'].offset + index * taps + tap}]"
                asserts[f"the flag of tap {tap} of window {index} is high inside of the map"] = (
                    f"!({here}) | ({flag} == !({is_padding(latency, index, tap)}))"
                )
            if window.padded or window.chooses:
                asserts[f"tap {tap} of window {index} has the padding's value outside of the map"] = (
                    f"!({is_padding(latency, index, tap)} & o__valid) | ({value} == {{{lanes}{{{bits}'d{pad}}}}})"
                )
    return asserts
