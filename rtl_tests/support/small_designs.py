"""Small designs with a component of each class that emits proof obligations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyramid_cases
from graphs import normalisation
from programs import SMALL
from proofs import chain, wrapped_chain
from small_arithmetic import ARITHMETIC
from small_circuits import BANK, JOIN, LINK, LOADER, REPACK, SHELL, UPSAMPLING

from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.multipliers import PLAIN
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import LRN, AveragePool, DepthToSpace, Op, Select
from hwgen.schedule.buffers import size_buffers
from hwgen.templates.compose import compose
from hwgen.templates.layers import with_buffers
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll
from hwgen.verilog.emitted import ENGINE, engine_files, files

#: Configuration, name of its top module, and Verilog of a design whose components are proved.
Design = tuple[Any, str, str]
_ONE = Window(kernel=(1, 1))
_MAP = FeatureMap(channels=4, height=2, width=2, type=UINT8, zero_point=0, scale=0.5)


def layer_alone(layer: Op, taps: int = 1) -> Design:
    """Return the accelerator of one layer, one channel and some taps of its windows a cycle."""
    network = Network(name="dut", layers=(layer,))
    plans = (replace(layer_plan(stage_of(layer), Unroll(1, 1, taps, 1), 1, PLAIN, 1), fifo_depths=(1000,)),)
    config = compose(network, with_buffers(plans, *size_buffers(compose(network, plans))))
    return config, "dut", files(config, top="dut")["dut.v"].decode()


def select() -> Design:
    layer = Select(name="part", input=_MAP, output=replace(_MAP, channels=2), window=_ONE, index=(3, 1))
    return layer_alone(layer)


def depth_to_space() -> Design:
    output = replace(_MAP, channels=1, height=4, width=4)
    return layer_alone(DepthToSpace(name="wide", input=_MAP, output=output, window=_ONE, blocks=(2, 2)))


def response_normalisation() -> Design:
    scale, falls = normalisation(4, 3, 1e-3, 0.5, 0.5)
    layer = LRN(name="lrn", input=_MAP, output=_MAP, window=_ONE, scale=scale, falls=falls, low=0, high=255)
    return layer_alone(layer)


def float_average() -> Design:
    """Return an average pool that adds a whole window in one step, because float32 rounds after each addition."""
    layer = AveragePool(
        name="pool",
        input=_MAP,
        output=replace(_MAP, height=1, width=1),
        window=Window(kernel=(2, 2)),
        x_scale=float(np.float32(0.1)),
        y_scale=0.25,
        include_padding=False,
    )
    return layer_alone(layer, taps=4)


def tiles() -> Design:
    config = pyramid_cases.pools().config
    return config, "dut", files(config, top="dut")["dut.v"].decode()


def engine_of(config: EngineConfig) -> Design:
    return EngineDesign(engine=config), ENGINE, engine_files(config)[f"{ENGINE}.v"].decode()


#: Designs, by what they show: functions that return each.
DESIGNS: dict[str, Callable[[], Design]] = {
    "layers": lambda: (chain(lut_lanes=1)[0], "dut", chain(lut_lanes=1)[1]),
    "bus wrapper": lambda: (wrapped_chain()[0], "dut_axi", wrapped_chain()[1]),
    "select": select,
    "blocks": depth_to_space,
    "running scale": response_normalisation,
    "tiles": tiles,
    "engine": lambda: engine_of(SMALL),
    "engine that keeps maps": lambda: engine_of(replace(SMALL, kept_words=4096)),
}
#: Components alone.
COMPONENTS = (JOIN, UPSAMPLING, REPACK, SHELL, BANK, LOADER, LINK, *ARITHMETIC)
