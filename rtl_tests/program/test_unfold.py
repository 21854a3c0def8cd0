"""Inputs whose rows and columns are channels of one pixel: the layer computes the same, in fewer steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import SMALL, alone, check, conv, engines, given_frame, scheduled, tasks_of

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network import golden
from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import Conv, Upsample
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.file import Program
from hwgen.program.tiles import best_tilings, chunks, steps
from hwgen.program.unfold import Unfold, unfolded, unfolds
from hwgen.schedule.engine import EngineSchedule
from hwgen.schedule.engine_core import group_steps


def layer_of(channels, kernel, stride, padding, size, signed=False, maps=10) -> Conv:
    """Return a convolution with a window of these sizes."""
    base = conv(channels=channels, maps=maps, size=(12, 12))
    window = Window(kernel=kernel, stride=stride, padding=padding)
    rows, columns = window.output_size(*size)
    kind = {"type": INT8, "zero_point": -9} if signed else {}
    return replace(
        base,
        input=replace(base.input, height=size[0], width=size[1], **kind),
        output=replace(base.output, height=rows, width=columns),
        window=window,
        weights=np.resize(base.weights, (maps, channels, *kernel)),
    )


@st.composite
def layers(draw) -> Conv:
    kernel = draw(st.integers(1, 7)), draw(st.integers(2, 8))
    stride = draw(st.integers(1, 4))
    padding = tuple(draw(st.integers(0, side // 2)) for side in (*kernel, *kernel))
    size = tuple(max(side, 2) + draw(st.integers(0, 9)) for side in kernel)
    return layer_of(
        draw(st.integers(1, 7)), kernel, (draw(st.integers(1, 4)), stride), padding, size, draw(st.booleans())
    )


def in_layout(layer: Conv, unfold: Unfold, engine: EngineConfig) -> ProgramSchedule:
    """Return the schedule of a convolution alone that reads its input in a layout."""
    choices = scheduled(unfolded(alone(layer), {layer.name: unfold}), engine).choices
    return schedule(alone(layer), engine, choices=choices)


@pytest.mark.parametrize("kernel", [1, 3])
def test_first_layers_of_several_passes(kernel):
    """A grouped convolution that reads the input in a pass for each group is compiled, though it is not unfolded."""
    layer = conv(kernel=kernel, channels=24, maps=24)
    network = alone(replace(layer, weights=layer.weights[:, :8], groups=3))
    assert len(tasks_of(network)) == 3
    check(schedule(network, SMALL))


@given(layer=layers(), engine=engines(), data=st.data())
@settings(max_examples=20)
def test_each_layout_gives_the_same(layer, engine, data):
    """As a program, and as a network whose golden model reads the unfolded map."""
    unfold = data.draw(st.sampled_from(unfolds(layer)))
    network = alone(layer)
    other = unfolded(network, {layer.name: unfold})
    kind = layer.input.type
    frame = np.random.default_rng(0).integers(kind.minimum, kind.maximum + 1, layer.input.shape).astype(kind.dtype)
    taken = unfold.apply(frame, kind)
    np.testing.assert_array_equal(golden.outputs(other, taken[None])[0], golden.outputs(network, frame[None])[0])
    found = in_layout(layer, unfold, engine)
    assert found.program.inputs[0].unfold == unfold
    check(found)


def test_first_layers_take_fewer_steps():
    """AlexNet's: 11 x 11 taps of 3 channels are 92 steps in place of 121."""
    layer = layer_of(3, (11, 11), (4, 4), (2, 2, 2, 2), (63, 63), maps=64)
    layer = replace(layer, weights=np.maximum(layer.weights, -127))
    network = alone(layer)
    found = schedule(network, EngineConfig())
    (work,) = found.tiled_passes
    task, tiling = work.task, work.tiling
    assert (task.channels, task.window.kernel, tiling.unfold_columns, task.last_channels) == (132, (1, 3), 4, 99)
    sizes = [chunk.size for chunk in chunks(task, replace(tiling, channels=104, taps=1))]
    assert sizes == [(104, 1, 3), (28, 1, 2)]
    assert sum(steps(task, *size) for size in sizes) == 92
    assert {group_steps(job.compute) for job in found.jobs} == {
        steps(task, *chunk.size) for chunk in chunks(task, tiling)
    }
    (plain_task,) = tasks_of(network)
    ((plain_tiling, _),) = best_tilings(plain_task, EngineConfig())
    plain = schedule(network, EngineConfig(), tilings={"conv": plain_tiling})
    faster, slower = (EngineSchedule(made.engine, made.jobs).run().cycles for made in (found, plain))
    assert faster < 0.9 * slower
    check(found)


