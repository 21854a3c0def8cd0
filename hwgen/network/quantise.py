"""Quantisation of float models (by ONNX Runtime's quantiser), and of float input frames (like QuantizeLinear)."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hwgen import processes
from hwgen.errors import InputError, ModelError
from hwgen.network import golden, host
from hwgen.network.ends import InputEnd
from hwgen.network.golden import frame_parts
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap
from hwgen.network.onnx.check import check
from hwgen.network.onnx.file import data_inputs, input_shape

_DTYPES = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    **{
        f"tensor({name})": np.dtype(name)
        for name in ("bool", "float16", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
    },
}
"""Dictionary of NumPy types by ONNX Runtime's type names, such as ``tensor(float)``. The others have no NumPy type."""
Ranges = dict[str, tuple[np.float32, np.float32]]
"""Type of a mapping from the names of float tensors to their ranges (minimum and maximum)."""

Inputs = np.ndarray | Sequence[np.ndarray] | Mapping[str, np.ndarray]
"""Type of a model's input frames: an array, or for several inputs one array each, in order or by input name."""


def by_input(network: Network, x: Inputs) -> tuple[np.ndarray, ...]:
    """Return a tuple of a user's input frames, one array per input of the ONNX model, in order, after a check.

    Raises
    ------
    InputError
        If an input has no frames, or the inputs have different numbers of frames.
    """
    return _by_end(network, host.inputs(network), x)


def through_head(network: Network, x: Inputs) -> Inputs:
    """Run a model's host operators before its first quantisers on frames, and return the quantisers' inputs.

    Returns
    -------
    array, sequence or mapping of array
        Frames of the tensors that the quantisers read; the frames ``x`` if the model has no such operators.

    Raises
    ------
    InputError
        If the frames do not fit the model's inputs.
    ModelError
        If ONNX Runtime can't run the operators.
    """
    return x if network.ends.head is None else host.run_head(network, checked_frames(network, x))


def given_ends(network: Network) -> tuple[InputEnd, ...]:
    """Return a tuple of the inputs (`InputEnd`) of a network's ONNX model that a user must give frames for."""
    return network.ends.inputs if network.ends.head is None else network.ends.head.inputs


def checked_frames(network: Network, x: Inputs) -> tuple[np.ndarray, ...]:
    """Check a user's frames (types, shapes, values); return a tuple: one array per model input, in the model's order.

    Raises
    ------
    InputError
        If the frames do not fit the model.
    """
    arrays = _by_end(network, given_ends(network), x)
    if network.ends.head is None:
        check_inputs(network, arrays)
        return arrays
    for end, values, what in _frames_by_end(network, given_ends(network), arrays):
        _check_host_input(end, values, what)
    return arrays


def check_types(network: Network, x: Inputs, remedy: str) -> None:
    """Raise InputError for integer frames at a model's float input: they would count as already quantised.

    A network without a model of its own accepts both.

    Parameters
    ----------
    remedy : str
        Option or argument that accepts such integers, for the error message.

    Raises
    ------
    InputError
        If there are such integers, or the frames are not one array per input.
    """
    types, sources = _types(network), host.taken(network)
    for end, values, what in _frames_by_end(network, given_ends(network), x):
        if end.name in sources and types.get(end.name) == "tensor(float)" and values.dtype.kind in "iu":
            _, source = sources[end.name]
            raise InputError(
                f"{what} must be float32, as the model's input is, not {values.dtype}; {remedy} accepts integers that "
                f"are quantised already (scale {source.scale:g}, zero point {source.zero_point})"
            )


def check_as_declared(network: Network, x: Mapping[str, np.ndarray], remedy: str) -> None:
    """Raise InputError for frames whose type or shape differs from the model's declaration of the input.

    A network without a model of its own accepts what `prepare_inputs` accepts.

    Raises
    ------
    InputError
        If a type or shape differs, or the frames are not one array per input.
    """
    check_types(network, x, remedy)
    types = _types(network)
    for end, values, what in _frames_by_end(network, given_ends(network), x):
        if end.name in types:
            if values.dtype != (wanted := _DTYPES.get(types[end.name], values.dtype)):
                raise InputError(f"{what} must be {wanted}, as the model's input is, not {values.dtype}")
            _check_shape(values, end.shape, what)


def _frames_by_end(network: Network, ends: Sequence[InputEnd], x: Inputs) -> Iterator[tuple[InputEnd, np.ndarray, str]]:
    """Yield triples: each of the inputs ``ends``, its frames, and the text that begins its error messages."""
    labels = [f"{network.name}: input" + (f" {end.name}" if len(ends) > 1 else "") for end in ends]
    return zip(ends, _by_end(network, ends, x), labels, strict=True)


