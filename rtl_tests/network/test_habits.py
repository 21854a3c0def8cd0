"""Models in the ways that exporters write the same network: built whole, and equal to ONNX Runtime in every value."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from habits import HABITS, quantised
from referees import compare

import hwgen
from hwgen.network.onnx.importer import to_network

SHORT = (
    *("resized_to_another_map", "average_beside_maximum", "pixel_shuffle_in_a_sum", "best_of_logits"),
    *("pixel_unshuffle_in_a_concatenation on integers", "with_functions"),
)


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in HABITS]
)
def test_is_built_whole(name: str, tmp_path: Path) -> None:
    model, writer = quantised(name)
    compare(model, writer.frames(4), tmp_path).check()


def test_pixels_move_in_one_layer() -> None:
    """A Reshape, a Transpose and a Reshape become one layer, and a selection where channels are in another order."""
    for name, expected in (
        ("pixel_shuffle", ["conv", "select", "depthtospace", "conv"]),
        ("pixel_unshuffle", ["conv", "spacetodepth", "select", "conv", "globalaveragepool", "conv"]),
    ):
        network = to_network(quantised(name)[0], name)
        assert [type(layer).__name__.lower() for layer in network.layers] == expected


def test_at_the_end_the_host_moves_pixels(tmp_path: Path) -> None:
    """Nothing but the output's layout changes, where no layer follows."""
    model, _ = quantised("pixel_shuffle")
    reshape = [node for node in model.graph.node if node.op_type == "Reshape"][-1]
    part = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(["x"], [reshape.output[0]])
    onnx.save(part, tmp_path / "part.onnx")
    assert [type(layer).__name__.lower() for layer in hwgen.load(tmp_path / "part.onnx").network.layers] == ["conv"]
