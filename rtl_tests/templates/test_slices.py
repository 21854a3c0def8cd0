"""DSP slices that the search counts on: never fewer than those of the hardware that is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run
from counted import counted as counted_cases
from graphs import graphs, unrolls
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwgen import boards
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, IntegerType, Window
from hwgen.network.ops import Conv
from hwgen.network.requantise import Requantisation
from hwgen.templates.compose import compose
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.task import Goal, Task
from hwgen.templates.work import Unroll

BOARD = boards.load("zedboard")


def task_of(network: Network, macs_per_dsp: int, in_luts: frozenset[str] = frozenset()) -> Task:
    return Task(network, BOARD, Goal(objective="interval", dsp=220, macs_per_dsp=macs_per_dsp, in_luts=in_luts))


def counted_and_made(network: Network, unroll: Unroll, macs_per_dsp: int) -> tuple[int, LayerConfig]:
    """DSP slices of a network's only layer as the search counts them, and the layer's hardware."""
    task = task_of(network, macs_per_dsp)
    (op,), (work,) = network.layers, task.works
    (layer,) = compose(network, (layer_plan(stage_of(op), unroll, 1, task.multipliers[op.name]),)).layers
    return int(task.slices(work, unroll)), layer


def pointwise(weights: list[int], significand: int, shift: int) -> Network:
    """A 1 x 1 convolution of unsigned values, two output channels of the same weights."""
    before = FeatureMap(channels=len(weights), height=4, width=4, type=UINT8)
    layer = Conv(
        name="pointwise",
        input=before,
        output=replace(before, channels=2),
        window=Window(kernel=(1, 1)),
        weights=np.array([weights, weights])[:, :, None, None],
        bias=np.zeros(2, np.int64),
        requantisation=Requantisation(
            significand=np.full(2, significand), shift=np.full(2, shift), zero_point=0, low=0, high=255
        ),
    )
    return Network(name="pointwise", layers=(layer,))


@pytest.mark.parametrize(("macs_per_dsp", "slices"), [(1, 8 * 2 + 2 * 1), (2, 8 + 2 * 2)])
def test_offset_of_packed_sums(macs_per_dsp, slices):
    """By hand: positive weights add up to 514, negative ones to -257.

    Sums of 0 to 255 need 18 bits (514 * 255 = 131,070), which a slice multiplies by 24 bits. Sums of -128 to 127 need
    18 bits, too (514 * 127 + 257 * 128 = 98,174), but 128 * (514 - 257) = 32,896 is added to them: up to 163,967 needs
    19 bits and a second slice. None of them saturates: 163,967 * 1.47 / 2**10 is 236.
    """
    network = pointwise([127, 127, 127, 127, 6, -127, -127, -3], 12_345_679, 23 + 10)
    counted, layer = counted_and_made(network, Unroll(8, 2, 1, 1), macs_per_dsp)
    assert counted == layer.multipliers == slices


def random_layer(rng: np.random.Generator) -> Network:
    """A convolution with sums of 16 to 19 bits, near the widths at which a requantiser takes another slice."""
    kind = IntegerType(bits=int(rng.choice([8, 8, 8, 7, 6])), signed=bool(rng.integers(2)))
    groups, kernel = int(rng.choice([1, 1, 1, 2])), int(rng.choice([1, 3]))
    channels, outputs = groups * int(rng.integers(1, 60)), groups * int(rng.integers(1, 9))
    zero_points = (max(kind.minimum, 0), kind.minimum, int(rng.integers(kind.minimum, kind.maximum + 1)))
    before = FeatureMap(channels=channels, height=6, width=7, type=kind, zero_point=int(rng.choice(zero_points)))
    after = replace(before, channels=outputs, zero_point=int(rng.integers(kind.minimum, kind.maximum + 1)))
    shape = (outputs, channels // groups, kernel, kernel)
    shares = np.where(rng.random(shape) < rng.random(), 1, -1) * rng.random(shape)
    signs = [np.maximum(sign * shares, 0).sum(axis=(1, 2, 3)).max() for sign in (1, -1)]
    half, fraction = kernel // 2, int(rng.choice([0, 0, 0, 4]))
    layer = Conv(
        name="layer",
        input=before,
        output=after,
        window=Window(kernel=(kernel, kernel), padding=(half, half, half, half)),
        weights=np.clip(np.rint(shares * 2 ** rng.uniform(9, 11) / max(signs)), -127, 127).astype(np.int64),
        bias=rng.integers(-(1 << 12), 1 << 12, outputs) << fraction,
        requantisation=None,
        groups=groups,
        fraction=fraction,
    )
    scales = 1 if rng.random() < 0.5 else outputs
    excess = max(0, layer.accumulator_bound.bit_length() - kind.bits)
    rule = Requantisation(
        significand=np.broadcast_to(rng.integers(1 << 23, 1 << 24, scales), outputs),
        shift=np.broadcast_to(23 + np.maximum(0, excess - rng.integers(-1, 3, scales)), outputs),
        zero_point=after.zero_point,
        low=kind.minimum,
        high=kind.maximum,
    )
    return Network(name="layer", layers=(replace(layer, requantisation=rule),))


def test_random_layers():
    """Never too few slices; as many as are made where all channels have one scale."""
    alike = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        network = random_layer(rng)
        (op,) = network.layers
        most_tn, most_tm = stage_of(op).most_lanes
        tn, tm, tk = (int(rng.integers(1, most + 1)) for most in (most_tn, most_tm, op.taps))
        unroll = Unroll(tn, tn if stage_of(op).channelwise else tm, tk, int(rng.integers(1, 3)))
        assert isinstance(op, Conv)
        rule = op.requantisation
        assert rule is not None
        for macs_per_dsp in (1, 2):
            counted, layer = counted_and_made(network, unroll, macs_per_dsp)
            assert counted >= layer.multipliers, (seed, macs_per_dsp)
            if len({*zip(rule.significand.tolist(), rule.shift.tolist(), strict=True)}) == 1:
                assert counted == layer.multipliers, (seed, macs_per_dsp)
                alike += 1
    assert alike >= 100


@settings(max_examples=40)
@given(data=st.data())
def test_random_graphs(data):
    """Layers of all kinds with any unroll factors, packed or not, with requantisers of slices or of LUTs."""
    network = data.draw(graphs(most_steps=2))
    plans = data.draw(unrolls(network))
    in_luts = frozenset(plan.name for plan in plans if plan.requantise_in == "lut")
    tasks = {macs: task_of(network, macs, in_luts) for macs in MULTIPLIERS}
    for number, (plan, layer) in enumerate(zip(plans, compose(network, plans).layers, strict=True)):
        task = tasks[plan.macs_per_dsp]
        unroll = Unroll(plan.tn, plan.tm, plan.tk, plan.tp, plan.lut_lanes)
        assert int(task.slices(task.works[number], unroll)) >= layer.multipliers, layer.name


@cases_in_the_long_run(40)
@given(data=st.data())
def check_with_luts(data):
    """Layers of all kinds whose products are divided between slices, packed as well as they can be, and LUTs."""
    network = data.draw(graphs(most_steps=2))
    plans = data.draw(unrolls(network))
    goal = Goal(objective="interval", dsp=220, macs_per_dsp="auto", multipliers="auto", lut=40_000)
    task, divided = Task(network, BOARD, goal), []
    for plan, layer in zip(plans, network.layers, strict=True):
        multiplier, lut_lanes = task.multipliers[layer.name], 0
        if stage_of(layer).lut_multipliers:
            lut_lanes = data.draw(st.sampled_from([0, plan.tm, data.draw(st.integers(0, plan.tm))]))
        kind = multiplier.for_size(plan.tm - lut_lanes, plan.tp) if lut_lanes < plan.tm else PLAIN
        weighted = replace(plan, lut_lanes=lut_lanes, macs_per_dsp=kind.name, requantise_in="dsp", weights_in=None)
        divided.append(replace(weighted, weights_joined=False) if layer.weight_count else plan)
    assume(any(plan.lut_lanes for plan in divided))
    for work, plan, layer in zip(task.works, divided, compose(network, divided).layers, strict=True):
        (form,) = task.prices.forms(work)
        terms = task.prices.terms(work, Unroll(plan.tn, plan.tm, plan.tk, plan.tp), form)
        slice_lanes = plan.tm - plan.lut_lanes
        finish = max(terms.finish_slices * (slice_lanes > 0), terms.lut_finish_slices * (plan.lut_lanes > 0))
        slices = -(-slice_lanes // form.lanes) * terms.unit_slices + finish
        if plan.requantise_in == "dsp":
            assert int(slices) >= layer.resources.dsp, layer.name


def test_random_divisions():
    with counted_cases(check_with_luts):
        check_with_luts()
