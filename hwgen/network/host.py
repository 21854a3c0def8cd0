"""What of a model runs on the host: in front of its first integer tensor, and behind its last one.

The hardware takes and gives integers. QuantizeLinear in front of them is NumPy's (`hwgen.network.quantise`); what
stands behind them, DequantizeLinear, Softmax, reshaping and the like, is cut off the model when it is imported
(`hwgen.network.onnx.host`) and run by ONNX Runtime, so that the outputs have its bits too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.errors import ModelError
from hwgen.network.ends import InputEnd, Layout, OutputEnd, Remainder
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap

if TYPE_CHECKING:
    import onnxruntime


SETTINGS = {
    "session.qdqisint8allowed": "1",
    "session.disable_double_qdq_remover": "1",
    "session.qdq_matmulnbits_accuracy_level": "1",
}
"""Of the sessions whose values hwgen's equal (docs/reference). With them, what stands behind the hardware does
not depend on what a session can't see, which is in front: int8 there, quantisers of other scales."""
_MOST_VALUES = 1 << 28
"""Of a model's batch, which is filled up where frames are fewer."""
_AT_A_TIME = 32
"""Frames of a part of a model that is left for the host, which may hold convolutions."""


def inputs(network: Network) -> tuple[InputEnd, ...]:
    """The model's inputs."""
    if network.host is not None:
        return network.host.inputs
    names = zip(network.input_names, network.input_maps, strict=True)
    return tuple(InputEnd(name=name, shape=source.shape) for name, source in names)


def taken(network: Network) -> dict[str, tuple[InputEnd, FeatureMap]]:
    """Those of them that the hardware takes, by their names, and the map that each is there."""
    ends = (end for end in inputs(network) if end.taken)
    return {end.name: (end, source) for end, source in zip(ends, network.input_maps, strict=True)}


def integers(network: Network, maps: np.ndarray, place: int = 0) -> np.ndarray:
    """The last integer tensor before output ``place``, ``(n, C, H, W)``, in the shape that the model gives it."""
    if network.host is None:
        return maps
    return _frames(network.host.outputs[place], maps)


def _frames(end: OutputEnd, maps: np.ndarray) -> np.ndarray:
    """Maps ``(n, C, H, W)`` in the shape that the model gives them."""
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
    session = _Session(network, end.behind, end.tail)
    (values,) = _run(network, session, [frames])
    return values


def names(network: Network) -> tuple[str, ...]:
    """The names of the model's own outputs."""
    remainder = None if network.host is None else network.host.remainder
    return network.output_names if remainder is None else remainder.outputs


