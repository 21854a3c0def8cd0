"""Planning on the engine: no Python objects for each burst or tiling, no copies of weights, the same numbers."""

from __future__ import annotations

import cProfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_transfers import Transfer, moved
from onnx import numpy_helper
from programs import alone, conv

from hwgen.gateware.engine.config import EngineConfig
from hwgen.network import shapes
from hwgen.network.maps import Window
from hwgen.network.zoo.drawing import SEED, Drawing
from hwgen.program.compile import schedule
from hwgen.program.given_tilings import tiling_cost
from hwgen.program.maps import fused_layers
from hwgen.program.passes import Pass, passes
from hwgen.program.tiles import (
    Estimator,
    Room,
    Tiling,
    Tilings,
    _pixel_groups,
    _spans,
    best_tilings,
    candidates,
    pieces,
)
from hwgen.schedule.engine import EngineSchedule

ENGINE = EngineConfig()


def calls(function: Callable[[], Any]) -> int:
    """Return the number of Python and C functions that a function calls."""
    profile = cProfile.Profile()
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())


def task_of(**parameters: Any) -> Pass:
    (step,) = fused_layers(alone(conv(**parameters)))
    (task,) = passes(step.ops, step.takes, step.inside)
    return task


def test_a_burst_calls_no_python():
    """The loops are compiled: calls grow with the jobs, not with bursts and pixel groups, of which there are more."""
    jobs = schedule(shapes.graph("resnet8"), ENGINE).jobs
    run = EngineSchedule(ENGINE, jobs).run()  # compiles
    assert len(run.bursts) + len(run.groups) > 10 * len(jobs)
    assert calls(EngineSchedule(ENGINE, jobs).run) < 6 * len(jobs)


def test_a_tiling_calls_no_python():
    """All tilings of a pass are compared at once; a map of 224 x 224 has 20,464 of them."""
    task = task_of(channels=64, maps=64, size=(224, 224))
    best_tilings(task, ENGINE)
    assert calls(lambda: best_tilings(task, ENGINE)) < 20_000


@pytest.mark.parametrize(
    ("rows", "columns", "channels"),
    [(20, 24, 160), (12, 24, 160), (12, 8, 80)],
    ids=["loads and steps alternate", "double-buffered", "chunks"],
)
def test_estimates_of_a_tiling_count_the_loads_that_nothing_hides(rows, columns, channels):
    """A box of 22 rows and 26 columns takes 1,240 of the 2,048 words of a bank, so that the next one must wait."""
    layer = conv(channels=160, maps=64, size=(60, 48))
    network = alone(replace(layer, weights=np.maximum(layer.weights, -127)))
    tiling = Tiling(rows=rows, columns=columns, box_rows=rows, channels=channels, taps=3, maps_stay=True)
    made = schedule(network, ENGINE, tilings={"conv": tiling})
    cost = tiling_cost(made.tiled_passes[0].task, ENGINE, tiling)
    assert cost.order[0] == pytest.approx(EngineSchedule(ENGINE, made.jobs).run().cycles, rel=0.02)


def test_each_tiling_is_returned_once():
    """Twelve in the order of their cost, and six more that are cheaper between other layers than all others."""
    task, room = task_of(channels=64, maps=64, size=(28, 28)), Room.whole(ENGINE)
    best = best_tilings(task, ENGINE, max_count=12)
    tilings, orders = [tiling for tiling, _ in best], [cost.order for _, cost in best]
    assert len(tilings) == len(set(tilings)) == 18
    assert orders[:12] == sorted(orders[:12])
    assert orders[11] <= min(orders[12:])
    table = candidates(task, ENGINE, room)
    costs = Estimator(task, ENGINE, room).costs(table)
    between = np.maximum(costs.array + costs.ends, costs.port)
    worst = max(max(cost.array + cost.ends, cost.port) for _, cost in best[12:])
    assert {table.tiling(index) for index in np.flatnonzero((between < worst) & costs.fits)} <= {*tilings}


@pytest.mark.parametrize(
    ("kernel", "size", "stride", "dilation", "padding"),
    [
        (3, (9, 14), 1, 1, (1, 1, 1, 1)),
        (1, (10, 7), 2, 1, (0, 0, 0, 0)),
        (3, (8, 8), 2, 2, (2, 1, 0, 3)),
        (2, (5, 6), 3, 1, (0, 0, 0, 0)),
    ],
)
def test_spans_and_groups(kernel, size, stride, dilation, padding):
    """What pieces of the output need, counted piece by piece with `Pass.needed`; groups tile by tile."""
    window = Window(kernel=(kernel, kernel), stride=(stride, stride), padding=padding, dilation=(dilation, dilation))
    across = [(size[axis] + padding[axis] + padding[axis + 2] - window.extent[axis]) // stride + 1 for axis in (0, 1)]
    task = replace(task_of(size=(20, 20)), window=window, height=size[0], width=size[1])
    task = replace(task, rows=across[0], columns=across[1])
    for axis in (0, 1):
        sizes = np.arange(1, task.size[axis] + 1)
        apart = 1 if axis else task.row_step
        for step, found in zip(sizes.tolist(), zip(*_spans(task, axis, sizes), strict=True), strict=True):
            needed = [task.needed(axis, *each) for each in pieces(task.size[axis], step)]
            rows = [len(range(begin, end, apart)) for begin, end in needed]
            assert found == (len(rows), max(rows), sum(rows))
    tiles = [(rows, columns) for rows in range(1, across[0] + 1) for columns in range(1, across[1] + 1)]
    rows, columns = np.array(tiles).T
    table = Tilings(rows, columns, rows, rows, rows, rows > 0, rows)
    for (high, wide), groups in zip(tiles, _pixel_groups(task, 5, table), strict=True):
        areas = [(y - x) * (b - a) for x, y in pieces(across[0], high) for a, b in pieces(across[1], wide)]
        assert groups == sum(-(-area // 5) for area in areas)


def test_weights_are_checked_without_a_copy():
    """8 MiB of weights, as int64: less than a quarter of that is needed beside them."""
    layer = conv(kernel=1, channels=1024, maps=1024, size=(1, 1))
    network = alone(replace(layer, weights=np.maximum(layer.weights, -127)))
    schedule(network, ENGINE)
    tracemalloc.start()
    schedule(network, ENGINE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


def test_weights_drawn_by_rows():
    """NumPy draws the same numbers row by row as all at once."""
    drawing = Drawing("drawn", (50, 1, 1), flat=True)
    drawing.dense("layer", "image", 7)
    weights = numpy_helper.to_array(drawing.model("layer_relu_out").graph.initializer[0])
    assert np.array_equal(weights, np.random.default_rng([SEED, 0]).normal(0, 0.2, (7, 50)).astype(np.float32))


def test_bursts_of_a_box_without_words():
    assert moved(ENGINE, Transfer((0, 8, 8, 2, 3, 0))) == []