def _types(network: Network) -> dict[str, str]:
    """Return, as a dict, the ONNX type of each model input, by name; empty for a network without an ONNX model."""
    return {info.name: info.type for info in network.ends.input_infos}


def _by_end(network: Network, ends: Sequence[InputEnd], x: Inputs) -> tuple[np.ndarray, ...]:
    """Return a tuple of frames, one array per input that the user gives; refuse unequal numbers of frames."""
    names = [end.name for end in ends]
    listed = f"{len(names)} inputs ({', '.join(names)})" if len(names) > 1 else f"one input ({names[0]})"
    if isinstance(x, Mapping) and set(x) != set(names):
        raise InputError(
            f"{network.name}: has {listed}, and frames must name these, not {', '.join(map(str, x)) or 'none'}"
        )
    arrays = _in_order(x, names)
    for values in arrays:
        if not isinstance(values, np.ndarray) or np.ma.isMaskedArray(values):
            raise InputError(f"{network.name}: input must be a NumPy array, not {type(values).__name__}")
    if len(arrays) != len(names):
        raise InputError(f"{network.name}: has {listed}, and frames must have one array for each, not {len(arrays)}")
    # In the machine's own byte order.
    native = tuple(values.astype(values.dtype.newbyteorder("="), copy=False) for values in arrays)
    if len(counts := sorted({len(values) for values in native if values.ndim})) > 1:
        raise InputError(f"{network.name}: inputs must have as many frames, not {' and '.join(map(str, counts))}")
    return native


def _in_order(x: Inputs, names: Sequence[str]) -> list[Any]:
    """Return a list of each input's frames: from a mapping in the order of ``names``, else in given order."""
    if isinstance(x, Mapping):
        return [x[name] for name in names]
    return [*x] if isinstance(x, list | tuple) else [x]


def prepare_inputs(network: Network, x: Inputs) -> tuple[np.ndarray, ...]:
    """Return a tuple of the hardware's integer input maps, each ``(frames, C, H, W)``, for frames of a model's inputs.

    Frames have the model's shape: ``(C, H, W)``, ``(features,)``, ``(H, W, C)`` or another. If the map has the same
    order of values, frames can also have the map's shape, for example ``(features, 1, 1)``. Floats are quantised by the
    input's scale and zero point as by ONNX QuantizeLinear: divided in float32, rounded half to even, saturated. Frames
    of the input's integer type are not changed. Inputs that only the host reads are checked, but not returned.

    Raises
    ------
    InputError
        If a shape or type differs, a value is NaN or infinite, or floats are given and the model has no scale.
    """
    sources, found = host.taken(network), []
    for end, values, what in _frames_by_end(network, host.inputs(network), x):
        if end.taken:
            found.append(_prepared(*sources[end.name], values, what))
        else:
            _check_host_input(end, values, what)
    return tuple(found)


def check_inputs(network: Network, x: Inputs) -> None:
    """Raise InputError for frames that `prepare_inputs` refuses, without memory for all frames' integers."""
    sources = host.taken(network)
    for end, values, what in _frames_by_end(network, host.inputs(network), x):
        if end.taken:
            _check_hardware_input(*sources[end.name], values, what)
        else:
            _check_host_input(end, values, what)


def _check_host_input(end: InputEnd, x: np.ndarray, what: str) -> None:
    """Raise InputError if frames for a model input that only the host reads have a wrong type, shape or value.

    Floats of any width are accepted for floats.
    """
    if x.dtype != end.dtype and {x.dtype.kind, np.dtype(end.dtype).kind} != {"f"}:
        raise InputError(f"{what} must be {end.dtype}, not {x.dtype}")
    _check_shape(x, end.shape, what)
    if x.dtype.kind == "f":
        _check_finite(x, what)


def _check_hardware_input(end: InputEnd, expected: FeatureMap, x: np.ndarray, what: str) -> None:
    """Raise InputError if frames for a model input that the hardware reads have a wrong type, shape or value."""
    if x.dtype not in (np.float16, np.float32, np.float64, expected.type.dtype):
        raise InputError(f"{what} must be float32 or {expected.type.dtype}, not {x.dtype}")
    if end.layout is not None or x.ndim != 4 or x.shape[1:] != expected.shape or not len(x):
        _check_shape(x, end.shape, what)
    if x.dtype == expected.type.dtype:
        for _, (part,) in frame_parts([x]):
            golden.check_input(what, expected, _maps(end, expected, part))
        return
    if expected.scale is None:
        raise InputError(f"{what} must be {expected.type.dtype}: the model gives no scale for floats")
    _check_finite(x, what)


