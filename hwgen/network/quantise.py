"""Quantisation: of float models by ONNX Runtime's own quantiser, and of float inputs as QuantizeLinear does it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

from hwgen import processes
from hwgen.errors import InputError, ModelError
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.onnx.check import check
from hwgen.network.onnx.file import data_inputs, input_shape


def prepare_input(network: Network, x: np.ndarray) -> np.ndarray:
    """``x`` as the network's input integers, ``(frames, C, H, W)``.

    Frames have the shape that the model gives them: ``(C, H, W)``, ``(features,)``, ``(H, W, C)`` or another. Where the
    map holds the values in the same order, the map's own shape does as well, as ``(features, 1, 1)``. Floats are
    quantised by the input's scale and zero point as ONNX QuantizeLinear does: divided in float32, rounded half to even,
    saturated. The input's own integer type passes. InputError for anything else: another shape or type, NaN or
    infinity, floats where the model gives no scale.
    """
    expected = network.input
    what = f"{network.name}: input"
    if not isinstance(x, np.ndarray):
        raise InputError(f"{what} must be a NumPy array, not {type(x).__name__}")
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    shape = host.input_shape(network)
    if x.dtype not in (np.float16, np.float32, np.float64, expected.type.dtype):
        raise InputError(f"{what} must be float32 or {expected.type.dtype}, not {x.dtype}")
    in_order = network.host is None or network.host.input_layout is None
    if not in_order or x.ndim != 4 or x.shape[1:] != expected.shape or not len(x):
        _check_shape(x, shape, what)
    if x.dtype == expected.type.dtype:
        maps = host.input_maps(network, _limited(network, x))
        golden.check_frames(network, maps)
        return maps
    if expected.scale is None:
        raise InputError(f"{what} must be {expected.type.dtype}: the model gives no scale for floats")
    _check_finite(x, what)
    with np.errstate(over="ignore"):
        steps = np.rint(x.astype(np.float32) / np.float32(expected.scale)).astype(np.float64)
    limited = _limited(network, np.clip(steps + expected.zero_point, expected.type.minimum, expected.type.maximum))
    return host.input_maps(network, limited.astype(expected.type.dtype))


def _limited(network: Network, integers: np.ndarray) -> np.ndarray:
    """Clipped as the model clips its input."""
    limits = network.host and network.host.limits
    return np.clip(integers, *limits) if limits else integers


def quantise(model: onnx.ModelProto, calibration: np.ndarray, where: str, bits: int = 8) -> onnx.ModelProto:
    """The float ``model`` quantised by ONNX Runtime's ``quantize_static``, as a QDQ model.

    uint8 activations (their ranges are the extremes over ``calibration``, float frames in the model's shape), int8
    weights, one scale an output channel; with ``bits`` 16 uint16 and int16. Before, ONNX Runtime's basic graph
    optimisations fold batch normalisation and the like into the convolutions. ``where`` starts error messages. Raises
    InputError, ModelError.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    if bits not in (8, 16):
        raise InputError(f"{where}: bits must be 8 or 16, not {bits!r}")
    check(model, where)
    shape = input_shape(model, where)
    if not isinstance(calibration, np.ndarray) or calibration.dtype not in (np.float16, np.float32, np.float64):
        kind = getattr(calibration, "dtype", type(calibration).__name__)
        raise InputError(f"{where}: calibration must be float32, not {kind}")
    _check_shape(calibration, shape, f"{where}: calibration")
    _check_finite(calibration, f"{where}: calibration")
    (source,) = data_inputs(model)
    batch = max(source.type.tensor_type.shape.dim[0].dim_value, 1)  # 1 where it is symbolic
    if len(calibration) < batch:
        raise InputError(f"{where}: calibration must hold a batch of {batch} frames, not {len(calibration)}")

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            starts = range(0, len(calibration) - batch + 1, batch)
            self._batches = iter([calibration[start : start + batch].astype(np.float32) for start in starts])

        def get_next(self) -> dict[str, np.ndarray] | None:
            frames = next(self._batches, None)
            return None if frames is None else {source.name: frames}

    with processes.workplace() as folder, _quiet(folder):
        quantised = folder / "quantised.onnx"
        try:
            quantize_static(
                _optimised(model, folder),
                quantised,
                Reader(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8 if bits == 8 else QuantType.QUInt16,
                weight_type=QuantType.QInt8 if bits == 8 else QuantType.QInt16,
            )
        except OSError:  # of the folder, not of the model
            raise
        except Exception as error:  # ONNX Runtime raises many kinds
            text = " ".join(str(error).split())[:300]
            raise ModelError(f"{where}: ONNX Runtime could not quantise it: {text}") from None
        return onnx.load(str(quantised))


def _optimised(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """``model`` after ONNX Runtime's basic optimisations, which are all in ONNX's own operators."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimised = onnx.load(options.optimized_model_filepath)
    used = {node.domain or "" for node in optimised.graph.node}
    imports = [entry for entry in optimised.opset_import if entry.domain in used]
    del optimised.opset_import[:]
    optimised.opset_import.extend(imports)
    return optimised


def _check_shape(x: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    if x.ndim != len(shape) + 1 or x.shape[1:] != shape or not len(x):
        raise InputError(f"{what} must be of shape (frames, {', '.join(map(str, shape))}), not {x.shape}")


def _check_finite(x: np.ndarray, what: str) -> None:
    bad = ~np.isfinite(x)
    if bad.any():
        first = tuple(int(index) for index in np.argwhere(bad)[0])
        raise InputError(
            f"{what} must hold finite numbers only, not {int(bad.sum())} NaN or infinite (first at {first})"
        )


@contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """Without the quantiser's advice on the root logger (its pre-processing is done here), and with its own temporary
    files in the folder."""
    before, place = logging.root.manager.disable, tempfile.tempdir
    logging.disable(logging.WARNING)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        logging.disable(before)
        tempfile.tempdir = place
