"""Host's part of an ONNX model: operators before the first integer tensor, and after the last one.

The hardware reads and writes integers. NumPy computes QuantizeLinear before it (`hwgen.network.quantise`). The importer
cuts the operators after it (DequantizeLinear, Softmax, reshaping ..) off the model (`hwgen.network.onnx.tail`). ONNX
Runtime runs them, so that outputs equal ONNX Runtime's in every bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.errors import ModelError
from hwgen.network.ends import InputEnd, Layout, OutputEnd, Remainder
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap
from hwgen.printable import percent

if TYPE_CHECKING:
    import onnxruntime


SETTINGS = {
    "session.qdqisint8allowed": "1",
    "session.disable_double_qdq_remover": "1",
    "session.qdq_matmulnbits_accuracy_level": "1",
}
"""Dictionary of ONNX Runtime session settings that make its results equal hwgen's in every bit.

With them, the results after the hardware do not depend on earlier operators that a session can't see.
"""
_MAX_VALUES = 1 << 28
"""Maximum number of input values in one batch for ONNX Runtime, for models with a fixed batch size.

A batch is filled up if there are fewer frames.
"""
_AT_A_TIME = 32
"""Number of frames per call of ONNX Runtime for host operators around the hardware, which may include convolutions.

It is rounded to whole batches of a model with a fixed batch.
"""


def inputs(network: Network) -> tuple[InputEnd, ...]:
    """Return a tuple of the `InputEnd` of each input of a network's ONNX model, in order, host-only ones included."""
    return network.ends.inputs


def taken(network: Network) -> dict[str, tuple[InputEnd, FeatureMap]]:
    """Return a dict by name of each ONNX model input that the hardware reads: a pair (`InputEnd`, `FeatureMap`)."""
    ends = (end for end in inputs(network) if end.taken)
    return {end.name: (end, source) for end, source in zip(ends, network.input_maps, strict=True)}


