"""Obligations ``schedule``: the exact cycles that plans count on, for any pattern of stalls at both ends.

`hwgen.schedule.events` states when each beat is offered or taken, as the latest of the events that it waits for. Here
the same cycles follow from an observer's counts of transfers. So a component is never a cycle early or late.
"""

from __future__ import annotations

from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.unload import UnloadConfig
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site, bits_for
from hwgen.prove.streams.occupancy import counter_invariants, stored, transfers

__all__ = ["of_fifo", "of_regroup", "of_unload"]


def of_fifo(config: FifoConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a FIFO: beat n is offered at the latest of its write, and of the beat before leaving."""
    count, latency = bits_for(config.depth + 1), config.latency
    taken = "(o__valid & o__ready)"
    sees = stored(site)
    return [
        site.obligation(
            "schedule",
            f"A beat is offered exactly {latency} cycles after its write, or one after the beat before it left.",
            methods=("induction", "pdr"),
            observer=(
                f"reg {count} waiting = 0; reg {count} aged = 0; reg [{latency - 1}:0] written = 0;",
                "always @(posedge clk) begin",
                f"    waiting <= rst ? 0 : waiting + i__valid - {taken};",
                f"    written <= rst ? 0 : {{written[{latency - 2}:0], i__valid}};",
                f"    aged <= rst ? 0 : aged + written[{latency - 2}] - {taken};",
                "end",
            ),
            sees=sees,
            assumes={"the writer has a credit for each beat": f"!i__valid | (waiting < {config.depth})"},
            invariants={
                "the counters' sum is the number of waiting beats": f"32'd0 + {' + '.join(sees)} == waiting",
                **counter_invariants(config, sees),
                "beats that wait are offered, or were written in the cycle before": (
                    f"waiting == 32'd0 + aged + {' + '.join(f'written[{age}]' for age in range(latency - 1))}"
                ),
            },
            asserts={"a beat is offered in time": "o__valid == (aged != 0)"},
            cover=f"o__valid & (aged == {min(2, config.depth)})",
            free_memories=True,
        )
    ]


def of_regroup(config: RegroupConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a width converter: beats are offered, and taken, as soon as its register allows.

    `RegroupConfig.after` says which input beat completes an output beat, and `RegroupConfig.waiting` how many output
    beats of earlier pixels may wait when an input beat is taken.
    """
    num_in, num_out, lanes = len(config.counts), len(config.sizes), config.output.lanes
    taken, sent = transfers(config)
    done = [sum(after < beat for after in config.after) for beat in range(num_in)]
    starts = [output_lanes[0] for output_lanes in config.output_lanes]
    limits = [room + advance for room, advance in zip(config.room, config.advances, strict=True)]

    def table(entries: list[int] | tuple[int, ...]) -> str:
        """Return the Verilog expression of a signed number that each input beat of a pixel has."""
        values = [f"-16'sd{-entry}" if entry < 0 else f"16'sd{entry}" for entry in entries]
        return " : ".join([*(f"beat_in == {beat} ? {value}" for beat, value in enumerate(values[:-1])), values[-1]])

    counters = {"seen_in": "input_beat_index", "seen_out": "output_beat_index"}
    sees = {name: path for name, path in counters.items() if path in site.module.signals}
    equal = {"seen_in": "beat_in", "seen_out": "beat_out"}
    bounds = [f"((beat_in != {(beat + 1) % num_in}) | (held <= {largest}))" for beat, largest in enumerate(limits)]
    return [
        site.obligation(
            "schedule",
            "An output beat is offered exactly in the cycle after the input beat that completes it, or after the beat "
            f"before it left; {'in every cycle' if config.always_ready else 'an input beat is taken as soon as'} few "
            "enough output beats wait.",
            methods=("induction", "pdr"),
            observer=(
                f"reg {bits_for(num_in - 1)} beat_in = 0; reg {bits_for(num_out - 1)} beat_out = 0;",
                "reg [2:0] pixels = 0;",
                f"wire ends_in = {taken} & (beat_in == {num_in - 1});",
                f"wire ends_out = {sent} & (beat_out == {num_out - 1});",
                "always @(posedge clk) begin",
                f"    beat_in <= rst | ends_in ? 0 : beat_in + {taken};",
                f"    beat_out <= rst | ends_out ? 0 : beat_out + {sent};",
                "    pixels <= rst ? 0 : pixels + ends_in - ends_out;",
                "end",
                f"wire signed [15:0] earlier = pixels * {num_out} - beat_out;",
                f"wire signed [15:0] complete = {table(done)};",
                f"wire signed [15:0] most = {table(config.waiting)};",
                f"wire signed [15:0] without = earlier - $signed({{1'b0, {sent}}});",
            ),
            sees=sees | {"held": "lanes_held"},
            invariants={
                "the counter of held lanes follows from the beats": (
                    f"32'd0 + held + beat_out * {lanes} == pixels * {num_out * lanes} + ({table(starts)})"
                ),
                "beats are counted": " & ".join(
                    [
                        f"(beat_in < {num_in}) & (beat_out < {num_out})",
                        *(f"({name} == {equal[name]})" for name in sees),
                    ]
                ),
                "the register is not too full": " & ".join(bounds),
            },
            asserts={
                "a beat is offered in time": "o__valid == (earlier + complete > 0)",
                **(
                    {"a beat can be taken in each cycle": "without <= most"}
                    if config.always_ready
                    else {"a beat is taken in time": "i__ready == (without <= most)"}
                ),
            },
            cover=f"{taken} & {sent} & !rst",
            free_memories=True,
        )
    ]


def of_unload(config: UnloadConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a serialiser: the beats of a result leave in the cycles behind it, without gaps."""
    if not config.latency or not site.has("beats_left", "o__valid"):
        return []
    counts, spacing = config.fold_beats, max(config.fold_beats)
    beats = " : ".join([*(f"fold == {fold} ? {count}" for fold, count in enumerate(counts[:-1])), str(counts[-1])])
    return [
        site.obligation(
            "schedule",
            f"The beats of a result leave from {config.latency} cycle after it on, one per cycle.",
            methods=("pdr",),
            observer=(
                f"reg {bits_for(spacing)} since = {spacing}; reg {bits_for(len(counts) - 1)} fold = 0;",
                f"reg {bits_for(spacing)} left = 0;",
                "always @(posedge clk) begin",
                f"    since <= rst ? {spacing} : i__valid ? 1 : since + (since != {spacing});",
                f"    fold <= rst ? 0 : i__valid ? (fold == {len(counts) - 1} ? 0 : fold + 1) : fold;",
                f"    left <= rst ? 0 : i__valid ? ({beats}) : left - (left != 0);",
                "end",
            ),
            assumes={f"results are at least {spacing} cycles apart": f"!i__valid | (since == {spacing})"},
            asserts={"beats leave in time": "o__valid == (left != 0)"},
            cover="o__valid & (left == 1)",
            free_memories=True,
        )
    ]
