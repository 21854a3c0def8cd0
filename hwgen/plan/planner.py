"""The planner: one fusion group, the unroll factors with the least interval, and the buffers they need."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.network.graph import Conv, Layer, Network
from hwgen.plan.buffers import ample_rows, size_buffers
from hwgen.plan.compose import compose, input_format, layer_config
from hwgen.plan.plan import LayerPlan, Plan, finish, with_buffers
from hwgen.plan.unroll import LayerWork, Unroll, ceil_div, solve

#: DSP slices in a chain at most: longer ones cost latency and outgrow a DSP column.
CHAIN = 16


def make(network: Network, board: Board, *, dsp: int | None = None) -> Plan:
    """Plan ``network`` for ``board``: the least interval, then the fewest DSP slices.

    Parameters
    ----------
    dsp : int, optional
        DSP slices that may be used; all of the board's if not given.

    Raises
    ------
    PlanError
        If nothing fits, naming what runs out.
    """
    budget = board.dsp if dsp is None else dsp
    if not 1 <= budget <= board.dsp:
        raise PlanError(f"dsp must be between 1 and the {board.dsp} slices of {board.name}, not {budget!r}")
    works = [work_of(layer) for layer in network.layers]
    slices = {layer.name: _requantiser_slices(layer) for layer in network.layers}

    def cost(work: LayerWork, unroll: Unroll) -> Any:
        multipliers = 0 if work.depthwise else unroll.tn * unroll.tm * unroll.tk
        return unroll.tp * (multipliers + slices[work.name] * lanes_out(work, unroll))

    unrolls = solve(works, budget, cost)
    sources = [unroll.tp for unroll in (*unrolls[:1], *unrolls)]
    layers = tuple(_choice(*chosen) for chosen in zip(network.layers, unrolls, sources, strict=False))
    rows, depths = size_buffers(compose(network, layers))
    return finish(network, board, with_buffers(layers, rows, depths), budget)


def lanes_out(work: LayerWork, unroll: Unroll) -> Any:
    """``r``: channels a cycle that a layer finishes, ``ceil(Tm / cycles of an output fold)``."""
    folds = 1 if work.depthwise else ceil_div(work.group_channels, unroll.tn)
    return ceil_div(unroll.tm, folds * ceil_div(work.taps, unroll.tk))


def work_of(layer: Layer) -> LayerWork:
    """What the unroll search knows of a layer."""
    return LayerWork(
        name=layer.name,
        channels=layer.input.channels,
        outputs=layer.output.channels,
        groups=layer.groups if isinstance(layer, Conv) else 1,
        height=layer.output.height,
        width=layer.output.width,
        input_height=layer.input.height,
        input_width=layer.input.width,
        taps=layer.window.taps,
        depthwise=not isinstance(layer, Conv),
    )


def _choice(layer: Layer, unroll: Unroll, source: int) -> LayerPlan:
    """``source``: pixels of an input beat."""
    groups = layer.groups if isinstance(layer, Conv) else 1
    folds = groups * ceil_div(layer.input.channels // groups, unroll.tn)
    return LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=unroll.tn,
        tm=unroll.tm,
        tk=unroll.tk,
        tp=unroll.tp,
        chain=CHAIN,
        line_rows=ample_rows(layer.window, ceil_div(layer.input.width, source), folds),
        fifo_depth=unroll.tm,  # at least one fold's beats; sized later
    )


@cache
def _requantiser_slices(layer: Layer) -> int:
    """DSP slices of the requantiser for each channel it finishes a cycle."""
    if not isinstance(layer, Conv) or layer.requantisation is None:
        return 0
    single = LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=1,
        tm=1,
        tk=1,
        chain=CHAIN,
        line_rows=layer.window.kernel[0],
        fifo_depth=1,
    )
    requantise = layer_config(layer, single, input_format(layer, single, 1), None).finish
    assert isinstance(requantise, RequantiseConfig)
    return replace(requantise, lanes=1).multipliers
