"""Random small networks with random plans, what must hold of the accelerators made of them, and stimuli."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
from amaranth import Cat, Signal
from hypothesis import assume
from hypothesis import strategies as st
from testbench import ALWAYS, PATIENCE, Circuit, Pattern, Trace, channel_lanes, pack, run, unpack

from hwgen.gateware import join as join_module
from hwgen.gateware import layer as layer_module
from hwgen.gateware import whole_map as whole_map_module
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.fifo import Fifo
from hwgen.gateware.join import JoinUnit
from hwgen.gateware.line_buffer import LineBuffer, LineBufferConfig
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN, multiplier_of
from hwgen.gateware.multipliers.packing import BytePair
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.whole_map import WholeMap
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, IntegerType, Requantisation, Window
from hwgen.network.ops import AveragePool, Conv, GlobalAveragePool, MaxPool, Op
from hwgen.schedule.buffers import sizes_of
from hwgen.schedule.solve import Schedule
from hwgen.simulate.testbench import patience
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.search import layer_plan
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll

#: Deeper than any FIFO of a network this small can use.
DEEP = 100_000


def integers(rng: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    """Values from ``low`` to ``high``: all kinds, the ends and -1, 0, 1 among them, or only one of these."""
    corners = np.array([value for value in (low, high, -1, 0, 1) if low <= value <= high])
    kind = rng.integers(4)
    if kind == 0:
        return np.full(shape, rng.choice(corners))
    values = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < (0.2, 0.2, 1)[kind - 1], rng.choice(corners, shape), values)


def frames_for(network: Network, count: int, seed: int) -> np.ndarray:
    """Random frames ``(count, C, H, W)`` of the only input, each with values of its own kind."""
    network.input  # noqa: B018 (there must be one)
    return inputs_for(network, count, seed)[0]


def inputs_for(network: Network, count: int, seed: int) -> list[np.ndarray]:
    """Return random frames ``(n, C, H, W)`` for each input of a network, in the input's type."""
    rng, found = np.random.default_rng(seed), []
    for source in network.input_maps:
        kind = source.type
        frames = [integers(rng, kind.minimum, kind.maximum, source.shape) for _ in range(count)]
        found.append(np.array(frames).astype(kind.dtype))
    return found


@st.composite
def windows(draw, height: int, width: int) -> Window:
    """Draw a window that fits the map at least once. Half of the windows are drawn without padding."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    if draw(st.booleans()):
        strides, padding = draw(st.sampled_from([(1, 1), (2, 2), kernel])), (0, 0, 0, 0)
    else:
        strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
        padding = tuple(draw(st.integers(0, 2)) for _ in range(4))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 2), (1, 3), (2, 1)]))
    window = Window(kernel=kernel, stride=strides, padding=padding, dilation=dilation)
    if min(window.output_size(height, width)) < 1:
        window = replace(window, padding=(*window.extent, 0, 0))
    assume(min(window.output_size(height, width)) >= 1)
    return window


def a_requantisation(rng: np.random.Generator, layer: Conv) -> Requantisation:
    """One that spreads the sums over the output's type, and saturates some; with ties in half of the cases."""
    channels, kind = layer.output.channels, layer.output.type
    excess = max(0, layer.accumulator_bound.bit_length() - kind.bits)
    exact = rng.random() < 0.5
    significand = np.full(channels, 1 << 23) if exact else rng.integers(1 << 23, 1 << 24, channels)
    shift = 23 + np.maximum(0, excess - rng.integers(0, 4, channels))
    low = layer.output.zero_point if rng.random() < 0.3 else kind.minimum
    return Requantisation(
        significand=significand, shift=shift, zero_point=layer.output.zero_point, low=low, high=kind.maximum
    )


