"""Random layers and groups of layers that are computed tile by tile, and their simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from accelerators import networks, unrolls
from hypothesis import assume
from hypothesis import strategies as st
from testbench import PATIENCE, Trace, run
from tiles import beats_of, new_parts, output_parts, tilings, widths

from hwgen.devices import DEFAULT
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool, Op
from hwgen.simulate.testbench import patience
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid import Pyramid, in_tiles
from hwgen.templates.pyramid_tiles import REUSE, axes
from hwgen.templates.stage import Stage

SEEDS = st.integers(0, 2**32)


def _stage(op: Op) -> Stage:
    """Return the stage of a layer that computes tile by tile on the default device."""
    return Pyramid.stage(op, DEFAULT)


@dataclass(frozen=True, eq=False)
class Case:
    """A network and its accelerator in tiles."""

    network: Network
    config: AcceleratorConfig

    def __repr__(self) -> str:
        lines = [f"network of {self.network.input}"]
        for node, layer in zip(self.network.layers, self.config.layers, strict=True):
            assert isinstance(layer, PyramidLayerConfig)
            lines.append(
                f"  {node.name} {node.window} -> {node.output} groups {layer.window.input.groups} "
                f"Tn {layer.window.input.lanes} Tm {layer.compute.lanes} Tk {layer.window.taps} "
                f"FIFO {layer.fifo_lanes} x {layer.fifo_depths[0]} pixels {layer.window.input.pixels}\n"
                f"    {layer.tiles.rows}\n    {layer.tiles.columns}"
            )
        return "\n".join(lines)

    @property
    def tiles(self) -> list:
        return [(layer.tiles.rows, layer.tiles.columns) for layer in self.config.layers]

    def beats_in(self, frames: np.ndarray) -> list[int]:
        """Each pixel once, in the order in which tiles first need them; ``last`` on a frame's last beat."""
        beat, words = self.config.input, []
        for frame in frames:
            words += beats_of(beat, new_parts(*self.tiles[0], frame, beat.pixels))
            words[-1] |= 1 << beat.data_bits
        return words

    def beats_out(self, frames: np.ndarray) -> list[int]:
        """Return the golden model's output beats in tile order, with ``last`` on a frame's last beat."""
        words = []
        for frame in golden.run(self.network, frames):
            words += beats_of(self.config.output, output_parts(*self.tiles[-1], frame))
            words[-1] |= 1 << self.config.output.data_bits
        return words


@st.composite
def cases(draw, *, most_layers: int, depth: str | None = None, most_cycles: int = 800) -> Case:
    network = draw(networks(most_layers=most_layers))
    tiles = draw(tilings(network.layers))
    plans = [replace(plan, tp=1) for plan in draw(unrolls(network, stage=_stage))]
    pixels = draw(widths(tiles[0][1]))
    config = compose(network, plans, pixels, _stage)
    if (depth or draw(st.sampled_from(["deep", "least"]))) == "least":
        depths = [max(layer.fold_beats) + draw(st.integers(0, 3)) for layer in config.layers]
        plans = [replace(plan, fifo_depths=(depth,)) for plan, depth in zip(plans, depths, strict=True)]
        config = compose(network, plans, pixels, _stage)
    case = Case(network, in_tiles(config, tiles))
    assume(max(layer.cycles for layer in case.config.layers) <= most_cycles)
    return case


def simulate(case: Case, frames: np.ndarray, **options) -> tuple[Trace, list[int]]:
    expected = case.beats_out(frames)
    options.setdefault("patience", max(PATIENCE, patience(case.config)))
    return run(Accelerator(case.config), case.beats_in(frames), len(expected), **options), expected


def pools(tip: tuple[int, int] = (2, 2), overlap: str = REUSE, tk: int = 1, pixels: int = 1) -> Case:
    """Two 3 x 3 pools, stride 1, over 1 x 10 x 10, one tap a cycle, ample buffers."""
    maps = [FeatureMap(channels=1, height=size, width=size, type=UINT8) for size in (10, 8, 6)]
    layers = tuple(
        MaxPool(name=f"pool{n}", input=maps[n], output=maps[n + 1], window=Window(kernel=(3, 3))) for n in range(2)
    )
    network = Network(name="pools", layers=layers)
    plan = LayerPlan(name="pool", kind="maxpool", tn=1, tm=1, tk=tk, chain=1, line_rows=3, fifo_depths=(16,))
    config = compose(network, [replace(plan, name=layer.name) for layer in layers], pixels)
    tiles = axes(layers, tip, overlap)
    return Case(network, in_tiles(config, tiles))
