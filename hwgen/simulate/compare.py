"""A network three ways, layer by layer: ONNX Runtime, the golden model, and the simulated hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from hwgen.gateware.stream import Order
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.simulate.check import Mismatch, compare, compare_pixels

AT_A_TIME = 16
"""Frames whose maps are all held at once."""


class Runtime(Protocol):
    """What gives ONNX Runtime's maps (`hwgen.network.onnx.layers.RuntimeLayers`)."""

    def run(self, frames: Sequence[np.ndarray]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]: ...


@dataclass
class Tally:
    """How the values of a layer compare with the golden model's, over frames in their order.

    Attributes
    ----------
    compared, differing, largest : int
        Values, those that differ, and the largest difference of all.
    first : Mismatch or None
        The first that differs, by frame, then in the order in which values travel.
    """

    compared: int = 0
    differing: int = 0
    largest: int = 0
    first: Mismatch | None = None

    def add(self, size: int, found: Mismatch | None, begin: int) -> None:
        """Some frames more, of so many values, the first one being number ``begin``."""
        self.compared += size
        if found is not None:
            self.differing += found.count
            self.largest = max(self.largest, found.largest)
            self.first = self.first or replace(found, frame=found.frame + begin)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        names = ("frame", "channel", "row", "column", "value", "expected")
        first = None if self.first is None else {name: getattr(self.first, name) for name in names}
        return {"compared": self.compared, "differing": self.differing, "largest": self.largest, "first": first}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A layer: ONNX Runtime's values, and the hardware's, against the golden model's.

    ``runtime`` is ``None`` where ONNX Runtime has no such tensor, ``hardware`` where the layer leaves none to be seen.
    """

    layer: str
    kind: str
    shape: tuple[int, int, int]
    runtime: Tally | None
    hardware: Tally | None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        found: dict[str, Any] = {"name": self.layer, "kind": self.kind, "shape": list(self.shape)}
        for name in ("runtime", "hardware"):
            tally = getattr(self, name)
            found[name] = None if tally is None else tally.to_json()
        return found


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What left the layers of the hardware.

    Parameters
    ----------
    pixels : mapping of str to ndarray
        By layer, ``(n, C, N)`` as they travelled; or whole maps ``(n, C, H, W)``.
    orders : mapping of str to Order
        In which they did; none of a layer whose maps are whole.
    """

    pixels: Mapping[str, np.ndarray]
    orders: Mapping[str, Order] = field(default_factory=dict)

    def compare(self, layer: str, expected: np.ndarray, begin: int) -> tuple[int, Mismatch | None] | None:
        """Values compared of the frames from ``begin`` on, and the first that differs; ``None`` if none is seen."""
        if layer not in self.pixels:
            return None
        part = self.pixels[layer][begin : begin + len(expected)]
        if layer in self.orders:
            return part.size, compare_pixels(part, expected[: len(part)], self.orders[layer], layer)
        return part.size, compare(part, expected[: len(part)], layer=layer)


def layer_by_layer(
    network: Network,
    frames: Sequence[np.ndarray],
    seen: Seen,
    runtime: Runtime,
    given: Sequence[np.ndarray],
) -> tuple[list[Row], list[np.ndarray]]:
    """Every layer three ways, and ONNX Runtime's outputs.

    Parameters
    ----------
    network : Network
    frames : sequence of ndarray
        ``(n, C, H, W)`` of each input, as the hardware takes them.
    seen : Seen
        Of the same frames.
    runtime : RuntimeLayers
    given : sequence of ndarray
        ``(n, ...)`` of each of the model's inputs, as the model takes them.
    """
    theirs: dict[str, Tally] = {}
    ours: dict[str, Tally] = {}
    outputs = []
    for begin in range(0, len(frames[0]), AT_A_TIME):
        part = slice(begin, begin + AT_A_TIME)
        found, maps = runtime.run([values[part] for values in given])
        outputs.append(found)
        for layer, expected in golden.trace(network, [values[part] for values in frames]):
            if layer.name in maps:
                first = compare(maps[layer.name], expected.astype(np.int64), layer=layer.name)
                theirs.setdefault(layer.name, Tally()).add(expected.size, first, begin)
            if (compared := seen.compare(layer.name, expected, begin)) is not None:
                ours.setdefault(layer.name, Tally()).add(*compared, begin)
    rows = [_row(layer, theirs, ours) for layer in network.layers]
    return rows, [np.concatenate(values) for values in zip(*outputs, strict=True)]


def _row(layer: Op, theirs: Mapping[str, Tally], ours: Mapping[str, Tally]) -> Row:
    return Row(
        layer=layer.name,
        kind=layer.kind,
        shape=layer.output.shape,
        runtime=theirs.get(layer.name),
        hardware=ours.get(layer.name),
    )


@dataclass(frozen=True, kw_only=True)
class Output:
    """One of the model's outputs three ways, as the model gives it.

    Parameters
    ----------
    name : str
    values : int
        How many there are.
    runtime, hardware : (int, float)
        Against the golden model's: values that differ, and the largest difference.
    """

    name: str
    values: int
    runtime: tuple[int, float]
    hardware: tuple[int, float]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        found: dict[str, Any] = {"name": self.name, "values": self.values}
        for name in ("runtime", "hardware"):
            differing, largest = getattr(self, name)
            found[name] = {"differing": differing, "largest": largest}
        return found


def distance(values: np.ndarray, expected: np.ndarray) -> tuple[int, float]:
    """Values that differ, and the largest difference; two that are no numbers are equal."""
    same = np.isclose(values, expected, rtol=0, atol=0, equal_nan=True)
    if same.all():
        return 0, 0.0
    with np.errstate(invalid="ignore"):
        largest = float(np.abs(values.astype(np.float64) - expected.astype(np.float64))[~same].max())
    return int(np.count_nonzero(~same)), largest


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A model three ways.

    Attributes
    ----------
    model, board : str
    frames : int
    rows : tuple of Row
        The layers, in their order.
    outputs : tuple of Output
    right : dict of str to int, or None
        With labels: frames whose greatest output is their label's, by ``runtime``, ``golden`` and ``hardware``.
    cycles : dict of str to (int or None)
        ``latency``, ``interval``, ``predicted_latency``, ``predicted_interval``.
    html : callable, optional
        What makes a page's part of it, for notebooks (`hwgen.report.notebook`).
    """

    model: str
    board: str
    frames: int
    rows: tuple[Row, ...]
    outputs: tuple[Output, ...]
    right: dict[str, int] | None
    cycles: dict[str, int | None]
    html: Callable[[Comparison], str] | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str | None:
        """The layers in a notebook."""
        return None if self.html is None else self.html(self)

    @property
    def ok(self) -> bool:
        """Whether the hardware gave the golden model's values everywhere."""
        return not any(self._differing("hardware"))

    @property
    def as_runtime(self) -> bool:
        """Whether the golden model gave ONNX Runtime's values everywhere."""
        return not any(self._differing("runtime"))

    def _differing(self, which: str) -> Iterator[int]:
        yield from (tally.differing for row in self.rows if (tally := getattr(row, which)) is not None)
        yield from (getattr(output, which)[0] for output in self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The contents of ``hwgen compare --json``."""
        return {
            "model": self.model,
            "board": self.board,
            "frames": self.frames,
            "layers": [row.to_json() for row in self.rows],
            "outputs": [output.to_json() for output in self.outputs],
            "cycles": self.cycles,
            **({} if self.right is None else {"right": self.right}),
        }
