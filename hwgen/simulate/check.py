"""Comparing what came out with what should have, and finding where a difference begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hwgen.emit.stimuli import pixel_sequence
from hwgen.emit.verilog import Config, Factory, output_ports
from hwgen.errors import CheckError, InputError
from hwgen.gateware.stream import Order
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.progress import tell
from hwgen.simulate.groups import run_groups
from hwgen.simulate.job import Options
from hwgen.simulators import DEFAULT

__all__ = ["Mismatch", "compare", "compare_layers", "compare_outputs", "compare_pixels", "in_network", "locate"]


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """The first value that differs, in the order in which values travel: by frame, pixel, channel.

    Parameters
    ----------
    count, size : int
        Values that differ, of how many.
    layer : str
        Name of the layer that the values left; empty for the outputs.
    output : str
        Of several outputs the name of the one that the values left.
    largest : int
        The largest difference of all values that differ.
    frame, channel, row, column : int
        Where it is.
    value, expected : int
    seen, wanted : ndarray
        ``(H, W)``: the channel's map, as the hardware gave it (where it gave nothing, as expected) and as expected.
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
    output: str = ""
    largest: int = field(default=0, compare=False)
    seen: np.ndarray | None = field(default=None, compare=False, repr=False)
    wanted: np.ndarray | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        place = f"layer {self.layer}, " if self.layer else f"output {self.output}, " if self.output else ""
        return (
            f"{place}frame {self.frame}, channel {self.channel}, row {self.row}, column {self.column}: "
            f"{self.value}, expected {self.expected}"
        )


def compare(
    values: np.ndarray, expected: np.ndarray, *, layer: str = "", order: Order | None = None
) -> Mismatch | None:
    """The first difference of two ``(n, C, H, W)`` integer arrays, ``None`` if they are equal.

    Parameters
    ----------
    values, expected : ndarray
    layer : str
    order : Order, optional
        In which their pixels travelled; only those that did are compared. Row-major if not given.

    Raises
    ------
    InputError
        If their shapes differ.
    """
    if values.shape != expected.shape or values.ndim != 4:
        raise InputError(f"values and expected must be of one shape (n, C, H, W), not {values.shape}, {expected.shape}")
    height, width = values.shape[2:]
    order = order or Order(rows=((0, height),), columns=((0, width),))
    return compare_pixels(
        values.reshape(*values.shape[:2], -1)[:, :, pixel_sequence(height, width, order)], expected, order, layer
    )


def compare_pixels(pixels: np.ndarray, expected: np.ndarray, order: Order, layer: str) -> Mismatch | None:
    """The first of the pixels ``(n, C, N)``, as they travelled, that differs from the maps ``(n, C, H, W)``."""
    height, width = expected.shape[2:]
    place = pixel_sequence(height, width, order)
    should = expected.reshape(*expected.shape[:2], -1)[:, :, place]
    wrong = (pixels != should).transpose(0, 2, 1)
    if not wrong.any():
        return None
    frame, pixel, channel = (int(i) for i in np.unravel_index(np.argmax(wrong), wrong.shape))
    row, column = divmod(int(place[pixel]), width)
    seen = expected[frame, channel].flatten()
    seen[place] = pixels[frame, channel]
    return Mismatch(
        count=int(np.count_nonzero(wrong)),
        size=pixels.size,
        layer=layer,
        frame=frame,
        channel=channel,
        row=row,
        column=column,
        value=int(pixels[frame, channel, pixel]),
        expected=int(should[frame, channel, pixel]),
        largest=int(np.abs(pixels.astype(np.int64) - should).max()),
        seen=seen.reshape(height, width),
        wanted=expected[frame, channel].copy(),
    )


def compare_layers(
    taps: Mapping[int, np.ndarray], expected: Iterable[tuple[str, np.ndarray]], orders: Sequence[Order]
) -> Mismatch | None:
    """The first difference in the first layer that has one. A pixel that left a layer twice is compared twice.

    Parameters
    ----------
    taps : mapping of int to ndarray
        What left each layer, by its number: ``Run.taps``.
    expected : iterable of (name, ndarray)
        The maps that should have, in the layers' order.
    orders : sequence of Order
        In which their pixels travelled.
    """
    for number, (name, values) in enumerate(expected):
        pixels = taps[number]
        frames = min(len(pixels), len(values))  # a layer may have run ahead or not have finished
        if mismatch := compare_pixels(pixels[:frames], values[:frames], orders[number], name):
            return mismatch
    return None


def locate(
    config: Config | Sequence[Config],
    network: Network,
    frames: golden.Frames,
    outputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    *,
    simulator: str = DEFAULT,
    component: Factory | None = None,
) -> Mismatch | None:
    """Where a difference between outputs and expected outputs begins, by layer; of an accelerator, or groups in turn.

    The first wrong frame is simulated again by itself with every layer watched, and each layer is compared with the
    golden model; if the difference does not show there, with the frames before it; if it never shows again, it is
    given as it is in the outputs. ``None`` if there is no difference. ``outputs`` and ``expected`` are all outputs'
    maps; how many values differ, and of how many, is said of all together.

    Raises
    ------
    ToolError
        If the simulator is missing or fails.
    """
    configs: Any = config if isinstance(config, Sequence) else [config]
    first = _first(network, configs[-1], outputs, expected)
    if first is None:
        return None
    tell(f"{network.name}: looking for the layer of the first difference")
    for start in dict.fromkeys((first.frame, 0)):
        part = [values[start : first.frame + 1] for values in golden.by_input(frames)]
        try:
            run = run_groups(configs, part, Options(simulator=simulator, taps=True, component=component))
        except CheckError:
            continue
        trace = ((layer.name, values) for layer, values in golden.trace(network, part))
        own = in_network(configs, network)
        taps = {place: run.taps[number] for place, (number, _) in enumerate(own)}
        if mismatch := compare_layers(taps, trace, [order for _, order in own]):
            return replace(mismatch, frame=mismatch.frame + start, count=first.count, size=first.size)
    return first


def in_network(configs: Sequence[Any], network: Network) -> list[tuple[int, Order]]:
    """Number and order of each watched layer that is one of the network's: a group may have a copy in front."""
    names = {layer.name for layer in network.layers}
    watched = [pair for config in configs for pair in zip(config.layers, config.tap_orders, strict=True)]
    return [(number, order) for number, (layer, order) in enumerate(watched) if layer.name in names]


def compare_outputs(network: Network, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Mismatch | None:
    """The first difference in the first frame that has one, of maps as they are; how many there are in all."""
    found = [
        replace(mismatch, output=name if len(outputs) > 1 else "")
        for name, values, should in zip(network.output_names, outputs, expected, strict=True)
        if (mismatch := compare(values, should)) is not None
    ]
    if not found:
        return None
    size = sum(values.size for values in outputs)
    return replace(min(found, key=lambda each: each.frame), count=sum(each.count for each in found), size=size)


def _first(
    network: Network, config: Config, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> Mismatch | None:
    """The first difference in the first frame that has one, output by output; how many there are in all."""
    found = []
    for name, port, values, should in zip(network.output_names, output_ports(config), outputs, expected, strict=True):
        if (mismatch := compare(values, should, order=port.order)) is not None:
            found.append(replace(mismatch, output=name if len(outputs) > 1 else ""))
    if not found:
        return None
    size = sum(port.order.frame_pixels * port.beat.channels for port in output_ports(config)) * len(outputs[0])
    return replace(min(found, key=lambda each: each.frame), count=sum(each.count for each in found), size=size)
