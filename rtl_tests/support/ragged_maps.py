"""An accelerator whose maps don't fill their beats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, Window
from hwgen.network.ops import Conv
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan


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
