"""The checker checks: faults put in on purpose are caught by the very checks that the suite makes.

One small network goes through `accelerators.check` (golden model and exact schedule, nobody stalling) and through a
run with stalls. Each fault is in the hardware only: prediction and golden model come from the network as it is.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from accelerators import Case, check, check_data, frames_for, simulate, size_buffers
from amaranth import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped
from testbench import Pattern

from hwgen.gateware import layer as layer_module
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.convolution.multiplier_units import MultiplierKinds
from hwgen.gateware.fifo import Fifo
from hwgen.gateware.multipliers.packing import PackedFields
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.requantisation.ranges import SumRanges
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.unload import Unload
from hwgen.gateware.weights import Weights
from hwgen.gateware.windows.pixel_counts import PixelCounts
from hwgen.gateware.windows.ring_banks import RingWriter
from hwgen.gateware.windows.window_grid import WindowGrid
from hwgen.gateware.windows.window_walk import WindowWalk
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Conv, MaxPool
from hwgen.schedule.buffers import ample_rows
from hwgen.schedule.solve import Schedule
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers


@cache
def subject(macs_per_dsp: int = 1) -> tuple[Case, np.ndarray, Schedule, np.ndarray]:
    """Convolution, pool, convolution of two groups whose taps don't divide and whose rows end in half a step.

    Buffers as small as can be. With frames, prediction and golden outputs. ``macs_per_dsp``: of the first one.
    """
    rng = np.random.default_rng(5)
    first = FeatureMap(channels=3, height=4, width=5, type=UINT8, zero_point=7)
    second = FeatureMap(channels=4, height=4, width=5, type=UINT8, zero_point=2)
    third = replace(second, height=2, width=3)
    last = FeatureMap(channels=4, height=2, width=3, type=UINT8, zero_point=30)

    def convolution(name: str, before: FeatureMap, after: FeatureMap, groups: int = 1) -> Conv:
        channels = after.channels
        # A power of two, so that sums lie just between two outputs now and then.
        scale = Requantisation(
            significand=np.full(channels, 1 << 23),
            shift=np.full(channels, 23 + 2),
            zero_point=after.zero_point,
            low=0,
            high=255,
        )
        return Conv(
            name=name,
            input=before,
            output=after,
            window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
            weights=rng.integers(-2, 3, (channels, before.channels // groups, 3, 3)),
            bias=rng.integers(200, 600, channels),
            requantisation=scale,
            groups=groups,
        )

    layers = (
        convolution("first", first, second),
        MaxPool(
            name="pool",
            input=second,
            output=third,
            window=Window(kernel=(2, 2), stride=(2, 2), padding=(0, 1, 0, 1)),
        ),
        convolution("second", third, last, groups=2),
    )
    network = Network(name="subject", layers=layers)
    unrolls = ((2, 3, 3, 1), (2, 2, 1, 1), (2, 1, 4, 2))
    plans = tuple(
        LayerPlan(
            name=layer.name,
            kind=layer.kind,
            tn=tn,
            tm=tm,
            tk=tk,
            tp=tp,
            chain=4,
            line_rows=ample_rows(layer.window, layer.input.width, -(-layer.input.channels // tn)),
            fifo_depths=(9,),
            macs_per_dsp=macs_per_dsp if layer.name == "first" else 1,
        )
        for layer, (tn, tm, tk, tp) in zip(layers, unrolls, strict=True)
    )
    config = compose(network, with_buffers(plans, *size_buffers(compose(network, plans))))
    count = 1 if macs_per_dsp == 1 else 5  # a lost carry is less than an output's step
    frames = np.concatenate([frames_for(network, 1, 0), rng.integers(0, 256, (count, 3, 4, 5), dtype=np.uint8)])
    schedule = Schedule(config, len(frames))
    schedule.solve()
    return Case(network, config), frames, schedule, golden.run(network, frames)


STALLS = (Pattern((True,) * 150 + (False,) * 50), Pattern((False,) * 150 + (True,) * 50))


def exact(config: AcceleratorConfig | None = None, macs_per_dsp: int = 1) -> None:
    """Never stalled, every value and every cycle; on hardware with ``config``, the subject's own if none is given."""
    case, frames, schedule, _ = subject(macs_per_dsp)
    check(replace(case, config=config or case.config), frames, schedule, patience=400)