def as_model(network: Network, x: Inputs, prepared: Sequence[np.ndarray], floats: Collection[str]) -> list[np.ndarray]:
    """Return a list of the frames of each model input, converted to the type that ONNX Runtime reads.

    Parameters
    ----------
    prepared : sequence of ndarray
        The frames as the hardware's integer maps.
    floats : collection of str
        Names of the inputs that are floats.
    """
    given = zip(host.inputs(network), by_input(network, through_head(network, x)), strict=True)
    integers = dict(zip(host.taken(network), host.input_frames(network, prepared), strict=True))
    return [
        host.as_model(network, end.name, values)
        if end.name in floats or end.name not in integers
        else integers[end.name]
        for end, values in given
    ]


def _prepared(end: InputEnd, expected: FeatureMap, x: np.ndarray, what: str) -> np.ndarray:
    """Check the frames of one model input, and return them as the hardware's integer maps ``(n, C, H, W)``.

    If nothing changes, this is a view of the frames, which can be mapped.
    """
    _check_hardware_input(end, expected, x, what)
    if x.dtype == expected.type.dtype and not end.limits and end.layout is None:
        return _maps(end, expected, x)
    integers = np.empty((len(x), *expected.shape), expected.type.dtype)
    for begin, (part,) in frame_parts([x]):
        integers[begin : begin + len(part)] = _integers(end, expected, part)
    return integers


def _integers(end: InputEnd, expected: FeatureMap, x: np.ndarray) -> np.ndarray:
    """Return the hardware's integer maps ``(n, C, H, W)`` for frames of a model input, integers or floats."""
    if x.dtype == expected.type.dtype:
        return _maps(end, expected, x)
    assert expected.scale is not None
    with np.errstate(over="ignore"):
        steps = np.rint(x.astype(np.float32) / np.float32(expected.scale)).astype(np.float64)
    clipped = np.clip(steps + expected.zero_point, expected.type.minimum, expected.type.maximum)
    return _maps(end, expected, clipped).astype(expected.type.dtype)


def _maps(end: InputEnd, expected: FeatureMap, integers: np.ndarray) -> np.ndarray:
    """Return an ONNX input's integers as feature maps ``(n, C, H, W)``, clipped if the model clips its input."""
    limited = np.clip(integers, *end.limits) if end.limits else integers
    return limited.reshape(len(limited), *expected.shape) if end.layout is None else end.layout.to_maps(limited)


def quantise(
    model: onnx.ModelProto, calibration: Inputs, where: str, bits: int = 8, ranges: Ranges | None = None
) -> onnx.ModelProto:
    """Quantise a float ONNX model with ONNX Runtime's ``quantize_static``, and return the QDQ ONNX model.

    Activations become uint8, weights int8 with one scale per output channel; with 16 ``bits``, uint16 and int16. Before
    that, ONNX Runtime's basic graph optimisations fold batch normalisations into convolutions.

    Parameters
    ----------
    calibration : array, sequence or mapping of array
        Float frames in the model's shape, for each input, in order or by name. The range of an activation is its
        minimum and maximum over these frames.
    where : str
        Begin of error messages.
    bits : int
        Width of activations and weights: 8 or 16.
    ranges : dict, optional
        Ranges of tensors that replace the measured ranges.

    Raises
    ------
    InputError
        If the calibration does not fit the model.
    ModelError
        If ONNX Runtime can't quantise the model.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    check(model, where)
    frames = _calibration(model, calibration, where)
    source = data_inputs(model)[0]
    batch = max(source.type.tensor_type.shape.dim[0].dim_value, 1)  # 1 where it is symbolic
    count = len(frames[source.name])
    if count < batch:
        raise InputError(f"{where}: calibration must hold a batch of {batch} frames, not {count}")

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._starts = iter(range(0, count - batch + 1, batch))

        def get_next(self) -> dict[str, np.ndarray] | None:
            start = next(self._starts, None)
            if start is None:
                return None
            return {name: values[start : start + batch].astype(np.float32) for name, values in frames.items()}

    with processes.workplace() as folder, _quiet_quantiser(folder):
        given, quantised = folder / "given.onnx", folder / "quantised.onnx"
        try:
            given.write_bytes(model.SerializeToString())
            del model  # ONNX Runtime copies it more than once
            quantize_static(
                _optimised(given, folder),
                quantised,
                Reader(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8 if bits == 8 else QuantType.QUInt16,
                weight_type=QuantType.QInt8 if bits == 8 else QuantType.QInt16,
                extra_options={
                    "TensorQuantOverrides": _overrides(ranges or {}),
                    "ForceQuantizeNoInputCheck": True,  # otherwise pools after functions of one value stay in floats
                },
            )
        except OSError:  # the cause is the folder, not the model
            raise
        except Exception as error:  # ONNX Runtime raises exceptions of many classes
            text = " ".join(str(error).split())[:300]
            raise ModelError(f"{where}: ONNX Runtime could not quantise it: {text}") from None
        return onnx.load(str(quantised))


def _overrides(ranges: Ranges) -> dict[str, list[dict[str, np.ndarray]]]:
    """Return a dictionary of ranges by tensor in the format of ONNX Runtime's option ``TensorQuantOverrides``."""
    return {name: [{"rmin": np.array(low), "rmax": np.array(high)}] for name, (low, high) in ranges.items()}


