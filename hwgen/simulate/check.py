"""Comparing what came out with what should have, and finding where a difference begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hwgen.emit.verilog import Config, Factory
from hwgen.errors import CheckError, InputError

if TYPE_CHECKING:
    from hwgen.network.graph import Network
    from hwgen.simulate import Simulator

__all__ = ["Mismatch", "compare", "compare_layers", "locate"]


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """The first value that differs, in the order of the stream: frame, row, column, channel.

    Parameters
    ----------
    count, size : int
        Values that differ, of how many.
    layer : str
        Name of the layer that the values left; empty for the outputs.
    frame, channel, row, column : int
        Where it is.
    value, expected : int
    """

    count: int
    size: int
    layer: str
    frame: int
    channel: int
    row: int
    column: int
    value: int
    expected: int

    def __str__(self) -> str:
        place = f"layer {self.layer}, " if self.layer else ""
        return (
            f"{place}frame {self.frame}, channel {self.channel}, row {self.row}, column {self.column}: "
            f"{self.value}, expected {self.expected}"
        )


def compare(values: np.ndarray, expected: np.ndarray, *, layer: str = "") -> Mismatch | None:
    """The first difference of two ``(n, C, H, W)`` integer arrays, ``None`` if they are equal.

    Raises
    ------
    InputError
        If their shapes differ.
    """
    if values.shape != expected.shape or values.ndim != 4:
        raise InputError(f"values and expected must be of one shape (n, C, H, W), not {values.shape}, {expected.shape}")
    wrong = (values != expected).transpose(0, 2, 3, 1)
    if not wrong.any():
        return None
    frame, row, column, channel = (int(i) for i in np.unravel_index(np.argmax(wrong), wrong.shape))
    place = frame, channel, row, column
    return Mismatch(
        count=int(np.count_nonzero(wrong)),
        size=values.size,
        layer=layer,
        frame=frame,
        channel=channel,
        row=row,
        column=column,
        value=int(values[place]),
        expected=int(expected[place]),
    )


def compare_layers(taps: Mapping[int, np.ndarray], expected: Iterable[tuple[str, np.ndarray]]) -> Mismatch | None:
    """The first difference in the first layer that has one.

    Parameters
    ----------
    taps : mapping of int to ndarray
        What left each layer, by its number: ``Run.taps``.
    expected : iterable of (name, ndarray)
        What should have, in the layers' order.
    """
    for number, (name, values) in enumerate(expected):
        frames = len(taps[number])  # a layer may have run ahead or not have finished
        if mismatch := compare(taps[number][: len(values)], values[:frames], layer=name):
            return mismatch
    return None


def locate(
    config: Config,
    network: Network,
    frames: np.ndarray,
    outputs: np.ndarray,
    expected: np.ndarray,
    *,
    simulator: Simulator = "verilator",
    component: Factory | None = None,
) -> Mismatch | None:
    """Where a difference between outputs and expected outputs begins, by layer.

    The first wrong frame is simulated again by itself with every layer watched, and each layer is compared with the
    golden model; if the difference does not show there, with the frames before it; if it never shows again, it is
    given as it is in the outputs. ``None`` if there is no difference.

    Raises
    ------
    ToolError
        If the simulator is missing or fails.
    """
    from hwgen import simulate
    from hwgen.network import golden

    first = compare(outputs, expected)
    if first is None:
        return None
    for start in dict.fromkeys((first.frame, 0)):
        part = frames[start : first.frame + 1]
        try:
            run = simulate.run(config, part, simulator=simulator, taps=True, component=component)
        except CheckError:
            continue
        trace = ((layer.name, values) for layer, values in golden.trace(network, part))
        if mismatch := compare_layers(run.taps, trace):
            return replace(mismatch, frame=mismatch.frame + start, count=first.count, size=first.size)
    return first