def stalled(config: AcceleratorConfig | None = None) -> None:
    """Stalled on both sides by turns, every value."""
    case, frames, _, expected = subject()
    trace = simulate(config or case.config, frames, offer=STALLS[0], accept=STALLS[1], patience=400)
    check_data(case.config, trace.words, expected)


def caught(*checks, config: AcceleratorConfig | None = None) -> None:
    """Each of ``checks`` must fail."""
    for one in checks:
        with pytest.raises(AssertionError):
            one(config)


def changed(number: int, **changes) -> AcceleratorConfig:
    """The subject's configuration with other fields in layer ``number``'s arithmetic."""
    config = subject()[0].config
    layers = list(config.layers)
    layers[number] = replace(layers[number], compute=replace(layers[number].compute, **changes))
    return replace(config, layers=tuple(layers))


def test_without_a_fault():
    """The subject passes, and is one in which faults can show: ties to even, values that saturate, padding."""
    exact()
    stalled()
    case, frames, _, _ = subject()
    first = case.network.layers[0]
    assert isinstance(first, Conv)
    sums = replace(first, requantisation=None, output=replace(first.output, type=INT)).compute(frames[1])
    up, even = (sums + 2) >> 2, np.round(sums / 4)
    assert ((up != even) & (up >= 0) & (up < 250)).any()
    assert (up < -first.output.zero_point).any()
    assert (up > 255).any()


INT = replace(UINT8, bits=32, signed=True)


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("bit", [0, *(pytest.param(bit, marks=pytest.mark.long) for bit in (1, 2))])
@pytest.mark.parametrize("place", [0, 1, pytest.param(0.5, marks=pytest.mark.long)])
def test_flipped_weight_bit(layer, bit, place):
    compute = subject()[0].config.layers[layer].compute
    assert isinstance(compute, MultiplyConfig)
    weights = compute.weights.values.tolist()
    index = int(place * (len(weights) - 1))
    flipped_bit = (weights[index] ^ (1 << bit)) & (2**compute.weight_bits - 1)
    half = 1 << (compute.weight_bits - 1)
    weights[index] = (flipped_bit ^ half) - half
    caught(exact, config=changed(layer, weights=Weights(weights)))


def packed() -> None:
    """`exact` for a first layer with two multiply-adds a slice."""
    exact(macs_per_dsp=2)


def test_packed_without_a_fault():
    """The chains' carries matter, and the last lane, alone in its slices, is there."""
    packed()
    compute = subject(2)[0].config.layers[0].compute
    assert isinstance(compute, MultiplyConfig)
    assert (compute.multipliers, compute.chains.count, compute.units.lanes) == (2 * 3 * 2, 2, ((0, 1), (2,)))


@pytest.mark.parametrize("kept", [[], *(pytest.param(kept, marks=pytest.mark.long) for kept in ([0], [1]))])
def test_lost_carry(monkeypatch, kept):
    """The upper sums of two multiply-adds a slice lack some of their chains' carries."""
    right = PackedFields.split

    def wrong(self, sums, operands):
        parts = right(self, sums, operands)
        return [(v, [c if n in kept else Const(0) for n, c in enumerate(carries)]) for v, carries in parts]

    monkeypatch.setattr(PackedFields, "split", wrong)
    with pytest.raises(AssertionError):
        packed()