def requantised(rng: np.random.Generator, layer: Conv) -> Conv:
    """Now and then with a bias that is finer than the sums."""
    rule, fraction = a_requantisation(rng, layer), int(rng.choice([0, 0, 0, 4]))
    bias = (layer.bias << fraction) + rng.integers(0, 1 << fraction, len(layer.bias))
    return replace(layer, requantisation=replace(rule, shift=rule.shift + fraction), bias=bias, fraction=fraction)


def average_pool(rng: np.random.Generator, name: str, source: FeatureMap, window: Window) -> AveragePool:
    """One of any scales: equal ones, powers of two, any; a window of which every one holds a pixel of the map."""
    rows, columns = window.output_size(source.height, source.width)
    scales = [float(np.float32(value)) for value in (0.5, 0.125, rng.uniform(0.05, 0.2), rng.uniform(0.05, 0.2))]
    x_scale, y_scale = map(float, rng.choice(scales, 2))
    zero = int(rng.integers(source.type.minimum, source.type.maximum + 1))
    return AveragePool(
        name=name,
        input=source,
        output=replace(source, height=rows, width=columns, zero_point=zero if rng.integers(2) else source.zero_point),
        window=window,
        x_scale=x_scale,
        y_scale=x_scale if rng.random() < 0.4 else y_scale,
        include_padding=bool(rng.integers(2)),
    )


def global_average_pool(rng: np.random.Generator, name: str, source: FeatureMap) -> GlobalAveragePool:
    pixels, kind = source.height * source.width, source.type
    return GlobalAveragePool(
        name=name,
        input=source,
        output=replace(source, height=1, width=1),
        window=Window(kernel=(source.height, source.width)),
        requantisation=Requantisation(
            significand=np.full(source.channels, rng.integers(1 << 23, 1 << 24)),
            shift=np.full(source.channels, 23 + pixels.bit_length() - rng.integers(2)),
            zero_point=source.zero_point,
            low=kind.minimum,
            high=kind.maximum,
            float32=True,
        ),
    )