def run(model: onnx.ModelProto, frames: np.ndarray) -> np.ndarray:
    """Return the first output of a float ONNX model with one input, run frame by frame, as in calibration.

    Parameters
    ----------
    model : onnx.ModelProto
        Its batch is one or symbolic.
    frames : numpy.ndarray
        Frames of the input, float32.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    name = model.graph.input[0].name
    return np.concatenate([np.asarray(session.run(None, {name: frame[None]})[0]) for frame in frames])


def _calibration(model: onnx.ModelProto, calibration: Inputs, where: str) -> dict[str, np.ndarray]:
    """Check a float model's calibration frames, and return them as a dictionary by input name.

    Refuse frames that do not fit.
    """
    sources = {value.name: input_shape(value, where) for value in data_inputs(model)}
    if not sources:
        raise ModelError(f"{where}: a model must have an input")
    names = [*calibration] if isinstance(calibration, Mapping) else [*sources]
    arrays = _in_order(calibration, names)
    if set(names) != set(sources) or len(arrays) != len(sources):
        listed = f"each of the inputs {', '.join(sources)}" if len(sources) > 1 else f"the input {names[0]}"
        raise InputError(f"{where}: calibration must hold frames of {listed}")
    given: dict[str, np.ndarray] = dict(zip(names, arrays, strict=True))
    for name, shape in sources.items():
        values, what = given[name], f"{where}: calibration" + (f" of {name}" if len(sources) > 1 else "")
        if not isinstance(values, np.ndarray) or values.dtype not in (np.float16, np.float32, np.float64):
            kind = getattr(values, "dtype", type(values).__name__)
            raise InputError(f"{what} must be float32, not {kind}")
        _check_shape(values, shape, what)
        _check_finite(values, what)
    if len(counts := {len(values) for values in given.values()}) > 1:
        raise InputError(f"{where}: calibration must have as many frames of each input, not {sorted(counts)}")
    return given


def _optimised(given: Path, folder: Path) -> onnx.ModelProto:
    """Return a model file after ONNX Runtime's basic graph optimisations, which add no operators of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(given), options, providers=["CPUExecutionProvider"])
    optimised = onnx.load(options.optimized_model_filepath)
    used = {node.domain or "" for node in optimised.graph.node}
    imports = [entry for entry in optimised.opset_import if entry.domain in used]
    del optimised.opset_import[:]
    optimised.opset_import.extend(imports)
    return optimised


def _check_shape(x: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    if x.ndim == len(shape) + 1 and not len(x):
        raise InputError(f"{what} must have one frame at least, not none")
    if x.ndim != len(shape) + 1 or x.shape[1:] != shape:
        raise InputError(f"{what} must have shape (frames, {', '.join(map(str, shape))}), not {x.shape}")


def _check_finite(x: np.ndarray, what: str) -> None:
    count, first = 0, ()
    for begin, (part,) in frame_parts([x]):
        bad = ~np.isfinite(part)
        if bad.any():
            frame, *rest = (int(index) for index in np.argwhere(bad)[0])
            first = first or (begin + frame, *rest)
            count += int(bad.sum())
    if count:
        raise InputError(f"{what} must hold finite numbers only, not {count} NaN or infinite (first at {first})")


@contextmanager
def _quiet_quantiser(folder: Path) -> Iterator[None]:
    """Suppress log messages of ONNX Runtime's quantiser, and direct its temporary files into ``folder``.

    The advice concerns a pre-processing that `quantise` does itself.
    """
    disabled, temporary = logging.root.manager.disable, tempfile.tempdir
    logging.disable(logging.WARNING)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        logging.disable(disabled)
        tempfile.tempdir = temporary
