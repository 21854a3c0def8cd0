"""What of a model runs on the host: in front of its first integer tensor, and behind its last one.

The hardware takes and gives integers. QuantizeLinear in front of them is NumPy's (`hwgen.network.quantise`); what
stands behind them, DequantizeLinear, Softmax, reshaping and the like, is cut off the model when it is imported
(`hwgen.network.onnx.host`) and run by ONNX Runtime, so that the outputs have its bits too.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.errors import ModelError
from hwgen.network.ends import Layout
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap

if TYPE_CHECKING:
    import onnxruntime


_MOST_VALUES = 1 << 28
"""Of a model's batch, which is filled up where frames are fewer."""


def input_shape(network: Network) -> tuple[int, ...]:
    """A frame of the input as the model has it: ``(C, H, W)``, ``(features,)``, or what else the model takes."""
    return network.input.shape if network.host is None else network.host.input_shape


def input_maps(network: Network, frames: np.ndarray) -> np.ndarray:
    """Frames of the input in the model's shape as the maps ``(n, C, H, W)`` that the hardware takes."""
    layout = None if network.host is None else network.host.input_layout
    return frames.reshape(len(frames), *network.input.shape) if layout is None else layout.to_maps(frames)


def integers(network: Network, maps: np.ndarray, place: int = 0) -> np.ndarray:
    """The last integer tensor before output ``place``, ``(n, C, H, W)``, in the shape that the model gives it."""
    if network.host is None:
        return maps
    end = network.host.outputs[place]
    return maps.reshape(len(maps), *end.shape) if end.layout is None else end.layout.to_frames(maps)


def outputs(network: Network, maps: np.ndarray, place: int = 0) -> np.ndarray:
    """The model's own output ``place``, ``(n, ...)``, in its type and shape, from its last integer tensor.

    That tensor comes as the hardware gives it, ``(n, C, H, W)``.

    ONNX Runtime computes what stands behind that tensor: all frames as one batch where the model takes any number of
    them, otherwise as many at a time as the model says (the last ones with copies of the last frame, if need be). A
    model that takes any number, but gives something else than one row a frame, gets its frames one by one.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run it, or the model does not give one row a frame.
    """
    frames = integers(network, maps, place)
    if network.host is None or (end := network.host.outputs[place]).tail is None:
        return frames
    tail = _Tail(network.name, end.behind, end.tail)
    if network.host.batch is not None:
        return _in_batches(network, tail, frames, network.host.batch)
    with suppress(ModelError):  # it comes again, unless ONNX Runtime only can't take so many frames
        together = tail.run(frames)
        if together.ndim and len(together) == len(frames):
            return together
    return _in_batches(network, tail, frames, 1)


def _in_batches(network: Network, tail: _Tail, frames: np.ndarray, batch: int) -> np.ndarray:
    """The outputs for ``frames``, ``batch`` of them at a time."""
    if batch > 1 and batch * math.prod(frames.shape[1:]) > _MOST_VALUES:
        raise ModelError(f"{network.name}: its batch of {batch:,} frames is too large; export it for fewer, or for any")
    padded = np.concatenate([frames, np.repeat(frames[-1:], -len(frames) % batch, axis=0)])
    parts = [tail.run(padded[start : start + batch]) for start in range(0, len(padded), batch)]
    if all(part.ndim and len(part) == batch for part in parts):
        return np.concatenate(parts)[: len(frames)]
    if batch > 1:
        raise ModelError(f"{network.name}: its output of shape {parts[0].shape} must have {batch} rows, one a frame")
    return np.stack(parts)  # the batch of 1 is no dimension of the output


def describe(network: Network) -> dict[str, Any]:
    """Input, output and host's part for ``plan.json``: tensors with names, shapes, types, scales and zero points.

    A tensor in another order than its map's also has ``map``, (C, H, W), and the factors of it, ``parts``, of which its
    dimensions are made in this ``order``. Several outputs are a list, ``outputs``, in which each also has the model's
    name of it and what stands behind it.
    """
    host, several = network.host, len(network.output_layers) > 1
    found = []
    for place, each in enumerate(network.output_maps):
        if host is None:
            found.append(_tensor(each, network.output_names[place] if several else "output", each.shape))
        else:
            end = host.outputs[place]
            found.append(_tensor(each, end.tensor, end.shape, end.layout))
        if several:
            behind = [] if host is None else list(host.outputs[place].behind)
            found[-1] = {"output": network.output_names[place], **found[-1], "behind": behind}
    return {
        "input": _tensor(
            network.input,
            "input" if host is None else host.input,
            input_shape(network),
            None if host is None else host.input_layout,
        ),
        **({"outputs": found} if several else {"output": found[0]}),
        "host": {"before": [] if host is None else list(host.before), "behind": _behind(network)},
    }


def _behind(network: Network) -> list[str]:
    """Operators behind the hardware, output after output."""
    return [] if network.host is None else [operator for end in network.host.outputs for operator in end.behind]


def line(network: Network) -> str:
    """What runs on the host, for people: ``on the host: QuantizeLinear before; Softmax behind``; else empty."""
    if network.host is None:
        return ""
    parts: list[tuple[tuple[str, ...], str]] = [(network.host.before, "before")]
    for end in network.host.outputs:
        parts.append(
            (end.behind, "behind" if len(network.host.outputs) == 1 else f"behind {' '.join(end.name.split())}")
        )
    said = "; ".join(f"{', '.join(operators)} {where}" for operators, where in parts if operators)
    return said and f"on the host: {said}"


def _tensor(feature_map: FeatureMap, name: str, shape: tuple[int, ...], layout: Layout | None = None) -> dict[str, Any]:
    """Of a tensor that lies otherwise than its map also the map, and how it is split and reordered."""
    reordered: dict[str, Any] = {}
    if layout is not None:
        reordered = {"map": list(layout.map), "parts": list(layout.parts), "order": list(layout.order)}
    return {
        "name": name,
        "shape": list(shape),
        "type": str(feature_map.type),
        "scale": feature_map.scale,
        "zero_point": feature_map.zero_point,
        **reordered,
    }


class _Tail:
    """A session of ONNX Runtime on what stands behind the last integer tensor of the model called ``name``."""

    def __init__(self, name: str, operators: tuple[str, ...], tail: bytes) -> None:
        import onnxruntime

        self._name, self._operators = name, ", ".join(operators)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Otherwise int8 operators in front of the tail's input, which the session can't see, would change those behind.
        options.add_session_config_entry("session.qdqisint8allowed", "1")
        try:
            self._session: onnxruntime.InferenceSession = onnxruntime.InferenceSession(
                tail, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime raises many kinds
            raise self._failed(error) from None
        self._input = self._session.get_inputs()[0].name

    def run(self, frames: np.ndarray) -> np.ndarray:
        try:
            (output,) = self._session.run(None, {self._input: frames})
        except Exception as error:
            raise self._failed(error) from None
        return np.asarray(output)

    def _failed(self, error: Exception) -> ModelError:
        text = " ".join(str(error).split())[:300]
        where = "behind the last integer tensor"
        return ModelError(f"{self._name}: ONNX Runtime can't run {self._operators} {where}: {text}")