def test_programs_say_how_inputs_are_stored(tmp_path):
    """In their file, from which frames are packed as before."""
    layer = layer_of(3, (5, 5), (2, 2), (1, 2, 1, 3), (11, 13))
    found = in_layout(layer, unfolds(layer)[1], SMALL)
    (source,) = found.program.inputs
    assert source.unfold is not None
    found.program.write(tmp_path / "conv.program")
    (again,) = Program.read(tmp_path / "conv.program", SMALL).inputs
    assert again == source
    frame = np.random.default_rng(1).integers(0, 256, layer.input.shape).astype(np.uint8)
    np.testing.assert_array_equal(given_frame(source.pack(frame), source), frame)


def test_layouts_that_are_refused():
    layer = layer_of(3, (5, 5), (2, 2), (2, 2, 2, 2), (11, 13))
    choices = schedule(alone(layer), SMALL).choices
    (name, (tiling,)) = next(iter(choices[0].items()))
    allowed = "0 and 0, or 2 and 2, or 2 and 4, or 2 and 5, or 0 and 2, or 0 and 4, or 0 and 5"
    plain = replace(tiling, unfold_rows=0, unfold_columns=0)
    for rows, columns in ((0, 3), (3, 2), (2, 0)):
        message = f"conv: unfold_rows and unfold_columns must be {allowed}, not {rows} and {columns}"
        with pytest.raises(PlanError, match=f"^{message}$"):
            schedule(
                alone(layer),
                SMALL,
                choices=[{name: [replace(plain, unfold_rows=rows, unfold_columns=columns)]}],
            )


def test_first_layers_read_fewer_words_with_as_many_rows_as_the_stride():
    """3 x 3 taps of 3 channels, stride 2: 2 x 2 pixels are 12 channels in 2 words; 3 rows x 2 columns are 18 in 3."""
    layer = layer_of(3, (3, 3), (2, 2), (1, 1, 1, 1), (64, 64), maps=16)
    layer = replace(layer, weights=np.maximum(layer.weights, -127))
    found = schedule(alone(layer), EngineConfig())
    (work,) = found.tiled_passes
    assert (work.tiling.unfold_rows, work.tiling.unfold_columns) == (2, 2)
    assert (work.task.channels, work.task.window.kernel) == (12, (2, 2))
    assert found.program.inputs[0].size == 2 * 33 * 33 * 8
    check(found)


def test_an_unfolded_map_has_the_zero_point_outside():
    """By hand: 2 x 3 taps, stride 2, one row and one column of padding."""
    source = FeatureMap(channels=1, height=2, width=3, type=INT8, zero_point=-3)
    layer = layer_of(1, (2, 3), (2, 2), (1, 1, 1, 1), (2, 3), signed=True)
    *_, whole = unfolds(replace(layer, input=source))
    frame = np.array([[[1, 2, 3], [4, 5, 6]]], np.int8)
    expected = [[[-3, -3], [-3, 5]]]
    got = whole.apply(frame, INT8)
    assert got.shape == (6, 2, 2)
    np.testing.assert_array_equal(got[:1], expected)
    np.testing.assert_array_equal(got[:, 0, 0], [-3, -3, -3, 1, -3, 2])
    np.testing.assert_array_equal(got[:, 1, 1], [5, -3, 6, -3, -3, -3])


def test_passes_share_the_boxes_that_they_read():
    """The four passes of a Resize read each pixel once, and their jobs compute several blocks of channels."""
    source = FeatureMap(channels=24, height=6, width=10, type=INT8, zero_point=-3)
    output = replace(source, height=12, width=20)
    layer = Upsample(name="up", input=source, output=output, window=Window(kernel=(1, 1)), factors=(2, 2))
    found = schedule(alone(layer), EngineConfig())
    loaded = sum(job.load.x_blocks * job.load.x_rows * job.load.x_words for job in found.jobs)
    assert loaded == 3 * 6 * 10
    assert len(found.jobs) == 4 * 6
    assert {job.compute.folds for job in found.jobs} == {3}
    check(found)
