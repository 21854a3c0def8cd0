"""Layers for schedules that are calculated by hand."""

from __future__ import annotations

from dataclasses import replace

from accelerators import Case

from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan


def pool(channels: int, height: int, width: int, *, tn: int = 1, tk: int = 4, rows: int = 3, depth: int = 9) -> Case:
    """One 2 x 2 pool, stride 2."""
    before = FeatureMap(channels=channels, height=height, width=width, type=UINT8)
    after = replace(before, height=height // 2, width=width // 2)
    layer = MaxPool(name="pool", input=before, output=after, window=Window(kernel=(2, 2), stride=(2, 2)))
    network = Network(name="pool", layers=(layer,))
    plan = LayerPlan(name="pool", kind="maxpool", tn=tn, tm=tn, tk=tk, chain=1, line_rows=rows, fifo_depths=(depth,))
    return Case(network, compose(network, [plan]))
