"""Obligations ``tokens``: no beat is lost, repeated or reordered, and ``last`` marks the right one.

The observer marks one beat at a time that is left free, and remembers its values and how many beats are before it. When
all of those have left, the next beat must have the same values. Since any beat can be the marked one, all beats leave
once and in order.
"""

from __future__ import annotations

from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.gateware.unload import UnloadConfig
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site, bits_for
from hwgen.prove.streams.occupancy import counter_invariants, since, stored, transfers
from hwgen.prove.streams.rules import rules, waits

__all__ = ["bits_of_values", "of_fifo", "of_last_stage", "of_regroup", "of_unload"]


def _last(beats: int, transfer: str) -> list[str]:
    """Return lines of an observer that count the beats of a frame in ``beat``, modulo ``beats``."""
    return [
        f"reg {bits_for(beats - 1)} beat = 0;",
        f"always @(posedge clk) beat <= rst ? 0 : ({transfer}) ? (beat == {beats - 1} ? 0 : beat + 1) : beat;",
    ]


def of_fifo(config: FifoConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a FIFO: the order of beats, and ``last`` on the last beat of each frame."""
    width, taken = config.width, "(o__valid & o__ready)"
    order = _block_ram_order(config, site) if config.in_block_ram else [_lut_ram_order(config, site)]
    return [
        *order,
        site.obligation(
            "last",
            f"The FIFO marks every {config.beats}th beat as the last of a frame, and no other.",
            methods=("pdr",),
            observer=tuple(_last(config.beats, taken)),
            asserts={"last marks the last beat": f"o__payload[{width}] == (beat == {config.beats - 1})"},
            cover=f"{taken} & o__payload[{width}]",
            free_memories=True,
        ),
    ]


def _lut_ram_order(config: FifoConfig, site: Site) -> Obligation:
    """Return the obligation that a FIFO in LUT RAM sends the beats that it received, with all values, in order."""
    width, depth, taken = config.width, config.depth, "(o__valid & o__ready)"
    address = bits_for(depth - 1)
    inner = "storage" if "storage" in site.module.instances else ""  # the module of a large memory
    prefix = f"{inner}." if inner else ""
    sees = stored(site) | {
        "storage_data": "storage__r0_data" if inner else "storage_data",
        "probe_word": f"{prefix}probe_word",
    }
    observer = [
        "wire mark = $anyseq;",
        "reg is_marked = 0;",
        f"reg {bits_for(depth + 1)} ahead = 0;",
        f"reg {bits_for(depth + 1)} waiting = 0;",
        f"reg {address} slot = 0;",
        f"reg {address} reads = 0;",
        f"reg {address} writes = 0;",
        f"reg [{width - 1}:0] value;",
        "wire marks = mark & i__valid & !is_marked;",
        "wire pop = (fifo_level != 0) & (!o__valid | o__ready);",
        f"always @(posedge clk) waiting <= rst ? 0 : waiting + i__valid - {taken};",
        f"always @(posedge clk) is_marked <= !rst & (marks | (is_marked & !({taken} & (ahead == 0))));",
        f"always @(posedge clk) ahead <= rst ? 0 : marks ? waiting - {taken} : ahead - ({taken} & (ahead != 0));",
        f"always @(posedge clk) writes <= rst ? 0 : i__valid ? (writes == {depth - 1} ? 0 : writes + 1) : writes;",
        f"always @(posedge clk) reads <= rst ? 0 : pop ? (reads == {depth - 1} ? 0 : reads + 1) : reads;",
        "always @(posedge clk) if (marks) begin slot <= writes; value <= i__payload; end",
    ]
    invariants = {
        "the counters' sum is the number of waiting beats": f"32'd0 + {' + '.join(stored(site))} == waiting",
        **counter_invariants(config, stored(site)),
        "the marked beat waits": "!is_marked | (ahead < waiting)",
    }
    drives = {f"{prefix}probe_address": "slot"}
    stored_word = "!is_marked | (o__valid & (ahead == 0)) | (probe_word == value)"
    if depth > 1:
        sees |= {"write_address": "write__addr", "read_address": "read__addr"}
        invariants |= {
            "addresses are inside the memory": f"(reads < {depth}) & (writes < {depth}) & (slot < {depth})",
            "beats are written and read in a circle": "(reads == read_address) & (writes == write_address)",
            "the next beat is written behind the stored ones": (
                f"(32'd0 + reads + fifo_level == writes) | (32'd0 + reads + fifo_level == writes + {depth})"
            ),
            "the marked beat is in its slot": (
                "!is_marked | (o__valid & (ahead == 0)) | (32'd0 + reads + ahead == slot + fifo_o__valid) | "
                f"(32'd0 + reads + ahead == slot + fifo_o__valid + {depth})"
            ),
        }
    invariants |= {
        "the memory has the marked values": stored_word,
        "the offered beat has the marked values": "!(is_marked & o__valid & (ahead == 0)) | (storage_data == value)",
    }
    return site.obligation(
        "tokens",
        "Every beat that is written leaves once, with all its values, in the order of writing.",
        methods=("induction", "pdr"),
        observer=tuple(observer),
        sees=sees,
        assumes={"the writer has a credit for each beat": f"!i__valid | (waiting < {depth})"},
        invariants=invariants,
        asserts={
            "the marked beat leaves unchanged, in its turn": (
                f"!(is_marked & {taken} & (ahead == 0)) | (o__payload[{width - 1}:0] == value)"
            )
        },
        cover=f"is_marked & {taken} & (ahead == 0)",
        probes={inner: _probe("probe", address, width, "memory" if inner else "storage")},
        drives=drives,
        keeps=(inner,) if inner else (),
    )


def _probe(name: str, address: str, width: int, memory: str) -> list[str]:
    """Return lines of Verilog that read ``memory`` at the free address ``NAME_address``, into ``NAME_word``."""
    return [f"wire {address} {name}_address;", f"wire [{width - 1}:0] {name}_word = {memory}[{name}_address];"]


def _block_ram_order(config: FifoConfig, site: Site) -> list[Obligation]:
    """Return the obligation that a FIFO in block RAM sends the beats that it received, in order.

    The observer follows the marked beat: into the block RAM or past it, through the two cycles of its read, and into
    its slot of the queue in front. A FIFO in several pieces of block RAM has no obligation.
    """
    width, depth, taken = config.width, config.depth, "(o__valid & o__ready)"
    address = bits_for(depth - 1)
    inner = "storage" if "storage" in site.module.instances else ""
    far_memory = "memory" if inner else "storage"
    far_read = "storage__r0_data" if inner else "storage_data"
    wires = ("bypass", "refill", "push", "pop")
    registers = {
        "front_write": "write__addr",
        "front_read": "read__addr",
        "far_write": "storage_write_address",
        "far_read": "storage_read_address",
        "read_word": far_read,
        "refill_word": "storage_word_1",
        **{name: name for name in ("refill_1", "refill_2", "refill_address_1", "refill_address_2")},
        **{name: name for name in ("front_data", "refilled_data", *wires)},
    }
    second = "read__addr_2"
    if not site.has(*registers.values(), second):
        return []
    sees = stored(site) | registers | {"refilled_read": second}
    prefix = f"{inner}." if inner else ""
    sees |= {
        "far_word": f"{prefix}far_word",
        "near_word": "near_word",
        "settled_word": "settled_word",
    }
    observer = (
        "wire mark = $anyseq;",
        "reg is_marked = 0; reg is_far = 0; reg is_near = 0; reg is_read = 0; reg is_refill = 0;",
        f"reg {bits_for(depth + 1)} ahead = 0; reg {bits_for(depth + 1)} waiting = 0;",
        f"reg {address} slot = 0; reg [1:0] place = 0;",
        f"reg [{width - 1}:0] value;",
        "wire marks = mark & i__valid & !is_marked;",
        f"wire leaves = {taken} & is_marked & (ahead == 0);",
        f"reg {bits_for(depth + 1)} far_ahead = 0;",
        "wire returns = is_marked & is_far & refill & (far_ahead == 0);",
        "always @(posedge clk) far_ahead <= rst ? 0 : marks ? fifo_stored_beats - refill : "
        "far_ahead - (refill & (far_ahead != 0));",
        f"always @(posedge clk) waiting <= rst ? 0 : waiting + i__valid - {taken};",
        "always @(posedge clk) is_marked <= !rst & (marks | (is_marked & !leaves));",
        f"always @(posedge clk) ahead <= rst ? 0 : marks ? waiting - {taken} : ahead - ({taken} & (ahead != 0));",
        "always @(posedge clk) if (marks) begin slot <= far_write; value <= i__payload; end",
        "always @(posedge clk) is_far <= !rst & (marks ? !bypass : is_far & !returns);",
        "always @(posedge clk) is_near <= !rst & (marks ? bypass : is_near);",
        "always @(posedge clk) if ((marks & bypass) | returns) place <= front_write;",
        "always @(posedge clk) is_read <= !rst & returns;",
        "always @(posedge clk) is_refill <= !rst & is_read & is_marked;",
        "wire [1:0] index = place - front_read;",
        "wire [1:0] index_1 = refill_address_1 - front_read;",
        "wire [1:0] index_2 = refill_address_2 - front_read;",
        "wire is_offered = fifo_o__valid & (ahead == 0);",
        "wire is_held = is_marked & !is_far & !is_offered;",
    )
    size = depth.bit_length() + 2  # of sums of two addresses, which a solver decides faster than sums of 32 bits
    zero, whole = f"{size}'d0", f"{size}'d{depth}"
    before = f"{zero} + ahead - fifo_o__valid"
    invariants = {
        "the counters' sum is the number of waiting beats": f"{zero} + {' + '.join(stored(site))} == {zero} + waiting",
        **counter_invariants(config, stored(site)),
        "the marked beat waits": "!is_marked | (ahead < waiting)",
        "addresses are inside the memory": f"(far_read < {depth}) & (far_write < {depth}) & (slot < {depth})",
        "beats are written behind the stored ones": (
            f"({zero} + far_read + fifo_stored_beats == {zero} + far_write) | "
            f"({zero} + far_read + fifo_stored_beats == far_write + {whole})"
        ),
        "the front's slots follow each other": "(refilled_read == front_read) & "
        "(((front_read + fifo_level) & 3) == front_write)",
        "words that are being read come in time": (
            "(!refill_1 | ((index_1 >= 2) & (index_1 < fifo_level))) & "
            "(!refill_2 | ((index_2 >= 1) & (index_2 < fifo_level)))"
        ),
        "the marked beat is in one place": (
            "(!is_far | (!is_near & !is_read & !is_refill)) & (!is_near | (!is_read & !is_refill)) & "
            "!(is_read & is_refill) & (!is_read | (is_marked & refill_1 & (refill_address_1 == place))) & "
            "(!(is_refill & is_marked) | (refill_2 & (refill_address_2 == place)))"
        ),
        "a marked beat in block RAM is behind those in front": (
            f"!(is_marked & is_far) | (({before} == {zero} + far_ahead + fifo_level) & "
            f"(far_ahead < fifo_stored_beats) & "
            f"(({zero} + far_read + far_ahead == {zero} + slot) | ({zero} + far_read + far_ahead == slot + {whole})))"
        ),
        "a marked beat in front is in its slot": f"!is_held | (({before} == index) & (index < fifo_level))",
        "no other word comes into its slot": (
            "!is_held | ((is_read | !refill_1 | (refill_address_1 != place)) & "
            "(is_refill | !refill_2 | (refill_address_2 != place)))"
        ),
        "the marked values are in block RAM": "!(is_marked & is_far) | (far_word == value)",
        "the marked values are being read": "(!is_read | (read_word == value)) & "
        "(!(is_refill & is_marked) | (refill_word == value))",
        "the marked values are in front": (
            f"!is_held | (is_near ? (near_word == {{1'b1, value}}) : "
            f"(!near_word[{width}] & (is_read | is_refill | (settled_word == value))))"
        ),
        "the marked values are offered": (
            f"!(is_marked & is_offered & !is_far) | "
            f"((front_data[{width}] ? front_data[{width - 1}:0] : refilled_data) == value)"
        ),
        "the offered beat is not in block RAM": "!(is_marked & is_offered) | !is_far",
    }
    probes = {
        "": [*_probe("near", "[1:0]", width + 1, "front"), *_probe("settled", "[1:0]", width, "refilled")],
    }
    probes[inner] = [*probes.get(inner, []), *_probe("far", address, width, far_memory)]
    return [
        site.obligation(
            "tokens",
            "Every beat that is written leaves once, with all its values, in the order of writing.",
            methods=("induction", "pdr"),
            observer=observer,
            sees=sees,
            assumes={"the writer has a credit for each beat": f"!i__valid | (waiting < {depth})"},
            invariants=invariants,
            asserts={
                "the marked beat leaves unchanged, in its turn": f"!leaves | (o__payload[{width - 1}:0] == value)"
            },
            cover="leaves",
            probes=probes,
            drives={"near_address": "place", "settled_address": "place", f"{prefix}far_address": "slot"},
            keeps=(inner,) if inner else (),
        )
    ]


def _of_wires(config: UnloadConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a serialiser whose results leave in one beat each: the output is the input."""
    pairs = {f"o__{part}": f"i__{part}" for part in ("payload", "valid")}
    wires = {sink: source for sink, source in pairs.items() if site.has(sink, source)}
    if not wires:
        return []
    if site.has("beat_index"):
        return [_of_cleared_lanes(config, site)]
    statement = "Every result leaves in the cycle in which it comes, unchanged."
    return [site.obligation("tokens", statement, methods=("structure",), structure={"wires": wires})]


def _of_cleared_lanes(config: UnloadConfig, site: Site) -> Obligation:
    """Return the obligation of a serialiser without registers of values, whose folds have unequally many channels."""
    value, counts = config.shape.width * config.pixels, [len(beat) for beat in config.beats]
    lanes = []
    for lane in range(config.lanes_out):
        sent, came = (f"{port}__payload[{(lane + 1) * value - 1}:{lane * value}]" for port in "oi")
        present = " | ".join(f"(beat == {beat})" for beat, count in enumerate(counts) if lane < count)
        lanes.append(f"({sent} == (({present or 0}) ? {came} : {value}'d0))")
    return site.obligation(
        "tokens",
        "Every result leaves in the cycle in which it comes, unchanged; lanes past its last channel are zero.",
        methods=("induction", "pdr"),
        observer=tuple(_last(len(counts), "i__valid")),
        sees={"index": "beat_index"},
        invariants={"results of a pixel are counted": f"(beat < {len(counts)}) & (index == beat)"},
        asserts={
            "each lane has its channel, or is zero": f"!i__valid | ({' & '.join(lanes)})",
            **({"a result leaves when it comes": "o__valid == i__valid"} if site.has("o__valid") else {}),
        },
        cover=f"i__valid & (beat == {counts.index(min(counts))}) & !rst",
    )


def of_unload(config: UnloadConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a serialiser: each result leaves in its beats, lowest channels first."""
    if not config.latency:
        return _of_wires(config, site)
    if not site.has("beats_left", "o__valid"):
        return []
    value = config.shape.width * config.pixels
    lanes, sent = config.lanes_in, config.lanes_out
    counts, spacing = config.fold_beats, max(config.fold_beats)
    folds = len(counts)
    left = " : ".join([*(f"fold == {fold} ? {count}" for fold, count in enumerate(counts[:-1])), str(counts[-1])])
    observer = [
        *since("i__valid", spacing),
        f"reg {bits_for(folds - 1)} fold = 0;",
        f"always @(posedge clk) fold <= rst ? 0 : i__valid ? (fold == {folds - 1} ? 0 : fold + 1) : fold;",
        f"reg {bits_for(spacing)} remaining = 0;",
        f"always @(posedge clk) remaining <= rst ? 0 : i__valid ? ({left}) : remaining - (remaining != 0);",
        f"wire [{lanes - 1}:0] token = $anyseq;",
        f"reg [{lanes - 1}:0] result = 0;",
        # Lanes that no other lane follows keep their values, as in the module, so that its registers are equal.
        f"always @(posedge clk) result <= i__valid ? token : "
        f"{{result[{lanes - 1}:{lanes - sent}], result[{lanes - 1}:{sent}]}};",
    ]
    facts = {"beats follow each other until the result has left": "o__valid == (remaining != 0)"}
    matches = []
    for lane in range(sent):
        short = [fold for fold, beats in enumerate(config.fold_channels) if lane >= len(beats[-1])]
        bits = f"[{(lane + 1) * value - 1}:{lane * value}]"
        present = "1'b1"
        if short:
            folds_text = " | ".join(f"(sent_fold == {fold})" for fold in short)
            present = f"!((remaining == 1) & ({folds_text}))"
        same = f"o__payload{bits} == {{{value}{{result[{lane}]}}}}"
        zero = f" & (({present}) | (o__payload{bits} == 0))" if short and config.clears else ""
        matches.append(f"((!({present}) | ({same})){zero})")
    observer.append(f"reg {bits_for(folds - 1)} sent_fold = 0;")
    observer.append("always @(posedge clk) sent_fold <= rst ? 0 : i__valid ? fold : sent_fold;")
    facts["each beat has the result's next channels"] = f"!o__valid | ({' & '.join(matches)})"
    return [
        site.obligation(
            "tokens",
            "Every result leaves once, in as many beats as it has channels for, lowest channels first.",
            methods=("pdr",),
            observer=tuple(observer),
            assumes={f"results are at least {spacing} cycles apart": f"!i__valid | (since == {spacing})"},
            asserts=facts,
            cover="o__valid & (remaining == 1)",
            drives={
                "i__payload": "{" + ", ".join(f"{{{value}{{token[{lane}]}}}}" for lane in reversed(range(lanes))) + "}"
            },
        ),
        bits_of_values(site, value, lanes * value, sent * value),
    ]


def of_last_stage(layer: LayerConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a layer's last stage, whose beat index chooses the constants of a beat's channels.

    The serialiser before it sends each pixel in the same number of beats. A stage with the same constants for all beats
    has no index.
    """
    finish = site.inner("finish")
    if finish is None or not finish.has("beat_index") or isinstance(layer.finish, ThresholdConfig):
        return []  # `thresholds` has the obligation of a stage whose index counts beats that leave
    beats = sum(layer.fold_beats)
    return [
        finish.obligation(
            "index",
            f"The beat index is the number of beats that came before in the pixel, which has {beats} beats.",
            methods=("pdr",),
            observer=tuple(_last(beats, "i__valid")),
            sees={"index": "beat_index"},
            asserts={"the index counts the beats of a pixel": "index == beat"},
            cover=f"beat == {beats - 1}",
            run={"i__valid": "1'b1"},
            free_memories=True,
        )
    ]


def of_regroup(config: RegroupConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a width converter: each channel of a pixel leaves once, in its lane of its beat."""
    output = config.output
    value = output.bits * output.pixels
    num_in, num_out, lanes = len(config.counts), len(config.sizes), output.lanes
    taken, sent = transfers(config)
    sources = [(beat, lane) for beat, count in enumerate(config.counts) for lane in range(count)]
    targets = [(beat, lane) for beat, size in enumerate(config.sizes) for lane in range(size)]

    def table(entries: list[int]) -> str:
        return " : ".join(
            [*(f"channel == {index} ? {entry}" for index, entry in enumerate(entries[:-1])), str(entries[-1])]
        )

    spread = ", ".join(f"{{{value}{{token[{lane}]}}}}" for lane in reversed(range(config.lanes)))
    channels = len(sources)
    received = " : ".join(
        [*(f"source_lane == {lane} ? token[{lane}]" for lane in range(config.lanes - 1)), f"token[{config.lanes - 1}]"]
    )
    leaving = " : ".join(
        [
            *(
                f"target_lane == {lane} ? o__payload[{(lane + 1) * value - 1}:{lane * value}]"
                for lane in range(lanes - 1)
            ),
            f"o__payload[{lanes * value - 1}:{(lanes - 1) * value}]",
        ]
    )
    beat_in, beat_out = bits_for(num_in - 1), bits_for(num_out - 1)
    observer = [
        f"wire [{config.lanes - 1}:0] token = $anyseq;",
        "wire token_last = $anyseq;",
        "wire mark = $anyseq;",
        f"wire {bits_for(channels - 1)} channel = $anyconst;",
        f"wire {beat_in} source_beat = {table([beat for beat, _ in sources])};",
        f"wire {bits_for(config.lanes - 1)} source_lane = {table([lane for _, lane in sources])};",
        f"wire {beat_out} target_beat = {table([beat for beat, _ in targets])};",
        f"wire {bits_for(lanes - 1)} target_lane = {table([lane for _, lane in targets])};",
        f"reg {beat_in} beat_in = 0;",
        f"reg {beat_out} beat_out = 0;",
        f"wire ends_in = {taken} & (beat_in == {num_in - 1});",
        f"wire ends_out = {sent} & (beat_out == {num_out - 1});",
        f"always @(posedge clk) beat_in <= rst | ends_in ? 0 : beat_in + {taken};",
        f"always @(posedge clk) beat_out <= rst | ends_out ? 0 : beat_out + {sent};",
        "reg [2:0] pixels = 0;",
        "always @(posedge clk) pixels <= rst ? 0 : pixels + ends_in - ends_out;",
        "reg is_marked = 0; reg has_left = 0; reg has_last = 0; reg [2:0] ahead = 0; reg value = 0; reg last = 0;",
        f"wire marks = mark & !is_marked & {taken} & (beat_in == source_beat);",
        "wire leaves = is_marked & (ahead == 0) & ends_out;",
        "always @(posedge clk) is_marked <= !rst & (marks | (is_marked & !leaves));",
        "wire passes = is_marked & ends_out & (ahead != 0);",
        "always @(posedge clk) ahead <= rst ? 0 : marks ? pixels - ends_out : ahead - passes;",
        f"always @(posedge clk) if (marks) value <= {received};",
        "always @(posedge clk) has_last <= !rst & !leaves & (has_last | ((marks | is_marked) & ends_in));",
        "always @(posedge clk) if ((marks | is_marked) & !has_last & ends_in) last <= token_last;",
        *waits(site, *site.streams("input")),
    ]
    width = lanes * value
    zeros = [
        f"(!(beat_out == {beat}) | (o__payload[{width - 1}:{size * value}] == 0))"
        for beat, size in enumerate(config.sizes)
        if size < lanes
    ]
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
    sees, invariants = _regroup_invariants(config, site)
    if zeros:
        asserts["lanes past the last channel are zero"] = f"!o__valid | ({' & '.join(zeros)})"
    return [
        site.obligation(
            "tokens",
            "Every channel of a pixel leaves once, in its lane of its beat, and pixels in order.",
            methods=("induction", "pdr"),
            observer=tuple(observer),
            sees=sees,
            assumes={**rules(*site.streams("input")), "there are as many channels": f"channel < {channels}"},
            invariants=invariants,
            asserts=asserts,
            cover="leaves & !rst",
            drives={"i__payload": f"{{{spread}}}" if config.always_ready else f"{{token_last, {spread}}}"},
        ),
        bits_of_values(site, value, config.lanes * value, width),
    ]


def _regroup_invariants(config: RegroupConfig, site: Site) -> tuple[dict[str, str], dict[str, str]]:
    """Return what a width converter's observer sees, and invariants: where the marked channel is in the register."""
    lanes, num_out = config.output.lanes, len(config.sizes)
    value, whole = config.output.bits * config.output.pixels, num_out * lanes
    counters = {"held": "lanes_held", "seen_in": "input_beat_index", "seen_out": "output_beat_index"}
    sees = {name: path for name, path in counters.items() if path in site.module.signals}
    registers = {f"held_{lane}": lane for lane in range(config.held) if f"held_{lane}" in site.module.signals}
    sees |= {name: name for name in registers}
    starts = [output_lanes[0] for output_lanes in config.output_lanes]
    begin = " : ".join([*(f"beat_in == {beat} ? {start}" for beat, start in enumerate(starts[:-1])), str(starts[-1])])
    limits = [room + advance for room, advance in zip(config.room, config.advances, strict=True)]
    bounds = " & ".join(
        f"((beat_in != {(beat + 1) % len(limits)}) | (held <= {largest}))" for beat, largest in enumerate(limits)
    )
    position = f"(32'd0 + ahead * {whole} + target_beat * {lanes} + target_lane - beat_out * {lanes})"
    waits_inside = "((ahead != 0) | (beat_out <= target_beat))"
    stored_values = " & ".join(
        f"(({position} != {lane}) | ({name} == {{{value}{{value}}}}))" for name, lane in registers.items()
    )
    invariants = {
        "the counter of held lanes follows from the beats": (
            f"32'd0 + held + beat_out * {lanes} == pixels * {whole} + ({begin})"
        ),
        "beats are counted": " & ".join(
            [
                f"(beat_in < {len(config.counts)}) & (beat_out < {num_out})",
                *(
                    f"({one} == {other})"
                    for one, other in (("seen_in", "beat_in"), ("seen_out", "beat_out"))
                    if one in sees
                ),
            ]
        ),
        "the register is not too full": bounds,
        "the marked pixel waits": (
            "!is_marked | (has_last ? (ahead < pixels) : ((ahead == pixels) & (beat_in > source_beat)))"
        ),
        "only a marked pixel has ended": "is_marked | !has_last",
        "the marked channel is in the register": (
            f"!(is_marked & {waits_inside}) | (({position} < held) & {stored_values})"
        ),
    }
    if not config.always_ready:
        sees["seen_last"] = "is_last_pixel"
        invariants["the flag of the newest pixel is kept"] = (
            "!(is_marked & has_last & (pixels == 32'd0 + ahead + 1)) | (seen_last == last)"
        )
    return sees, invariants


def bits_of_values(site: Site, bits: int, received: int, sent: int) -> Obligation:
    """Return the obligation that a component only moves values: bit n of a value comes from bit n of values."""
    return site.obligation(
        "bits",
        "Bit n of a value depends on bits n of the values that come, and valid, ready and last on none.",
        methods=("structure",),
        structure={"bits": {"width": bits, "from": ["i__payload", received], "to": ["o__payload", sent]}},
        keeps=site.memories,
    )
