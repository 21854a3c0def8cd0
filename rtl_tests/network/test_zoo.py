"""Graphs of well-known networks as exporters and quantisers write them: values are those of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import zoo_graphs
from referees import compare

SMALL = ("autoencoder-qdq", "autoencoder-pairs", "m5_1d-qdq", "m5_1d-pairs")


def frames_of(model: onnx.ModelProto, count: int) -> np.ndarray:
    """Return random frames of a model's input."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    return np.random.default_rng(1).normal(size=(count, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", SMALL)
def test_values_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    model = zoo_graphs.model(name)
    compared = compare(model, frames_of(model, 2), tmp_path)
    compared.check()


def test_weights_are_drawn_by_the_seed() -> None:
    one, again, other = (zoo_graphs.model("autoencoder-qdq", seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other


def test_size() -> None:
    assert zoo_graphs.FILE.stat().st_size < 1_000_000
    assert len(zoo_graphs.names()) == 70