@pytest.mark.parametrize(
    "name", ["offsets", *(pytest.param(name, marks=pytest.mark.long) for name in ("offset", "stored"))]
)
def test_packed_wrongly(monkeypatch, name):
    """Sums lack what makes up for the operands' offset; operands are not offset; the upper weight is not less one."""
    case, frames, schedule, _ = subject(2)
    layers = case.config.layers
    compute = layers[0].compute
    assert isinstance(compute, MultiplyConfig)
    assert all(compute.offsets)
    if name == "offsets":
        finish = layers[0].finish
        assert isinstance(finish, RequantiseConfig)
        bias = tuple(value - offset for value, offset in zip(finish.bias, compute.offsets, strict=True))
        first = replace(layers[0], finish=replace(finish, bias=bias))
    else:
        if name == "offset":
            monkeypatch.setattr(MultiplierKinds, name, 0)
        else:
            monkeypatch.setattr(PackedFields, name, unlessened)
        first = replace(layers[0], compute=replace(compute))
    config = replace(case.config, layers=(first, *layers[1:]))
    with pytest.raises(AssertionError):
        check(replace(case, config=config), frames, schedule, patience=400)


def unlessened(self, weights, operands):
    mask = (1 << operands.weight_bits) - 1
    return sum((weight & mask) << number * operands.weight_bits for number, weight in enumerate(weights))


@pytest.mark.parametrize(
    ("layer", "value"), [(0, 8), *(pytest.param(*case, marks=pytest.mark.long) for case in ((0, 0), (1, 255), (2, 3)))]
)
def test_wrong_padding(layer, value):
    window = subject()[0].config.layers[layer].window
    assert window.pad_value != value
    caught(exact, config=changed(layer, window=replace(window, pad_value=value)))


@contextmanager
def another_row(monkeypatch, owner: type, method: str, field: str):
    """One part of every line buffer is built for a ring of one row more than the rest."""
    right = getattr(owner, method)

    def wrong(self, *args):
        parameters = vars(self)[field]
        vars(self)[field] = replace(parameters, rows=parameters.rows + 1)
        try:
            return right(self, *args)
        finally:
            vars(self)[field] = parameters

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, wrong)
        yield


@pytest.mark.parametrize(
    ("owner", "method", "field"),
    [
        (PixelCounts, "add_to", "parameters"),  # a row more may be written than there is
        (RingWriter, "add_to", "parameters"),  # the writer wraps a row late
        pytest.param(WindowWalk, "_count_slots", "_parameters", marks=pytest.mark.long),  # the reader does
    ],
)
def test_slot_count(monkeypatch, owner, method, field):
    with another_row(monkeypatch, owner, method, field):
        caught(exact)


@pytest.mark.parametrize("by", [-1, 1])
def test_needed_off_by_one(monkeypatch, by):
    """A window starts a pixel before what it needs is there (or a pixel late)."""
    right = WindowGrid.needed
    subject()
    monkeypatch.setattr(WindowGrid, "needed", lambda self, row, column: right(self, row, column) + by)
    caught(exact)


def test_released_early(monkeypatch):
    """A pixel is given back while the window after next still wants it."""
    right = WindowGrid.release_steps.func
    subject()

    def wrong(self):
        steps = right(self)
        first, *others = steps.ends
        return replace(steps, ends=(first + 1, *others[:-1], others[-1] - 1))

    monkeypatch.setattr(WindowGrid, "release_steps", property(wrong))
    caught(exact)


