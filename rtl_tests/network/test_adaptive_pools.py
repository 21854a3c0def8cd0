"""Adaptive average pools whose windows differ in size, with quantisers between all operators, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from adaptive import adaptive_pool
from pieces import Piece, check

import hwgen
from hwgen.network.onnx.importer import to_network


def quantised_everywhere(sizes: tuple[int, int], kind: type, zero: int) -> tuple[Piece, onnx.ModelProto]:
    """Return a model that averages the input, a map of 4x4 pixels, whose pixels and sums are quantised."""
    piece, scales = Piece((3, 4, 4), kind, scale=4.3, zero=zero), iter(np.linspace(4.3, 7.9, 40))
    pooled = adaptive_pool(
        piece,
        piece.real(),
        4,
        sizes,
        lambda name: piece.requantise(name, 4.3 if "Gather" in name else next(scales), zero, kind),
    )
    rows = piece.node("Reshape", pooled, np.array([0, 3 * sizes[0] * sizes[1]]))
    return piece, piece.model(piece.requantise(rows, 4.1, zero, kind))


@pytest.mark.parametrize("sizes", [(7, 5), (3, 3), (6, 4)])
@pytest.mark.parametrize(("kind", "zero"), [(np.uint8, 100), (np.int8, -128)])
def test_equal(sizes: tuple[int, int], kind: type, zero: int) -> None:
    """Every sum is rounded as ONNX Runtime rounds it, and pixels are divided by numbers of their own."""
    piece, model = quantised_everywhere(sizes, kind, zero)
    check(model, piece.frames(30))


def test_on_the_host_runs_nothing() -> None:
    _, model = quantised_everywhere((7, 5), np.uint8, 100)
    network = to_network(model, "network")
    assert network.host is not None
    assert network.host.remainder is None
    assert {"add", "sum", "lookup"} <= {layer.kind for layer in network.layers}


def test_verdicts(tmp_path: Path) -> None:
    """Of the nodes that read the pixels, none is left to the host or not built."""
    _, model = quantised_everywhere((7, 5), np.uint8, 100)
    onnx.save(model, tmp_path / "model.onnx")
    verdicts = {verdict.op: verdict.verdict for verdict in hwgen.check(tmp_path / "model.onnx").operators}
    assert {verdicts[name] for name in ("GatherND", "Where", "Transpose")} == {"folded"}
    assert verdicts["Div"] == verdicts["Add"] == "built"