@st.composite
def networks(
    draw,
    *,
    min_layers: int = 1,
    max_layers: int = 4,
    max_side: int = 7,
    last_raw: bool | None = None,
    packed: bool = False,
    narrow: bool = False,
) -> Network:
    """Draw a chain of convolutions and pools, with ``narrow`` of 1 to 8 bits.

    With ``last_raw``, a last convolution keeps its accumulators. With ``packed``, a DSP slice can do two multiply-adds
    per cycle in at least one convolution.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = draw(
        st.lists(
            st.sampled_from(["conv", "conv", "conv", "maxpool", "averagepool", "globalaveragepool"]),
            min_size=min_layers,
            max_size=max_layers,
        )
    )
    paired = draw(st.integers(0, len(kinds) - 1)) if packed else None
    if paired is not None:
        kinds[paired] = "conv"
    bits = [1, 2, 3, 4, 8] if narrow else [8, 8, 8, 4, *([] if packed else [11, 16])]

    def a_map(channels: int, height: int, width: int) -> FeatureMap:
        kind = IntegerType(bits=int(rng.choice(bits)), signed=bool(rng.integers(2)))
        kind = IntegerType(bits=1, signed=False) if kind.bits == 1 else kind
        zero = int(rng.integers(kind.minimum, kind.maximum + 1)) if rng.random() < 0.6 else 0
        return FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero)

    height, width = draw(st.integers(1, max_side)), draw(st.integers(1, max_side))
    before = a_map(draw(st.integers(1, 5)), height, width)
    layers: list[Op] = []
    for number, kind in enumerate(kinds):
        window = draw(windows(before.height, before.width))
        if "average" in kind:
            # Averages have no gaps, and there are none of more than 8 bits.
            window, kind = replace(window, dilation=(1, 1)), kind if before.type.bits <= 8 else "maxpool"
            if kind == "averagepool" and any(p >= k for p, k in zip(window.padding, window.kernel * 2, strict=True)):
                kind = "maxpool"  # a window could lie in the padding
        rows, columns = window.output_size(before.height, before.width)
        name = f"{kind}{number}"
        if kind == "maxpool":
            after = replace(before, height=rows, width=columns)
            layers.append(MaxPool(name=name, input=before, output=after, window=window))
        elif kind != "conv":
            if kind == "averagepool":
                layers.append(average_pool(rng, name, before, window))
            else:
                layers.append(global_average_pool(rng, name, before))
            after = layers[-1].output
        else:
            groups = draw(st.sampled_from([g for g in range(1, before.channels + 1) if before.channels % g == 0]))
            least = 2 if number == paired else 1
            channels = groups * draw(st.integers(least, max(least, 6 // groups)))
            raw = number == len(kinds) - 1 and (draw(st.booleans()) if last_raw is None else last_raw)
            after = (
                FeatureMap(channels=channels, height=rows, width=columns, type=INT32)
                if raw
                else a_map(channels, rows, columns)
            )
            # Sums that leave as they are fit int32; two multiply-adds a slice leave out -128.
            small = raw or number == paired or rng.random() < 0.7
            limit = 1 << int(rng.integers(1, 8 if number == paired else 9) if small else rng.integers(9, 17))
            limit = 1 << int(rng.choice([0, 1, 2, 3, 7])) if narrow else limit
            low = max(-limit, -BytePair.largest_weight) if number == paired else -limit
            layer = Conv(
                name=name,
                input=before,
                output=after,
                window=window,
                weights=integers(rng, low, limit - 1, (channels, before.channels // groups, *window.kernel)),
                bias=rng.integers(-(1 << 12), 1 << 12, channels) * (1 if limit <= 256 else limit),
                requantisation=None,
                groups=groups,
            )
            layers.append(layer if raw else requantised(rng, layer))
        before = after
    assume(sum(layer.output.height * layer.output.width for layer in layers) <= 150)
    return Network(name="random", layers=tuple(layers))


@st.composite
def unrolls(
    draw,
    network: Network,
    *,
    widest: bool = False,
    packed: bool = False,
    stage: Callable[[Op], Stage] = stage_of,
) -> tuple[LayerPlan, ...]:
    """Any unroll factors, with ample buffers; ``widest``: one beat in, one step, one beat out for each pixel (of each
    group); ``packed``: two multiply-adds a slice wherever that can be."""
    plans = []
    for layer in network.layers:
        taps = layer.window.taps if stage(layer).has_line_buffer else 1
        max_tn, max_tm = stage(layer).max_lanes
        tn = max_tn if widest else draw(st.integers(1, max_tn))
        tm = max_tm if widest else draw(st.integers(2 if packed and max_tm > 1 else 1, max_tm))
        max_tp = min(4, layer.output.width)
        tp = 1 if widest else draw(st.sampled_from([1, 1, draw(st.integers(1, max_tp))]))
        source = plans[-1].tp if plans else tp
        tk = taps if widest or stage(layer).whole_windows else draw(st.integers(1, taps))
        unroll = Unroll(tn, tn if stage(layer).channelwise else tm, tk, tp)
        plans.append(draw(choices(stage(layer), unroll, source, packed=packed, in_rows=stage is stage_of)))
    return tuple(plans)


@st.composite
def choices(
    draw, stage: Stage, unroll: Unroll, source: int, readers: int = 1, *, packed: bool = False, in_rows: bool = True
) -> LayerPlan:
    """Any other choices for a layer, with ample buffers; ``source``: pixels of an input beat; ``in_rows``: it computes
    several pixels at once, as layers in tiles don't."""
    kinds = [kind for kind in MULTIPLIERS.values() if isinstance(stage.op, Conv) and stage.multiplier(kind) is kind]
    kinds = [kind for kind in kinds if kind.for_size(unroll.tm, unroll.tp if in_rows else 1) is kind]
    pair = multiplier_of(2)
    if packed and pair in kinds:
        kinds = [pair]
    elif kinds and not packed and draw(st.integers(0, 2)) == 0:
        unroll = replace(unroll, lut_lanes=draw(st.integers(1, unroll.tm)))
        lanes = max(unroll.tm - unroll.lut_lanes, 1)
        kinds = [kind for kind in kinds if kind.for_size(lanes, unroll.tp) is kind]
    kind = draw(st.sampled_from(kinds)) if kinds else PLAIN
    plan = layer_plan(stage, unroll, source, kind, readers)
    return replace(
        plan,
        chain=draw(st.sampled_from([1, 2, 3, 5, 16])),
        fifo_depths=(DEEP,) * readers,
        requantise_in=draw(st.sampled_from(["dsp", "dsp", "lut"])),
    )


