"""Lower bound of the LUTs of a plan, for any groups and unroll factors, and any template with weights on the chip."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

from hwgen.options import DSP
from hwgen.templates.compose import input_formats
from hwgen.templates.refusal import Refusal, attempt
from hwgen.templates.search import layer_plan
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.task import Task
from hwgen.templates.unroll import factor_grid
from hwgen.templates.work import LayerWork, Unroll

#: Factors with up to so many products per cycle are configured, and with up to so many if each cycle reads all channels
#: of a pixel. Further lanes and taps take more LUTs than the counters and accumulators of their folds.
MOST_PRODUCTS, MOST_WHOLE = 4, 16

#: Share of these LUTs that every plan takes. Several pixels per cycle save a few LUTs of a FIFO.
SURE_SHARE = 0.97


def surely_exceeds(task: Task, luts: int) -> bool:
    """Return whether the layers of a task take more than ``luts`` LUTs in every plan with the weights on the chip.

    Each layer has hardware of its own in every grouping, and in a pyramid it takes more LUTs, for its tiles.
    """
    stages = [stage_of(layer, task.board.family) for layer in task.network.layers]
    layers = list(zip(stages, task.works, strict=True))
    if sum(_fewest_luts(task, *layer, (1, 1), unknown=luts) for layer in layers) <= luts:
        return False  # at once where LUTs are not scarce: other factors can only take fewer
    fewest = (_fewest_luts(task, *layer, (MOST_PRODUCTS, MOST_WHOLE), unknown=0) for layer in layers)
    return any(SURE_SHARE * count > luts for count in accumulate(fewest))


def _fewest_luts(task: Task, stage: Stage[Any], work: LayerWork, most: tuple[int, int], unknown: int) -> int:
    """Return about the fewest LUTs of a layer, with the smallest buffers: those of the best of some small factors.

    ``most`` limits the factors' products per cycle, in general and if each cycle reads all channels of a pixel. The
    products are in DSP slices or in LUTs, as the goal allows. The result is ``unknown`` if no factors can be built.
    """
    in_slices = not (work.weighted and task.goal.needs_luts)
    in_luts = bool(stage.lut_multipliers) and task.goal.multipliers != DSP
    unrolls, least_taps = [], work.taps if work.whole_windows else 1
    for tn, tm, tk in zip(*(axis.tolist() for axis in factor_grid(work)), strict=True):
        if tn * tm * tk <= most[tn == work.group_channels] * least_taps:
            unrolls += [Unroll(tn, tm, tk)] * in_slices + [Unroll(tn, tm, tk, lut_lanes=tm)] * in_luts
    luts = (attempt(_luts, task, stage, unroll) for unroll in unrolls)
    return min((count for count in luts if not isinstance(count, Refusal)), default=unknown)


def _luts(task: Task, stage: Stage[Any], unroll: Unroll) -> int:
    """Return the LUTs of a layer with given unroll factors, the smallest FIFO, and the best number of rows."""
    plan = layer_plan(stage, unroll, 1, task.multipliers[stage.op.name])
    config = stage.layer(plan, input_formats(stage, plan, [1] * len(stage.op.inputs)), [None])
    # The memory of a line buffer depends on its rows.
    rows = range(stage.least_rows, plan.line_rows + 1) if stage.has_rows else ()
    saved = (config.window.resources.lut - replace(config.window, rows=count).resources.lut for count in rows)
    return config.resources.lut - max(saved, default=0)
