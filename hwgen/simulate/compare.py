"""Comparison of a network's maps, layer by layer: ONNX Runtime, the golden model, and the simulated hardware."""

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

_LAST_BITS = 2.0**-12
"""Largest difference that float32 rounding can cause in an output, as a share of the output's largest magnitude."""
AT_A_TIME = 16
"""Number of frames that `layer_by_layer` compares at a time, with the maps of all layers in memory."""


class Runtime(Protocol):
    """Protocol of an object that computes a model's outputs and layers' maps with ONNX Runtime.

    ``roundings`` has bounds on the difference between float32 sums and exact sums, by layer.
    """

    @property
    def roundings(self) -> Mapping[str, np.ndarray]: ...

    def run(self, frames: Sequence[np.ndarray]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Run the model on frames; return a pair: list of outputs, and dict of layers' maps ``(n, C, H, W)``."""
        ...


@dataclass
class Tally:
    """Comparison counts of one layer over all frames: values compared, and values unlike the golden model's.

    Attributes
    ----------
    compared, differing : int
        Number of values that were compared, and number of values that differ.
    largest : int
        Largest absolute difference of all compared values.
    first : Mismatch or None
        First value that differs: in the first frame that differs, the first value in the order of the stream.
    """

    compared: int = 0
    differing: int = 0
    largest: int = 0
    first: Mismatch | None = None

    def add(self, size: int, mismatch: Mismatch | None, begin: int) -> None:
        """Add the result of comparing further frames of the layer to the counts.

        Parameters
        ----------
        size : int
            Number of values that were compared.
        mismatch : Mismatch or None
            First value that differs, with its frame counted from ``begin``.
        begin : int
            Index of the first of these frames.
        """
        self.compared += size
        if mismatch is not None:
            self.differing += mismatch.count
            self.largest = max(self.largest, mismatch.largest)
            self.first = self.first or replace(mismatch, frame=mismatch.frame + begin)

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the counts, and the first difference or ``None``, as plain values for JSON."""
        names = ("frame", "channel", "row", "column", "value", "expected")
        first = None if self.first is None else {name: getattr(self.first, name) for name in names}
        return {"compared": self.compared, "differing": self.differing, "largest": self.largest, "first": first}


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """Comparison of one layer's values in ONNX Runtime, and in hardware, with the golden model's.

    ``runtime`` is ``None`` if ONNX Runtime has no tensor for the layer. ``hardware`` is ``None`` if the hardware has no
    stream or map with the layer's values.
    """

    layer: str
    kind: str
    shape: tuple[int, int, int]
    runtime: Tally | None
    hardware: Tally | None

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the layer's comparison as plain values for JSON."""
        values: dict[str, Any] = {"name": self.layer, "kind": self.kind, "shape": list(self.shape)}
        for name in ("runtime", "hardware"):
            tally = getattr(self, name)
            values[name] = None if tally is None else tally.to_json()
        return values


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Simulated values by layer: pixels of the layer's stream, or the layer's map from memory.

    Parameters
    ----------
    pixels : mapping of str to ndarray
        Values of each layer by the layer's name: pixels ``(n, C, N)`` in the order of a stream, or maps
        ``(n, C, H, W)``.
    orders : mapping of str to Order
        Order of each layer's pixels. A layer with maps has no order.
    """

    pixels: Mapping[str, np.ndarray]
    orders: Mapping[str, Order] = field(default_factory=dict)

    def compare(self, layer: str, expected: np.ndarray, begin: int) -> tuple[int, Mismatch | None] | None:
        """Compare a layer's values from frame ``begin`` with ``expected``; return a pair: number of values, `Mismatch`.

        The mismatch is the first one, or ``None``. The result is ``None`` if the hardware has no values of the layer.
        """
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
    model_inputs: Sequence[np.ndarray],
) -> tuple[list[LayerRow], list[np.ndarray]]:
    """Return a pair: a list of a `LayerRow` (comparison) per layer, and a list of ONNX Runtime's outputs (arrays).

    If the network has layers in fixed point, ONNX Runtime's values are compared with the golden model's for ONNX
    Runtime's own integers at the inputs of the layer.

    Parameters
    ----------
    network : Network
        Network of the golden model.
    frames : sequence of ndarray
        Frames ``(n, C, H, W)`` of each input, in the form that the hardware reads.
    seen : Seen
        Simulated values of the hardware's layers for these frames.
    runtime : RuntimeLayers
        ONNX Runtime on the model.
    model_inputs : sequence of ndarray
        Frames ``(n, ...)`` of each of the model's inputs, in the form that the ONNX model reads.
    """
    theirs: dict[str, Tally] = {}
    ours: dict[str, Tally] = {}
    outputs = []
    for begin in range(0, len(frames[0]), AT_A_TIME):
        part = slice(begin, begin + AT_A_TIME)
        runtime_outputs, maps = runtime.run([values[part] for values in model_inputs])
        outputs.append(runtime_outputs)
        given: list[dict[str, np.ndarray]] = [{}]
        if any(layer.in_fixed_point for layer in network.layers):
            given.append({name: values for name, values in maps.items() if name not in runtime.roundings})
        for sources in given:
            for layer, expected in golden.trace(network, [values[part] for values in frames], sources):
                if sources is given[-1] and layer.name in maps:
                    found = _without_roundings(maps[layer.name], expected, runtime.roundings.get(layer.name))
                    first = compare(found, expected.astype(np.int64), layer=layer.name)
                    theirs.setdefault(layer.name, Tally()).add(expected.size, first, begin)
                compared = seen.compare(layer.name, expected, begin)
                if sources is given[0] and compared is not None:
                    ours.setdefault(layer.name, Tally()).add(*compared, begin)
    rows = [_row(layer, theirs, ours) for layer in network.layers]
    return rows, [np.concatenate(values) for values in zip(*outputs, strict=True)]


def _without_roundings(found: np.ndarray, expected: np.ndarray, rounding: np.ndarray | None) -> np.ndarray:
    """Return float32 sums as an integer array: the expected sum if within ``rounding``, otherwise the nearest one."""
    if rounding is None:
        return found
    return np.where(np.abs(found - expected) <= rounding, expected, np.rint(found)).astype(np.int64)


def _row(layer: Op, theirs: Mapping[str, Tally], ours: Mapping[str, Tally]) -> LayerRow:
    """Return the `LayerRow` of one layer, from counts by layer of ONNX Runtime and of the hardware."""
    return LayerRow(
        layer=layer.name,
        kind=layer.kind,
        shape=layer.output.shape,
        runtime=theirs.get(layer.name),
        hardware=ours.get(layer.name),
    )


@dataclass(frozen=True, kw_only=True)
class Output:
    """Comparison of one model output in ONNX Runtime, and in hardware, with the golden model's.

    The values have the form and type of the ONNX model's output.

    Parameters
    ----------
    name : str
        Name of the output.
    values : int
        Number of values that were compared.
    runtime, hardware : (int, float)
        Number of ONNX Runtime's, or the hardware's, values that differ from the golden model's, and the largest
        difference.
    is_rounded : bool
        Whether ONNX Runtime's values differ by no more than float32's roundings in a last layer that it sums in floats.
    """

    name: str
    values: int
    runtime: tuple[int, float]
    hardware: tuple[int, float]
    is_rounded: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the output's comparison as plain values for JSON."""
        values: dict[str, Any] = {"name": self.name, "values": self.values, "rounded": self.is_rounded}
        for name in ("runtime", "hardware"):
            differing, largest = getattr(self, name)
            values[name] = {"differing": differing, "largest": largest}
        return values


def distance(values: np.ndarray, expected: np.ndarray) -> tuple[int, float]:
    """Return a pair: number of values that differ from ``expected``, and the largest difference; NaN equals NaN.

    Both can be arrays of one array for each frame. If one frame has more rows than expected, or fewer, the values of
    these rows differ.
    """
    if expected.dtype == object:
        counts, largest_ones = zip(*map(_distance_of_rows, values, expected), strict=True)
        return sum(counts), max(largest_ones)
    same = np.isclose(values, expected, rtol=0, atol=0, equal_nan=True)
    if same.all():
        return 0, 0.0
    with np.errstate(invalid="ignore"):
        largest = float(np.abs(values.astype(np.float64) - expected.astype(np.float64))[~same].max())
    return int(np.count_nonzero(~same)), largest


def is_near(values: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether floats differ by no more than the last bits that different orders of float32 sums explain."""
    if expected.dtype.kind != "f" or not np.isfinite(expected).all():
        return False
    largest = np.abs(values.astype(np.float64) - expected.astype(np.float64)).max()
    return bool(0 < largest <= _LAST_BITS * np.abs(expected).max())


def _distance_of_rows(values: np.ndarray, expected: np.ndarray) -> tuple[int, float]:
    """Return a pair: number of differing values, and largest difference, of arrays with maybe different row counts."""
    rows = min(len(values), len(expected))
    differing, largest = distance(values[:rows], expected[:rows])
    return differing + abs(values.size - expected.size), largest


def size(values: np.ndarray) -> int:
    """Return the number of values of an array, or of all arrays in an object array with one array per frame."""
    return sum(frame.size for frame in values) if values.dtype == object else values.size


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Result of a comparison of ONNX Runtime, the golden model and the simulated hardware on the same frames.

    Attributes
    ----------
    model, board : str
        Names of the model and of the board.
    frames : int
        Number of frames.
    rows : tuple of LayerRow
        Comparison of each layer, in the network's order.
    outputs : tuple of Output
        Comparison of each output.
    right : dict of str to int, or None
        Number of frames that are classified as their labels say, by ``runtime``, ``golden`` and ``hardware``. ``None``
        without labels.
    cycles : dict of str to (int or None)
        ``latency``, ``interval``, ``predicted_latency`` and ``predicted_interval``, in cycles.
    html : callable, optional
        Function that returns the comparison as HTML, for notebooks (`hwgen.report.notebook`).
    """

    model: str
    board: str
    frames: int
    rows: tuple[LayerRow, ...]
    outputs: tuple[Output, ...]
    right: dict[str, int] | None
    cycles: dict[str, int | None]
    html: Callable[[Comparison], str] | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str | None:
        """Return the comparison as HTML for a notebook; ``None`` if there is no ``html`` function."""
        return None if self.html is None else self.html(self)

    @property
    def ok(self) -> bool:
        """Whether every value of the hardware, in layers and outputs, equals the golden model's."""
        return not any(self._differing("hardware"))

    @property
    def as_runtime(self) -> bool:
        """Whether every value of the golden model equals ONNX Runtime's, except for last bits of float outputs."""
        return not any(self._differing("runtime"))

    @property
    def is_rounded(self) -> bool:
        """Whether float outputs differ from ONNX Runtime's, but only in their last bits."""
        return any(output.is_rounded for output in self.outputs)

    def _differing(self, which: str) -> Iterator[int]:
        """Yield the numbers of values that differ in each layer and output, for ``runtime`` or ``hardware``."""
        yield from (tally.differing for row in self.rows if (tally := getattr(row, which)) is not None)
        yield from (
            getattr(output, which)[0] for output in self.outputs if which == "hardware" or not output.is_rounded
        )

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the contents of ``hwgen compare --json`` as plain values."""
        return {
            "model": self.model,
            "board": self.board,
            "frames": self.frames,
            "layers": [row.to_json() for row in self.rows],
            "outputs": [output.to_json() for output in self.outputs],
            "cycles": self.cycles,
            **({} if self.right is None else {"right": self.right}),
        }