class Wrapped(wiring.Component):
    """A component with something between it and its ports; ``fault(m, ports, inner, layout)`` says what."""

    def __init__(self, inner, fault):
        self._inner, self._fault = inner, fault
        super().__init__(inner.signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = self._inner
        self._fault(m, self, inner)
        return m


def at_beat(m: Module, number: int, step) -> Signal:
    """High at the beat of that number, counted by ``step``, and never again."""
    count = Signal(range(number + 2))
    with m.If(step & (count <= number)):
        m.d.sync += count.eq(count + 1)
    here = Signal()
    m.d.comb += here.eq(count == number)
    return here


def drop_beat(m: Module, ports, inner) -> None:
    connect(m, inner=inner.o, outside=flipped(ports.o))
    dropped = at_beat(m, 20, ports.i.valid)
    m.d.comb += [inner.i.payload.eq(ports.i.payload), inner.i.valid.eq(ports.i.valid & ~dropped)]


def repeat_beat(m: Module, ports, inner) -> None:
    connect(m, outside=flipped(ports.i), inner=inner.i)
    repeated = at_beat(m, 20, ports.o.valid & ports.o.ready)
    m.d.comb += [
        ports.o.payload.eq(inner.o.payload),
        ports.o.valid.eq(inner.o.valid),
        inner.o.ready.eq(ports.o.ready & ~repeated),
    ]


def swap_values(m: Module, ports, inner) -> None:
    connect(m, inner=inner.o, outside=flipped(ports.o))
    m.d.comb += inner.i.valid.eq(ports.i.valid)
    given, taken = ([value for lane in port.i.payload for value in lane] for port in (ports, inner))
    for number, value in enumerate(taken):
        m.d.comb += value.eq(given[number ^ 1 if number ^ 1 < len(given) else number])


@pytest.mark.parametrize(
    ("name", "component", "fault"),
    [
        ("Fifo", Fifo, drop_beat),
        ("Fifo", Fifo, repeat_beat),
        pytest.param("Unload", Unload, swap_values, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("layer", [0, *(pytest.param(layer, marks=pytest.mark.long) for layer in (1, 2))])
def test_wrapped(monkeypatch, name, component, fault, layer):
    """A beat dropped or repeated, two neighbouring values swapped, behind one of the layers."""
    built = []

    def build(config):
        built.append(config)
        inner = component(config)
        return Wrapped(inner, fault) if (len(built) - 1) % 3 == layer else inner

    monkeypatch.setattr(layer_module, name, build)
    caught(exact, stalled)


def test_missing_last(monkeypatch):
    """The mark of a frame's last beat."""

    def without_last(m: Module, ports, inner) -> None:
        connect(m, outside=flipped(ports.i), inner=inner.i)
        m.d.comb += [
            ports.o.payload.data.eq(inner.o.payload.data),
            ports.o.valid.eq(inner.o.valid),
            inner.o.ready.eq(ports.o.ready),
        ]

    monkeypatch.setattr(layer_module, "Fifo", lambda config: Wrapped(Fifo(config), without_last))
    caught(exact, stalled)


@pytest.mark.parametrize("number", [0, pytest.param(10, marks=pytest.mark.long)])
def test_lost_credit(monkeypatch, number):
    """One credit, of all that come back, does not."""
    right = layer_module.count_credits

    def wrong(m, config, *, returned, **signals):
        return right(m, config, returned=returned & ~at_beat(m, number, returned), **signals)

    monkeypatch.setattr(layer_module, "count_credits", wrong)
    caught(exact)


@pytest.mark.long
def test_credits_too_many(monkeypatch):
    """The writer believes in a FIFO two beats deeper than it is (one finds room where a beat is offered)."""
    right = layer_module.count_credits

    def wrong(m, config, **signals):
        return right(m, replace(config, depth=config.depth + 2), **signals)

    monkeypatch.setattr(layer_module, "count_credits", wrong)
    caught(stalled)


def test_round_half_up(monkeypatch):
    """Ties go up instead of to even."""
    config = subject()[0].config
    monkeypatch.setattr(SumRanges, "ties", False)
    # New configurations: the old ones remember what they worked out.
    layers = (replace(config.layers[0], finish=replace(config.layers[0].finish)), *config.layers[1:])
    caught(exact, config=replace(config, layers=layers))


@pytest.mark.parametrize(
    "field", ["zero_point", "bias", *(pytest.param(field, marks=pytest.mark.long) for field in ("high", "low"))]
)
def test_wrong_requantisation(field):
    """Off by one in the zero point, a bound or one channel's bias."""
    config = subject()[0].config
    finish = config.layers[-1].finish
    value = getattr(finish, field)
    wrong = {"bias": lambda: (*value[:-1], value[-1] + 4), "high": lambda: value - 1}.get(field, lambda: value + 1)()
    layers = (*config.layers[:-1], replace(config.layers[-1], finish=replace(finish, **{field: wrong})))
    caught(exact, config=replace(config, layers=layers))
