"""Networks as graphs: what the golden model computes where layers have two inputs, and what is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from hwgen import boards
from hwgen.errors import ConfigError, PlanError
from hwgen.network import golden
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool, Op
from hwgen.plan import planner

MAP = FeatureMap(channels=2, height=4, width=5, type=UINT8)


@dataclass(frozen=True, kw_only=True, eq=False)
class Halved(Op):
    """The first map less half the second, and no less than 0: the order of the two matters."""

    kind = "halved"
    operators = ()
    channelwise = True
    pad_value = 0

    @property
    def inputs(self) -> tuple[FeatureMap, ...]:
        return (self.input, self.input)

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        first, second = maps
        return np.maximum(first.astype(int) - second // 2, 0)


def halved(name: str) -> Halved:
    return Halved(name=name, input=MAP, output=MAP, window=Window(kernel=(1, 1)))


def pool(name: str, rows: int) -> MaxPool:
    """The greatest of a pixel and those above it."""
    return MaxPool(name=name, input=MAP, output=MAP, window=Window(kernel=(rows, 1), padding=(rows - 1, 0, 0, 0)))


DIAMOND = Network(
    name="diamond",
    layers=(pool("stem", 2), pool("left", 2), pool("right", 3), halved("join"), halved("again")),
    edges=((INPUT,), ("stem",), ("stem",), ("left", "right"), (INPUT, "join")),
)


def greatest(frames: np.ndarray, rows: int) -> np.ndarray:
    """What `pool` gives, row by row."""
    return np.stack([frames[:, :, max(y - rows + 1, 0) : y + 1].max(axis=2) for y in range(frames.shape[2])], axis=2)


def test_diamond():
    """Each layer gets the maps of its edges, in their order; the input is kept until its last reader."""
    frames = np.random.default_rng(1).integers(0, 256, (3, *MAP.shape), np.uint8)
    stem = greatest(frames, 2)
    join = np.maximum(greatest(stem, 2).astype(int) - greatest(stem, 3) // 2, 0)
    expected = np.maximum(frames.astype(int) - join // 2, 0)
    np.testing.assert_array_equal(golden.run(DIAMOND, frames), expected)
    traced = {layer.name: values for layer, values in golden.trace(DIAMOND, frames)}
    np.testing.assert_array_equal(traced["join"], join)
    np.testing.assert_array_equal(traced["stem"], stem)


def test_readers():
    assert DIAMOND.readers == {
        INPUT: ("stem", "again"),
        "stem": ("left", "right"),
        "left": ("join",),
        "right": ("join",),
        "join": ("again",),
        "again": (),
    }


def test_chain():
    assert not DIAMOND.is_chain
    chain = Network(name="chain", layers=DIAMOND.layers[:2])
    assert chain.is_chain
    assert chain.edges == ((INPUT,), ("stem",))


def test_unknown_kinds_are_not_planned():
    with pytest.raises(PlanError, match=r"^join: no hardware is known for layers of the kind 'halved'$"):
        planner.make(DIAMOND, boards.load("zedboard"))


def test_input_read_once():
    """A copy of the input stands in front, under a name that no layer has."""
    copied = DIAMOND.with_inputs_read_once()
    assert [layer.name for layer in copied.layers] == ["input", "stem", "left", "right", "join", "again"]
    assert copied.readers[INPUT] == ("input",)
    assert copied.readers["input"] == ("stem", "again")
    assert copied.with_inputs_read_once() is copied
    frames = np.random.default_rng(1).integers(0, 256, (3, *MAP.shape), np.uint8)
    np.testing.assert_array_equal(golden.run(copied, frames), golden.run(DIAMOND, frames))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (((INPUT,), ("stem",)), "edges must be given for each of 5 layers, not "),
        (((INPUT,), ("left",), *DIAMOND.edges[2:]), "left must take a layer before it, not 'left'"),
        ((*DIAMOND.edges[:3], ("left",), DIAMOND.edges[4]), "join must take 2 edges, not 1"),
        ((*DIAMOND.edges[:3], ("left", "left"), DIAMOND.edges[4]), "right must be read by a layer, or give an output"),
    ],
)
def test_edges_that_make_no_graph(edges, message):
    with pytest.raises(ConfigError, match=f"^diamond: {re.escape(message)}"):
        Network(name="diamond", layers=DIAMOND.layers, edges=edges)


def test_edge_of_another_map():
    odd = replace(MAP, height=5)
    layer = MaxPool(name="odd", input=odd, output=odd, window=Window(kernel=(1, 1)))
    with pytest.raises(ConfigError, match=r"^two: odd must take stem's output "):
        Network(name="two", layers=(DIAMOND.layers[0], layer))