def size_buffers(config: AcceleratorConfig) -> tuple[list[int], list[tuple[int, ...]]]:
    """The rows of line buffers and the depths of FIFOs that the planner chooses."""
    sizes = sizes_of(config)
    return sizes.rows, sizes.depths


@st.composite
def buffered(draw, network: Network, plans: tuple[LayerPlan, ...], mode: str | None = None) -> AcceleratorConfig:
    """Buffers as the planner sizes them ("sized"), somewhat larger ("roomy"), or down to the least ("tight")."""
    mode = mode or draw(st.sampled_from(["sized", "roomy", "tight", "least"]))
    config = compose(network, plans)
    rows, depths = size_buffers(config)
    if mode == "roomy":
        more = [draw(st.integers(0, 2)) for _ in rows]
        # A ring of one row is read a cycle faster: with more rows, credits of one more fold are in flight.
        depths = [
            [depth + draw(st.integers(0, 3)) + (max(layer.fold_beats) if count == 1 and added else 0) for depth in each]
            for each, layer, count, added in zip(depths, config.layers, rows, more, strict=True)
        ]
        rows = [count + added for count, added in zip(rows, more, strict=True)]
    elif mode in ("tight", "least"):
        spare = st.integers(0, 0 if mode == "least" else 5)
        rows = [layer.min_rows + draw(spare) // 3 for layer in config.layers]
        depths = [[max(layer.fold_beats) + draw(spare) for _ in layer.outputs] for layer in config.layers]
    return compose(network, with_buffers(plans, rows, depths))


@dataclass(frozen=True, eq=False)
class Case:
    """A network and its accelerator."""

    network: Network
    config: AcceleratorConfig

    def __repr__(self) -> str:
        lines = [f"network of {' and '.join(map(str, self.network.input_maps))}"]
        for node, layer in zip(self.network.layers, self.config.layers, strict=True):
            compute, window = layer.compute, layer.window
            chain = ""
            if isinstance(compute, MultiplyConfig):
                chain = f" chain {compute.chain} macs_per_dsp {compute.macs_per_dsp}"
            lines.append(
                f"  {node.name} {node.window} -> {node.output} groups {window.input.groups} "
                f"Tn {window.input.lanes} Tm {compute.lanes} Tk {getattr(window, 'taps', 1)} Tp {layer.pixels}{chain} "
                f"rows {getattr(window, 'rows', 0)} FIFO {layer.fifo_lanes} x {layer.fifo_depths[0]}"
            )
        return "\n".join(lines)


@st.composite
def cases(draw, *, mode: str | None = None, widest: bool = False, packed: bool = False, **limits) -> Case:
    network = draw(networks(packed=packed, **limits))
    plans = draw(unrolls(network, widest=widest, packed=packed))
    assert not packed or any(plan.macs_per_dsp == 2 for plan in plans)
    case = Case(network, draw(buffered(network, plans, mode)))
    assume(max(layer.cycles for layer in case.config.layers) <= 800)
    return case


def row_slots(beat: BeatFormat) -> int:
    """Pixels that the beats of a row have room for."""
    return -(-beat.width // beat.pixels) * beat.pixels


def to_beats(beat: BeatFormat, frames: np.ndarray) -> list[int]:
    """Frames ``(n, C, H, W)`` as payload bits: pixels in raster order, folds innermost, ``last`` on top.

    Pixels past the end of a row, which don't count, are noise.
    """
    count, lanes, slots = len(frames), beat.folds * beat.lanes, row_slots(beat)
    values = np.random.default_rng(0).integers(0, 1 << beat.bits, (count, lanes, beat.height, slots))
    values[:, :, :, : beat.width] = 0
    values[:, channel_lanes(beat), :, : beat.width] = frames
    values = values.reshape(count, beat.folds, beat.lanes, beat.height, slots // beat.pixels, beat.pixels)
    values = values.transpose(0, 3, 4, 1, 2, 5).reshape(-1, beat.lanes * beat.pixels).tolist()
    return [
        pack(lanes, beat.bits) | ((number + 1) % beat.beats == 0) << beat.data_bits
        for number, lanes in enumerate(values)
    ]


def counting(beat: BeatFormat, words: list[int]) -> list[int]:
    """Return the beats with zeros in the pixels past the end of a row."""
    steps = row_slots(beat) // beat.pixels
    rest = beat.width - (steps - 1) * beat.pixels
    short = pack(([-1] * rest + [0] * (beat.pixels - rest)) * beat.lanes, beat.bits) | 1 << beat.data_bits
    return [word & short if number // beat.folds % steps == steps - 1 else word for number, word in enumerate(words)]


def from_beats(beat: BeatFormat, words: list[int]) -> np.ndarray:
    """Return the frames that beats carry. Check ``last`` and that lanes past the channels are zero."""
    values = [unpack(word, beat.bits, beat.signed, beat.lanes * beat.pixels) for word in words]
    lasts = [number for number, word in enumerate(words) if word >> beat.data_bits]
    assert lasts == list(range(beat.beats - 1, len(words), beat.beats)), "last is not on the last beat of each frame"
    slots = row_slots(beat)
    frames = np.array(values, np.int64).reshape(
        -1, beat.height, slots // beat.pixels, beat.folds, beat.lanes, beat.pixels
    )
    frames = frames.transpose(0, 3, 4, 1, 2, 5).reshape(-1, beat.folds * beat.lanes, beat.height, slots)
    frames = frames[..., : beat.width]
    lanes = channel_lanes(beat)
    assert not np.delete(frames, lanes, axis=1).any(), "a lane past the last channel is not zero"
    return frames[:, lanes]


def simulate(
    config: AcceleratorConfig,
    frames: np.ndarray,
    *,
    offer: Pattern = ALWAYS,
    accept: Pattern = ALWAYS,
    circuit: Circuit | None = None,
    **options,
) -> Trace:
    """``circuit``: the accelerator of ``config``, made ready before."""
    beats, outputs = to_beats(config.input, frames), len(frames) * config.output.beats
    options.setdefault("patience", max(PATIENCE, patience(config)))
    return run(circuit or Accelerator(config), beats, outputs, offer=offer, accept=accept, **options)


def check_data(config: AcceleratorConfig, words: list[int], expected: np.ndarray) -> None:
    """Every value of every frame, nothing missing and nothing more."""
    assert len(words) == len(expected) * config.output.beats, "beats were lost or repeated"
    np.testing.assert_array_equal(from_beats(config.output, words), expected)


def check_cycles(schedule: Schedule, trace: Trace) -> None:
    """Every input beat and every output beat, in exactly the cycle that the schedule says."""
    schedule.solve()
    begin = schedule.taken[0][0]
    np.testing.assert_array_equal(np.array(trace.taken) - trace.taken[0], schedule.taken[0] - begin, "input beats")
    np.testing.assert_array_equal(np.array(trace.times) - trace.taken[0], schedule.taken[-1] - begin, "output beats")


def check(case: Case, frames: np.ndarray, schedule: Schedule | None = None, **options) -> Trace:
    """Never stalled: equal to the golden model, and to the schedule to the cycle."""
    schedule = schedule or Schedule(case.config, len(frames))
    trace = simulate(case.config, frames, **options)
    check_data(case.config, trace.words, golden.run(case.network, frames))
    check_cycles(schedule, trace)
    return trace


def with_less(sized: Schedule, number: int, *, depth: int = 0, rows: int = 0) -> Schedule:
    """Return a schedule with one FIFO ``depth`` beats shallower, or one layer's line buffer ``rows`` rows smaller."""
    depths, lines = list(sized.depths), list(sized.rows)
    depths[number] = (depths[number] or 0) - depth
    lines[number] -= rows
    less = Schedule(sized.config, sized.frames, depths=depths, rows=lines)
    less.solve()
    return less


def frames_that_show(less: Schedule, sized: Schedule) -> int | None:
    """Frames, three or more, of the shortest run in which ``less`` has the greater latency or interval; if any."""
    for schedule in (less, sized):
        schedule.solve()
    if less.frame_ends[0] > sized.frame_ends[0]:
        return 3
    slower = np.flatnonzero(np.diff(less.frame_ends)[1:] > np.diff(sized.frame_ends)[1:])
    return int(slower[0]) + 3 if len(slower) else None


@dataclass(frozen=True)
class FifoUse:
    """Fill level and credits of a FIFO in each cycle of a run, counted at its ports and not by its own counters.

    ``stored`` is the number of beats in the FIFO after the cycle, with the beat on offer. ``credits`` is the number of
    the writer's credits, after a fold that starts in the cycle has used its credits.
    """

    stored: np.ndarray
    credits: np.ndarray


@contextmanager
def watched_fifos(config: AcceleratorConfig):
    """Yield the signals that `fifo_uses` reads, of an accelerator that is elaborated in the block."""
    moves = [Signal(2) for _ in config.layers]
    starts = [Signal() for _ in config.layers]
    # Every layer has configurations of its own.
    number_of = {id(layer.fifos[0]): number for number, layer in enumerate(config.layers)}
    number_of |= {id(layer.window): number for number, layer in enumerate(config.layers)}

    class WatchedFifo(Fifo):
        def elaborate(self, platform):
            m = super().elaborate(platform)
            m.d.comb += moves[number_of[id(self.config)]].eq(Cat(self.i.valid, self.o.valid & self.o.ready))
            return m

    def watched(walk: type) -> type:
        class Watched(walk):
            def elaborate(self, platform):
                m = super().elaborate(platform)
                m.d.comb += starts[number_of[id(self.config)]].eq(self.start)
                return m

        return Watched

    with (
        patch.multiple(layer_module, Fifo=WatchedFifo, LineBuffer=watched(LineBuffer)),
        patch.object(join_module, "JoinUnit", watched(JoinUnit)),
        patch.object(whole_map_module, "WholeMap", watched(WholeMap)),
    ):
        yield {f"fifo {number}": Cat(*signals) for number, signals in enumerate(zip(moves, starts, strict=True))}


def fifo_uses(config: AcceleratorConfig, trace: Trace) -> list[FifoUse]:
    """Return the use of the FIFO behind each layer."""
    uses = []
    for number, layer in enumerate(config.layers):
        words = np.array(trace.watched[f"fifo {number}"])
        written, read, starts = (words >> bit & 1 for bit in range(3))
        claimed = np.zeros_like(words)
        cycles = np.flatnonzero(starts)
        claimed[cycles] = np.array(layer.fold_beats)[np.arange(len(cycles)) % len(layer.fold_beats)]
        stored, back = np.cumsum(written - read), np.cumsum(read) - read  # a credit is back in the next cycle
        uses.append(FifoUse(stored, layer.fifo_depths[0] - np.cumsum(claimed) + back))
    return uses


def circuit_of(case: Case) -> Circuit:
    return Circuit(Accelerator(case.config))


def check_exact(case: Case, seed: int, circuit: Circuit | None = None) -> None:
    check(case, frames_for(case.network, 3, seed), circuit=circuit)


def check_stalled(case: Case, seed: int, patterns: tuple[Pattern, Pattern], circuit: Circuit | None = None) -> None:
    frames = frames_for(case.network, 2, seed)
    offer, accept = patterns
    trace = simulate(case.config, frames, offer=offer, accept=accept, circuit=circuit)
    check_data(case.config, trace.words, golden.run(case.network, frames))


def check_reset(
    case: Case, seed: int, patterns: tuple[Pattern, Pattern], share: float, circuit: Circuit | None = None
) -> None:
    """Reset after ``share`` of the time two frames take: before it a prefix, after it two complete new frames."""
    config, (offer, accept) = case.config, patterns
    frames = frames_for(case.network, 4, seed)
    expected = golden.run(case.network, frames)
    schedule = Schedule(config, 2)
    schedule.solve()
    reset_at = int(share * (schedule.frame_ends[-1] + 1))
    count = config.output.beats
    trace = run(
        circuit or Accelerator(config),
        to_beats(config.input, frames[:2]),
        2 * count,
        offer=offer,
        accept=accept,
        reset_at=reset_at,
        after=(to_beats(config.input, frames[2:]), 2 * count),
    )
    assert trace.reset is not None
    begin, taken, sent = trace.reset
    before = to_beats(config.output, expected[:2])
    assert counting(config.output, trace.words[:sent]) == counting(config.output, before[:sent])
    check_data(config, trace.words[sent:], expected[2:])
    if patterns == (ALWAYS, ALWAYS):
        np.testing.assert_array_equal(np.array(trace.times[sent:]) - begin, schedule.taken[-1])
        np.testing.assert_array_equal(np.array(trace.taken[taken:]) - begin, schedule.taken[0])


def ragged() -> tuple[AcceleratorConfig, np.ndarray, np.ndarray]:
    """Two pixels a cycle, rows of three, two groups; frames and outputs."""
    before = FeatureMap(channels=4, height=2, width=3, type=UINT8)
    layer = Conv(
        name="conv",
        input=before,
        output=replace(before, channels=6, type=INT32),
        window=Window(kernel=(1, 3), padding=(0, 1, 0, 1)),
        weights=np.random.default_rng(0).integers(-128, 128, (6, 2, 1, 3)),
        bias=np.arange(1000, 1006),
        requantisation=None,
        groups=2,
    )
    network = Network(name="ragged", layers=(layer,))
    plan = LayerPlan(name="conv", kind="conv", tn=1, tm=3, tk=2, tp=2, chain=16, line_rows=2, fifo_depths=(9,))
    frames = np.random.default_rng(1).integers(0, 256, (2, 4, 2, 3), dtype=np.uint8)
    return compose(network, [plan]), frames, golden.run(network, frames)


def value_range(window: LineBufferConfig) -> tuple[int, int]:
    bits, signed = window.input.bits, window.input.signed
    low = -(1 << (bits - 1)) if signed else 0
    return low, low + (1 << bits) - 1


def windows_for(window: LineBufferConfig, count: int, seed: int) -> np.ndarray:
    """``(count, Tp, folds * Tn, Kh, Kw)``; lanes past the channels hold anything too."""
    rng = np.random.default_rng(seed)
    shape = (window.pixels, window.input.folds * window.input.lanes, *window.kernel)
    return np.array([integers(rng, *value_range(window), shape) for _ in range(count)])


def offers(steps: int, gaps: list[int]) -> Pattern:
    """Return a pattern of offered steps: no pause between steps of an output fold, pauses ``gaps`` between folds."""
    return Pattern(tuple(step < 0 for gap in gaps for step in range(gap, -steps - 1, -1) if step))


GAPS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
