"""Comparison of simulated maps with expected maps, and search for the first layer that differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hwgen.errors import CheckError, InputError
from hwgen.gateware.circuit_ports import Config, output_ports
from hwgen.gateware.stream import Order
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.progress import tell
from hwgen.simulate.job import Options
from hwgen.simulate.runner import run_groups
from hwgen.simulate.stimuli import pixel_sequence
from hwgen.simulators import DEFAULT
from hwgen.verilog.emitted import Factory


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """First simulated value that differs from the expected value, its position, and the number of differing values.

    Values are ordered as in a stream: by frame, then pixel, then channel.

    Parameters
    ----------
    count, size : int
        Number of values that differ, and number of values that were compared.
    layer : str
        Name of the layer that produced the values; empty for the outputs.
    output : str
        Name of the output that carried the values, if the network has several outputs. Otherwise empty.
    largest : int
        Largest absolute difference of all compared values.
    frame, channel, row, column : int
        Position of the value.
    value, expected : int
        Simulated value and expected value.
    seen, wanted : ndarray
        Simulated and expected map ``(H, W)`` of the channel. A pixel that the hardware did not send has its expected
        value in ``seen``.
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
        stream = f"layer {self.layer}, " if self.layer else f"output {self.output}, " if self.output else ""
        return (
            f"{stream}frame {self.frame}, channel {self.channel}, row {self.row}, column {self.column}: "
            f"{self.value}, expected {self.expected}"
        )


def compare(
    values: np.ndarray, expected: np.ndarray, *, layer: str = "", order: Order | None = None
) -> Mismatch | None:
    """Return a `Mismatch`: the first difference of simulated from expected maps ``(n, C, H, W)``; ``None`` if equal.

    Parameters
    ----------
    values, expected : ndarray
        Simulated maps and expected maps.
    layer : str
        Name of the layer, for the result.
    order : Order, optional
        Order of the stream's pixels. Pixels outside the order are not compared. The default is row-major.

    Raises
    ------
    InputError
        If the shapes of the arrays differ.
    """
    if values.shape != expected.shape or values.ndim != 4:
        raise InputError(
            f"values and expected must have the same shape (n, C, H, W), not {values.shape} and {expected.shape}"
        )
    height, width = values.shape[2:]
    order = order or Order(rows=((0, height),), columns=((0, width),))
    return compare_pixels(
        values.reshape(*values.shape[:2], -1)[:, :, pixel_sequence(height, width, order)], expected, order, layer
    )


def compare_pixels(pixels: np.ndarray, expected: np.ndarray, order: Order, layer: str) -> Mismatch | None:
    """Return a `Mismatch`: the first of the pixels ``(n, C, N)``, in stream order, to differ; ``None`` if all equal."""
    height, width = expected.shape[2:]
    positions = pixel_sequence(height, width, order)
    should = expected.reshape(*expected.shape[:2], -1)[:, :, positions]
    wrong = (pixels != should).transpose(0, 2, 1)
    if not wrong.any():
        return None
    frame, pixel, channel = (int(i) for i in np.unravel_index(np.argmax(wrong), wrong.shape))
    row, column = divmod(int(positions[pixel]), width)
    seen = expected[frame, channel].flatten()
    seen[positions] = pixels[frame, channel]
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
    """Return a `Mismatch`: the first wrong pixel of the first layer that differs from its map; ``None`` if all equal.

    A pixel that a layer sends twice is compared twice.

    Parameters
    ----------
    taps : mapping of int to ndarray
        Pixels that each layer sent, by the layer's index (``Run.taps``).
    expected : iterable of (name, ndarray)
        Name and expected maps of each layer, in the layers' order.
    orders : sequence of Order
        Order of the pixels in each layer's stream.
    """
    for layer_index, (name, values) in enumerate(expected):
        pixels = taps[layer_index]
        frames = min(len(pixels), len(values))  # a layer can be ahead of the outputs, or not have finished
        if mismatch := compare_pixels(pixels[:frames], values[:frames], orders[layer_index], name):
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
    """Simulate the first wrong frame again; return the first wrong layer's `Mismatch`, or ``None`` if all are equal.

    The frame is simulated by itself with a tap on every layer, and each layer is compared with the golden model. If no
    layer differs, the frame is simulated once more after all earlier frames. If still no layer differs, the result
    is the difference in the outputs. It is ``None`` if no output differs.

    Parameters
    ----------
    config : AcceleratorConfig or sequence of AcceleratorConfig
        Configuration of the accelerator, or of groups that run one after the other.
    network : Network
        Network that the accelerator computes.
    frames : ndarray, or sequence of ndarray
        Input frames of the run.
    outputs, expected : sequence of ndarray
        Maps of all outputs, as simulated and as expected. ``count`` and ``size`` of the result cover all of them.
    simulator : str
        Name of the simulator.
    component : callable, optional
        Factory of another component than ``Accelerator``.

    Raises
    ------
    ToolError
        If the simulator is missing or fails.
    """
    configs: Any = config if isinstance(config, Sequence) else [config]
    first = _find_first_difference(network, configs[-1], outputs, expected)
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
        taps = {layer_index: run.taps[tap_index] for layer_index, (tap_index, _) in enumerate(own)}
        if mismatch := compare_layers(taps, trace, [order for _, order in own]):
            return replace(mismatch, frame=mismatch.frame + start, count=first.count, size=first.size)
    return first


def in_network(configs: Sequence[Any], network: Network) -> list[tuple[int, Order]]:
    """Return, as a list, (stream index in ``Run.taps``, pixel order) of each network layer's output, over all groups.

    A group can begin with a copy, which has a tap, but is not a layer of the network.
    """
    names = {layer.name for layer in network.layers}
    watched = [pair for config in configs for pair in zip(config.layers, config.tap_orders, strict=True)]
    return [(tap_index, order) for tap_index, (layer, order) in enumerate(watched) if layer.name in names]


def compare_outputs(network: Network, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Mismatch | None:
    """Return a `Mismatch`: the first difference of all outputs' simulated from expected maps; ``None`` if equal.

    The pixels are in row-major order. ``count`` and ``size`` of the result cover all outputs. ``None`` if no output
    differs.
    """
    mismatches = [
        replace(mismatch, output=name if len(outputs) > 1 else "")
        for name, values, should in zip(network.output_names, outputs, expected, strict=True)
        if (mismatch := compare(values, should)) is not None
    ]
    if not mismatches:
        return None
    size = sum(values.size for values in outputs)
    return replace(min(mismatches, key=lambda m: m.frame), count=sum(m.count for m in mismatches), size=size)


def _find_first_difference(
    network: Network, config: Config, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> Mismatch | None:
    """Return a `Mismatch`: the first difference of all outputs, in stream order, from expected maps; ``None`` if equal.

    ``count`` and ``size`` of the result cover all outputs. ``None`` if no output differs.
    """
    mismatches = []
    for name, port, values, should in zip(network.output_names, output_ports(config), outputs, expected, strict=True):
        if (mismatch := compare(values, should, order=port.order)) is not None:
            mismatches.append(replace(mismatch, output=name if len(outputs) > 1 else ""))
    if not mismatches:
        return None
    size = sum(port.order.frame_pixels * port.beat.channels for port in output_ports(config)) * len(outputs[0])
    return replace(min(mismatches, key=lambda m: m.frame), count=sum(m.count for m in mismatches), size=size)