def given(
    network: Network, maps: Sequence[np.ndarray], frames: Sequence[np.ndarray], prepared: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The model's own outputs, each ``(n, ...)``, from all maps that the hardware gives, each ``(n, C, H, W)``.

    Parameters
    ----------
    frames, prepared : sequence of ndarray
        What went into each input of the model, as it was given, ``(n, ...)``; and into each of the hardware's, as the
        maps that it takes, ``(n, C, H, W)``: what is left of a model for the host may need it again. Where that takes
        floats, and integers were given, it gets the floats that these stand for.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run what is the host's, or it does not give one row a frame.
    """
    remainder = None if network.host is None else network.host.remainder
    if remainder is None:
        return [outputs(network, values, place) for place, values in enumerate(maps)]
    known = {
        name: integers(network, values, place)
        for place, (name, values) in enumerate(zip(remainder.maps, maps, strict=True))
    }
    maps_of = dict(zip(network.input_names, prepared, strict=True))
    again = zip(remainder.integers, remainder.integers_of, strict=True)
    known |= {end.tensor: _frames(end, maps_of[name]) for end, name in again}
    given_as = dict(zip((end.name for end in inputs(network)), frames, strict=True))
    feeds = [*known.values(), *(as_model(network, name, given_as[name]) for name in remainder.given)]
    left = [name for name in remainder.outputs if name not in known]
    if left:
        session = _Session(network, remainder.operators, remainder.model)
        parts = [
            _run(network, session, [feed[start : start + _AT_A_TIME] for feed in feeds])
            for start in range(0, len(frames[0]), _AT_A_TIME)
        ]
        known |= {name: np.concatenate(values) for name, values in zip(left, zip(*parts, strict=True), strict=True)}
    return [known[name] for name in remainder.outputs]


def as_model(network: Network, name: str, frames: np.ndarray) -> np.ndarray:
    """Frames of one of the model's inputs as the model takes them: integers for floats become these."""
    end, source = taken(network).get(name, (None, None))
    if end is None or source is None:
        return frames
    if frames.dtype.kind != "f":
        assert source.scale is not None  # a model with a float input quantises it
        frames = (frames.astype(np.int32) - source.zero_point).astype(np.float32) * np.float32(source.scale)
    return frames.astype(np.float32).reshape(len(frames), *end.shape)


def _run(network: Network, session: _Session, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a session makes of some inputs, ``(n, ...)`` each."""
    assert network.host is not None
    if network.host.batch is not None:
        return _in_batches(network, session, feeds, network.host.batch)
    with suppress(ModelError):  # it comes again, unless ONNX Runtime only can't take so many frames
        together = session.run(feeds)
        if all(values.ndim and len(values) == len(feeds[0]) for values in together):
            return together
    return _in_batches(network, session, feeds, 1)


def _in_batches(network: Network, session: _Session, feeds: Sequence[np.ndarray], batch: int) -> list[np.ndarray]:
    """The same, ``batch`` frames at a time."""
    count = len(feeds[0])
    if batch > 1 and batch * sum(math.prod(feed.shape[1:]) for feed in feeds) > _MOST_VALUES:
        raise ModelError(f"{network.name}: its batch of {batch:,} frames is too large; export it for fewer, or for any")
    padded = [np.concatenate([feed, np.repeat(feed[-1:], -count % batch, axis=0)]) for feed in feeds]
    runs = [session.run([feed[start : start + batch] for feed in padded]) for start in range(0, len(padded[0]), batch)]
    found = []
    for parts in zip(*runs, strict=True):
        if all(part.ndim and len(part) == batch for part in parts):
            found.append(np.concatenate(parts)[:count])
        elif batch > 1:
            shape = parts[0].shape
            raise ModelError(f"{network.name}: its output of shape {shape} must have {batch} rows, one a frame")
        else:
            found.append(np.stack(parts))  # the batch of 1 is no dimension of the output
    return found


def describe(network: Network) -> dict[str, Any]:
    """Input, output and host's part for ``plan.json``: tensors with names, shapes, types, scales and zero points.

    A tensor in another order than its map's also has ``map``, (C, H, W), and the factors of it, ``parts``, of which its
    dimensions are made in this ``order``. An input whose integers the model clips has ``limits``. Several outputs are a
    list, ``outputs``, in which each also has the model's name of it and what stands behind it; several inputs are a
    list, ``inputs``.
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
    sources = [
        {**_tensor(each, end.name, end.shape, end.layout), **({"limits": list(end.limits)} if end.limits else {})}
        for end, each in taken(network).values()
    ]
    return {
        **({"inputs": sources} if len(sources) > 1 else {"input": sources[0]}),
        **({"outputs": found} if several else {"output": found[0]}),
        "host": {"before": [] if host is None else list(host.before), "behind": _behind(network)},
        **({} if (part := part_of(network)) is None else _part(part)),
    }


def part_of(network: Network) -> Remainder | None:
    """What is left of a model of which only a part is built; ``None`` if all of it is."""
    remainder = None if network.host is None else network.host.remainder
    return None if remainder is None or remainder.whole else remainder


def _part(remainder: Remainder) -> dict[str, Any]:
    """What says up to where a model is built, where that is not all of it."""
    return {"until": list(remainder.tensors), "macs_covered": remainder.macs_covered}


def _behind(network: Network) -> list[str]:
    """Operators behind the hardware, output after output."""
    if network.host is not None and network.host.remainder is not None:
        return list(network.host.remainder.operators)
    return [] if network.host is None else [operator for end in network.host.outputs for operator in end.behind]


def line(network: Network) -> str:
    """What runs on the host, for people: ``on the host: QuantizeLinear before; Softmax behind``; else empty."""
    if network.host is None:
        return ""
    parts: list[tuple[tuple[str, ...], str]] = [(network.host.before, "before")]
    if network.host.remainder is not None:
        parts.append((_shortened(network.host.remainder.operators), "behind"))
    for end in network.host.outputs:
        parts.append(
            (end.behind, "behind" if len(network.host.outputs) == 1 else f"behind {' '.join(end.name.split())}")
        )
    said = "; ".join(f"{', '.join(operators)} {where}" for operators, where in parts if operators)
    return said and f"on the host: {said}"


def part_line(network: Network) -> str:
    """Up to where a model is built, for people; empty if that is all of it."""
    remainder = part_of(network)
    if remainder is None:
        return ""
    tensors = " and ".join(repr(" ".join(name.split())) for name in remainder.tensors)
    share = f"{remainder.macs_covered:.1%} of the multiply-accumulates"
    return f"a part of the model, until {tensors}: {share}; ONNX Runtime runs what is left"


def _shortened(operators: Iterable[str]) -> tuple[str, ...]:
    """Each operator once, with how many there are."""
    return tuple(name if count == 1 else f"{count} {name}" for name, count in Counter(operators).items())


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


def session_options(optimised: bool) -> onnxruntime.SessionOptions:
    """Of a session whose values hwgen's equal; ``optimised``: it computes in integers where it can."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for setting in SETTINGS.items():
        options.add_session_config_entry(*setting)
    if not optimised:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


class _Session:
    """ONNX Runtime on what stands behind the last integer tensors of a ``network``'s model."""

    def __init__(self, network: Network, operators: Sequence[str], tail: bytes) -> None:
        import onnxruntime

        self._name, self._operators = network.name, ", ".join(_shortened(operators))
        options = session_options(network.host is None or network.host.optimised)
        try:
            self._session: onnxruntime.InferenceSession = onnxruntime.InferenceSession(
                tail, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime raises many kinds
            raise self._failed(error) from None
        self._inputs = [value.name for value in self._session.get_inputs()]

    def run(self, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All outputs, for the inputs in their order."""
        try:
            found = self._session.run(None, dict(zip(self._inputs, feeds, strict=True)))
        except Exception as error:
            raise self._failed(error) from None
        return [np.asarray(values) for values in found]

    def _failed(self, error: Exception) -> ModelError:
        text = " ".join(str(error).split())[:300]
        where = "behind the last integer tensor"
        return ModelError(f"{self._name}: ONNX Runtime can't run {self._operators} {where}: {text}")
