"""Graphs of well-known networks as exporters and quantisers write them: which are whole, and with which values."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
import zoo_graphs
from referees import compare

import hwgen
from hwgen.errors import HwgenError

KNOWN = tomllib.loads(Path(__file__).with_name("zoo.toml").read_text())
PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
SMALL = ("autoencoder-qdq", "autoencoder-pairs", "m5_1d-qdq", "m5_1d-pairs")
LARGER = ("super_resolution-qdq", "squeezenet1_1-pairs", "mobilenet_v2-qdq", "shufflenet_v2-pairs", "unet-qdq")


def frames_of(model: onnx.ModelProto, count: int) -> np.ndarray:
    """Return random frames of a model's input."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    return np.random.default_rng(1).normal(size=(count, *shape)).astype(np.float32)


def fate(name: str, folder: Path) -> str:
    """Return what becomes of a graph: whole, part (the host runs products, too), or refused with the only reason."""
    path = folder / f"{name}.onnx"
    onnx.save(zoo_graphs.model(name), path)
    try:
        host = hwgen.load(path).network.host
    except HwgenError as error:
        (line,) = error.lines  # a network of another kind is refused in one sentence
        return f"refused: {line.removeprefix(f'{path}: ')[:200]}"
    finally:
        path.unlink()
    remainder = host.remainder.operators if host is not None and host.remainder is not None else ()
    return "part" if PRODUCTS & set(remainder) else "whole"


@pytest.mark.long
@pytest.mark.parametrize("name", zoo_graphs.names())
def test_whole_in_part_or_refused(name: str, tmp_path: Path) -> None:
    found, _, _ = fate(name, tmp_path).partition(":")
    assert [known for known, names in KNOWN.items() if name in names] == [found]


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.long) for name in LARGER)])
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
    assert sorted(name for names in KNOWN.values() for name in names) == sorted(zoo_graphs.names())