def input_frames(network: Network, maps: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a list of the model inputs' integer frames ``(n, ..)`` for the hardware's input maps ``(n, C, H, W)``."""
    ends = [end for end, _ in taken(network).values()]
    return [
        values.reshape(len(values), *end.shape) if end.layout is None else end.layout.to_frames(values)
        for end, values in zip(ends, maps, strict=True)
    ]


def output_maps(network: Network, frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a list of the hardware's output maps ``(n, C, H, W)`` for the model's last integer tensors ``(n, ..)``."""
    return [
        values.reshape(len(values), *expected.shape) if end.layout is None else end.layout.to_maps(values)
        for end, expected, values in zip(network.ends.outputs, network.output_maps, frames, strict=True)
    ]


def integers(network: Network, maps: np.ndarray, output_index: int = 0) -> np.ndarray:
    """Return the model's integer tensor ``(n, ..)`` for the hardware's maps ``(n, C, H, W)`` of one output."""
    return _frames(network.ends.outputs[output_index], maps)


def _frames(end: OutputEnd, maps: np.ndarray) -> np.ndarray:
    """Return frames ``(n, ..)`` of an ONNX tensor, in its shape and value order, for feature maps ``(n, C, H, W)``."""
    return maps.reshape(len(maps), *end.shape) if end.layout is None else end.layout.to_frames(maps)


def outputs(network: Network, maps: np.ndarray, output_index: int = 0) -> np.ndarray:
    """Return one output of the ONNX model, ``(n, ...)``, computed on the host from hardware maps ``(n, C, H, W)``.

    ONNX Runtime computes the operators after the last integer tensor. If the model takes any number of frames, all
    frames are one batch. Otherwise each batch has the model's number of frames, and copies of the last frame fill the
    last batch. A model that takes any number, but does not return one row per frame, gets single frames. An output
    whose number of rows depends on the frame's values is an array of ``n`` arrays.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run the operators, or the model does not return one row per frame.
    """
    frames, end = integers(network, maps, output_index), network.ends.outputs[output_index]
    if end.tail is None:
        return frames
    session = _Session(network, end.behind, end.tail)
    (values,) = _run_onnx(network, session, [frames], rows=end.rows, are_ragged=[end.ragged])
    return values


def run_head(network: Network, feeds: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Run the operators before a model's first quantisers on frames ``(n, ...)``; return a tuple of their outputs.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run them, for example because the frames are of another type than the inputs.
    """
    head = network.ends.head
    assert head is not None
    session = _Session(network, head.operators, head.model, "before the first integer tensor")
    typed = [values.astype(end.dtype, copy=False) for values, end in zip(feeds, head.inputs, strict=True)]
    parts = [_run_onnx(network, session, [values[part] for values in typed]) for part in _parts(network, len(feeds[0]))]
    return tuple(np.concatenate(values) for values in zip(*parts, strict=True))


def names(network: Network) -> tuple[str, ...]:
    """Return a tuple of the names of all outputs of a network's ONNX model."""
    remainder = network.ends.remainder
    return network.output_names if remainder is None else remainder.outputs


def ragged(network: Network) -> frozenset[str]:
    """Return a set of the names of the ONNX model's outputs whose number of rows depends on the frame's values."""
    host = network.ends
    return (
        frozenset(end.name for end in host.outputs if end.ragged) if host.remainder is None else host.remainder.ragged
    )


def rows(network: Network) -> bool:
    """Return whether, in every output of the ONNX model, each row along the first dimension is one frame."""
    host = network.ends
    return all(end.rows for end in host.outputs) if host.remainder is None else host.remainder.rows


def as_by_runtime(network: Network, name: str, values: np.ndarray) -> np.ndarray:
    """Convert an output with one row per frame to the tensor that ONNX Runtime returns for the batch of ``n`` frames.

    The frames need not be the rows of that tensor. An output whose number of rows depends on the frame's values remains
    an array of ``n`` arrays, but for a single frame.
    """
    host = network.ends
    if values.dtype == object:
        return values[0] if len(values) == 1 else values
    if host.remainder is not None:
        frames = host.remainder.frames.get(name)
    else:
        frames = next(end.frames for end in host.outputs if end.name == name)
    rank = next((len(info.shape) for info in host.output_infos if info.name == name and info.shape), None)
    is_stacked = values.ndim - 1 == rank or (frames is not None and frames.vanishes and len(values) == 1)
    if frames is None or frames.are_rows:
        return values[0] if is_stacked and len(values) == 1 else values
    return frames.batch_of([*values] if is_stacked or rank is None else [part[None] for part in values])


def as_objects(frames: Sequence[np.ndarray]) -> np.ndarray:
    """Return a NumPy object array ``(n,)`` that holds one array per frame, whose shapes can differ."""
    objects = np.empty(len(frames), object)
    for index, values in enumerate(frames):
        objects[index] = values
    return objects


def all_outputs(
    network: Network, maps: Sequence[np.ndarray], frames: Sequence[np.ndarray], prepared: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return a list of all outputs of the ONNX model, each ``(n, ...)``, computed on the host from output maps.

    An output whose number of rows depends on the frame's values is an array of ``n`` arrays.

    Parameters
    ----------
    frames : sequence of ndarray
        Frames of each input of the model, as the user gave them, ``(n, ...)``.
    prepared : sequence of ndarray
        Maps of each input of the hardware, ``(n, C, H, W)``. A remainder of the model can read inputs again. If it
        reads floats, and the user gave integers, it gets their real values.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run the host's operators, or they do not return one row per frame.
    """
    remainder = network.ends.remainder
    if remainder is None:
        return [outputs(network, values, index) for index, values in enumerate(maps)]
    known = {
        name: integers(network, values, index)
        for index, (name, values) in enumerate(zip(remainder.maps, maps, strict=True))
    }
    maps_of = dict(zip(network.input_names, prepared, strict=True))
    again = zip(remainder.integers, remainder.integers_of, strict=True)
    known |= {end.tensor: _frames(end, maps_of[name]) for end, name in again}
    frames_of = dict(zip((end.name for end in inputs(network)), frames, strict=True))
    feeds = [*known.values(), *(as_model(network, name, frames_of[name]) for name in remainder.raw_inputs)]
    left = [name for name in remainder.outputs if name not in known]
    if left:
        session = _Session(network, remainder.operators, remainder.model)
        are_ragged = [name in remainder.ragged for name in left]
        parts = [
            _run_onnx(network, session, [feed[part] for feed in feeds], rows=remainder.rows, are_ragged=are_ragged)
            for part in _parts(network, len(frames[0]))
        ]
        known |= {name: np.concatenate(values) for name, values in zip(left, zip(*parts, strict=True), strict=True)}
    return [known[name] for name in remainder.outputs]


def as_model(network: Network, name: str, frames: np.ndarray) -> np.ndarray:
    """Return a model input's frames in the type that host operators read: float32 if the hardware reads the input.

    Other inputs keep the model's type.

    Integers that a user gave for floats become their real values.
    """
    if name not in taken(network):
        end = next(end for end in inputs(network) if end.name == name)
        return frames.astype(end.dtype, copy=False)
    end, source = taken(network)[name]
    if frames.dtype.kind != "f":
        assert source.scale is not None  # a model with a float input quantises it
        frames = (frames.astype(np.int32) - source.zero_point).astype(np.float32) * np.float32(source.scale)
    return frames.astype(np.float32).reshape(len(frames), *end.shape)


def _parts(network: Network, count: int) -> Iterator[slice]:
    """Yield slices of ``count`` frames, one per call of ONNX Runtime: whole batches, except the last slice.

    A frame thus keeps its position in the batch. A constant of the model can have another value for each position.
    """
    batch = network.ends.batch or 1
    step = max(1, _AT_A_TIME // batch) * batch
    return (slice(start, start + step) for start in range(0, count, step))


def _run_onnx(
    network: Network,
    session: _Session,
    feeds: Sequence[np.ndarray],
    *,
    rows: bool = True,
    are_ragged: Sequence[bool] = (),
) -> list[np.ndarray]:
    """Run an ONNX Runtime session on inputs ``(n, ...)`` in batches it accepts; return a list of outputs ``(n, ...)``.

    Parameters
    ----------
    rows : bool
        Whether each row of each output is one frame.
    are_ragged : sequence of bool
        For each output, whether its number of rows depends on the frame's values.
    """
    batch = network.ends.batch
    if any(are_ragged):
        return _in_batches(network, session, feeds, 1, are_ragged)
    if batch is not None or not rows:
        return _in_batches(network, session, feeds, batch or 1)
    with suppress(ModelError):  # unless only the number of frames is the cause, the error is raised again below
        together = session.run(feeds)
        if all(values.ndim and len(values) == len(feeds[0]) for values in together):
            return together
    return _in_batches(network, session, feeds, 1)


def _in_batches(
    network: Network, session: _Session, feeds: Sequence[np.ndarray], batch: int, are_ragged: Sequence[bool] = ()
) -> list[np.ndarray]:
    """Run an ONNX Runtime session in batches of ``batch`` frames; return a list of outputs ``(n, ...)``.

    ``are_ragged``: for each output, whether its number of rows depends on the frame's values; ``batch`` is 1 then.
    """
    count = len(feeds[0])
    if batch > 1 and batch * sum(math.prod(feed.shape[1:]) for feed in feeds) > _MAX_VALUES:
        raise ModelError(f"{network.name}: its batch of {batch:,} frames is too large; export it for fewer, or for any")
    padded = [np.concatenate([feed, np.repeat(feed[-1:], -count % batch, axis=0)]) for feed in feeds]
    runs = [session.run([feed[start : start + batch] for feed in padded]) for start in range(0, len(padded[0]), batch)]
    results = []
    for index, batches in enumerate(zip(*runs, strict=True)):
        if are_ragged and are_ragged[index]:
            results.append(as_objects(batches))
        elif all(values.ndim and len(values) == batch for values in batches):
            results.append(np.concatenate(batches)[:count])
        elif batch > 1:
            shape = batches[0].shape
            raise ModelError(f"{network.name}: its output of shape {shape} must have {batch} rows, one a frame")
        else:
            results.append(np.stack(batches))  # the output has no dimension for the batch of 1
    return results


def describe(network: Network) -> dict[str, Any]:
    """Return, as a dict, the JSON description of a network's inputs, outputs and host operators for ``plan.json``.

    Tensors have name, shape, type, scale and zero point. A tensor in another order than its map also has ``map`` (C, H,
    W), ``parts`` (factors of the map's dimensions), and ``order`` (their permutation). An input whose integers the
    model clips has ``limits``. With several inputs, they are the list ``inputs``. With several outputs, they are the
    list ``outputs``, each with the model's name and the operators after it.
    """
    host, several = network.ends, len(network.output_layers) > 1
    tensors = []
    for end, result in zip(host.outputs, network.output_maps, strict=True):
        tensors.append(_tensor(result, end.tensor, end.shape, end.layout))
        if several:
            tensors[-1] = {"output": end.name, **tensors[-1], "behind": list(end.behind)}
    sources = [
        {**_tensor(source, end.name, end.shape, end.layout), **({"limits": list(end.limits)} if end.limits else {})}
        for end, source in taken(network).values()
    ]
    return {
        **({"inputs": sources} if len(sources) > 1 else {"input": sources[0]}),
        **({"outputs": tensors} if several else {"output": tensors[0]}),
        "host": {"before": list(host.before), "behind": _list_host_operators(network)},
        **({} if (part := part_of(network)) is None else _part(part)),
    }


def part_of(network: Network) -> Remainder | None:
    """Return the `Remainder` (host operators) if hardware computes only a part of a model; ``None`` if all of it."""
    remainder = network.ends.remainder
    return None if remainder is None or remainder.whole else remainder


def _part(remainder: Remainder) -> dict[str, Any]:
    """Return a dict for ``plan.json``: tensors where the hardware's part ends (``until``), and ``macs_covered``."""
    return {"until": list(remainder.tensors), "macs_covered": remainder.macs_covered}


def _list_host_operators(network: Network) -> list[str]:
    """Return one list of the names of all ONNX operators that the host computes after the hardware."""
    host = network.ends
    return list(host.remainder.operators) if host.remainder else [name for end in host.outputs for name in end.behind]


def operators_line(network: Network) -> str:
    """Return a line of text that lists the operators that the host computes, before and after the accelerator.

    The line is empty if the host has no operators.
    """
    host = network.ends
    sides: list[tuple[tuple[str, ...], str]] = [(host.before, "before the accelerator")]
    if host.remainder is not None:
        sides.append((_shortened(host.remainder.operators), "after it"))
    for end in host.outputs:
        is_only = len(host.outputs) == 1
        sides.append((end.behind, "after it" if is_only else f"after output {' '.join(end.name.split())}"))
    text = ", ".join(f"{', '.join(operators)} ({where})" for operators, where in sides if operators)
    return text and f"on the host: {text}"


def part_line(network: Network) -> str:
    """Return a line of text that says which part of the model the hardware computes; empty if it computes all."""
    remainder = part_of(network)
    if remainder is None:
        return ""
    tensors = " and ".join(repr(" ".join(name.split())) for name in remainder.tensors)
    share = f"{percent(remainder.macs_covered)} of the MACs"
    return f"a part of the model, until {tensors}: {share}; ONNX Runtime computes the rest on the host"


def _shortened(operators: Iterable[str]) -> tuple[str, ...]:
    """Return a tuple: each operator's name once, with its number of occurrences if several, as in ``2 Relu``."""
    return tuple(name if count == 1 else f"{count} {name}" for name, count in Counter(operators).items())


def _tensor(feature_map: FeatureMap, name: str, shape: tuple[int, ...], layout: Layout | None = None) -> dict[str, Any]:
    """Return a tensor's JSON description for ``plan.json`` (a dict), with its layout if it is not the map's."""
    reordered: dict[str, Any] = {}
    if layout is not None:
        reordered = {"map": list(layout.map), "parts": list(layout.factors), "order": list(layout.order)}
    return {
        "name": name,
        "shape": list(shape),
        "type": str(feature_map.type),
        "scale": feature_map.scale,
        "zero_point": feature_map.zero_point,
        **reordered,
    }


def session_options(optimised: bool) -> onnxruntime.SessionOptions:
    """Return ONNX Runtime session options that make its results equal hwgen's in every bit.

    With ``optimised``, ONNX Runtime computes in integers where it can.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for setting in SETTINGS.items():
        options.add_session_config_entry(*setting)
    if not optimised:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def new_session(model: str | bytes, optimised: bool) -> onnxruntime.InferenceSession:
    """Return a CPU session of ONNX Runtime for a model, if possible with sums of products that do not saturate.

    On x86 processors without VNNI, ONNX Runtime adds two 8-bit products in 16 bits. Its precise mode avoids this, but
    can't load some models with int8 activations; their sums can saturate.
    """
    import onnxruntime

    precise = session_options(optimised)
    precise.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(model, precise, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime raises many types of errors
        return onnxruntime.InferenceSession(model, session_options(optimised), providers=["CPUExecutionProvider"])


class _Session:
    """ONNX Runtime session of operators that the host computes; its errors name them and their place in the model."""

    def __init__(
        self,
        network: Network,
        operators: Sequence[str],
        tail: bytes,
        where: str = "after the last integer tensor",
    ) -> None:
        self._name, self._operators, self._where = network.name, ", ".join(_shortened(operators)), where
        try:
            self._session = new_session(tail, network.ends.optimised)
        except Exception as error:  # ONNX Runtime raises exceptions of many classes
            raise self._failed(error) from None
        self._inputs = [value.name for value in self._session.get_inputs()]

    def run(self, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the operators on input tensors; return a list of all outputs in the order of the session's outputs."""
        try:
            results = self._session.run(None, dict(zip(self._inputs, feeds, strict=True)))
        except Exception as error:
            raise self._failed(error) from None
        return [np.asarray(values) for values in results]

    def _failed(self, error: Exception) -> ModelError:
        text = " ".join(str(error).split())[:300]
        return ModelError(f"{self._name}: ONNX Runtime can't run {self._operators} {self._where}: {text}")
