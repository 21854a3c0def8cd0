"""Networks of integer layers: the layer graph, ONNX import, quantisation, built-in networks and the golden model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwgen.errors import InputError, ModelError
from hwgen.network.options import AS_IT_IS, ModelOptions

if TYPE_CHECKING:
    import onnx

    from hwgen.network.fates import Survey
    from hwgen.network.graph import Network
    from hwgen.network.onnx.layers import RuntimeLayers

__all__ = ["load", "quantised", "runtime_layers", "survey", "weight_bits"]


def load(source: str | os.PathLike[str], options: ModelOptions = AS_IT_IS) -> Network:
    """Return the `Network` of integer layers read from an ``.onnx`` file or a built-in name such as ``vgg16:7@64x64``.

    Parameters
    ----------
    source : str or path
        File, or name of a built-in network.
    options : ModelOptions
        Options for reading the model; ``calibration``, if given, as arrays.

    Raises
    ------
    ModelError
        If a model can't be read or built.
    InputError
        If the calibration does not fit, or calibration or ``bits`` are given for a quantised model.
    """
    # Importing onnx takes a while, so that it is imported only when a model is read.
    from hwgen.network.onnx import importer
    from hwgen.network.zoo import builtin

    if not _is_file(source, Path(source)) and not options.given_names:
        return builtin.load(str(source))
    notes: list[str] = []
    model, name, where = _model(source, options, notes)
    network = importer.to_part(model, name, where, options)
    if _is_as_written(source, options):
        _check_by_runtime(Path(source), model)
    return replace(network, warnings=(*notes, *network.warnings)) if notes else network


def _check_by_runtime(path: Path, model: onnx.ModelProto) -> None:
    """Raise ModelError if ONNX Runtime can't load an ONNX file (for a QONNX file, its equivalent in ONNX operators)."""
    from hwgen.network.onnx import check as onnx_check
    from hwgen.network.onnx import qonnx

    onnx_check.check_by_runtime(path, qonnx.stand_in(model) if qonnx.is_qonnx(model) else None)


def survey(source: str | os.PathLike[str], options: ModelOptions = AS_IT_IS) -> Survey:
    """Return a `Survey` with a verdict on each of a model's operators: can hardware compute it, and if not, why.

    It has the parameters of `load`. With ``until`` the operators after these tensors are left to the host.

    Raises
    ------
    ModelError
        If a model can't be read or is not valid, or the hardware can't end at ``until``.
    InputError
        If `load` refuses calibration or bits.
    """
    from hwgen.network.onnx import importer

    model, name, where = _model(source, options)
    if options.until is not None:
        return importer.survey_part(model, name, where, options)
    verdicts = importer.survey(model, name, where, options)
    if not _is_as_written(source, options):
        return verdicts
    try:
        _check_by_runtime(Path(source), model)
    except ModelError as error:
        if not verdicts.obstacles:
            raise
        return replace(verdicts, part=None, rest_refused=str(error).removeprefix(f"{where}: "))
    return verdicts


def runtime_layers(source: str | os.PathLike[str], network: Network, options: ModelOptions = AS_IT_IS) -> RuntimeLayers:
    """Return `RuntimeLayers`: an ONNX Runtime session that computes every layer's output, for comparison.

    The other parameters are as in `load`.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run the model in this way, or `load` refuses it.
    """
    from hwgen.network.onnx.layers import RuntimeLayers

    model, _, where = _model(source, options)
    return RuntimeLayers(model, network, where, options)


def _is_as_written(source: str | os.PathLike[str], options: ModelOptions) -> bool:
    """Return whether a model is read unchanged from its file: not quantised here, and no raw-pixel inputs."""
    return _is_file(source, Path(source)) and options.calibration is None and options.pixels is None


def _model(
    source: str | os.PathLike[str], options: ModelOptions, notes: list[str] | None = None
) -> tuple[onnx.ModelProto, str, str]:
    """Load an ONNX model (quantise it if float); return a triple: model, its network's name, and a prefix for errors.

    With ``pixels`` its inputs are raw pixels. A warning of a file whose numbers are read otherwise is added to
    ``notes``.
    """
    from hwgen.network.onnx.raw_pixels import with_raw_pixels

    model, name, where = _quantised(source, options, [] if notes is None else notes)
    return (model if options.pixels is None else with_raw_pixels(model, options.pixels, where)), name, where


def _quantised(
    source: str | os.PathLike[str], options: ModelOptions, notes: list[str]
) -> tuple[onnx.ModelProto, str, str]:
    """Load an ONNX model (quantise a float one); return a triple: model, network's name, prefix for errors."""
    from hwgen.network import quantise
    from hwgen.network.onnx import check as onnx_check
    from hwgen.network.onnx import file as onnx_file
    from hwgen.network.onnx import forms
    from hwgen.network.zoo import builtin

    path, calibration, bits = Path(source), options.calibration, options.bits
    if not _is_file(source, path):
        _check_built_in(source, options)
        return builtin.in_integers(str(source)), builtin.title(str(source)), str(source)
    if path.suffix.lower() != ".onnx":
        raise ModelError(f"{path}: a model must be an .onnx file or a built-in network's name")
    where = str(path)
    read = onnx_file.read(path)
    model = forms.usual(read, where, options.shape)
    if forms.has_float16(read):
        notes.append("its float16 numbers are computed as float32; ONNX Runtime rounds to 11 bits on the way")
    if onnx_file.is_float(model):
        if calibration is None:
            onnx_check.check(model, where)
            raise ModelError(
                f"{where}: a float model; give calibration inputs (--calibration X.npy) to have it quantised, "
                "or quantise it with ONNX Runtime's quantize_static"
            )
        model = quantise.quantise(model, calibration, where, 8 if bits is None else bits)
    elif calibration is not None:
        raise InputError(f"{where}: quantised already; leave the calibration out")
    elif bits is not None:
        raise InputError(f"{where}: quantised already; leave bits out, they are the model's")
    # A file name can be invalid UTF-8, but the network's name is part of texts.
    return model, path.stem.encode(errors="surrogateescape").decode(errors="replace"), where


def _check_built_in(source: str | os.PathLike[str], options: ModelOptions) -> None:
    if options.shape is not None:
        raise InputError(f"{source}: a built-in network's size is in its name, as in vgg16:7@64x64; leave shape out")
    if options.calibration is not None:
        raise InputError(f"{source}: a built-in network is quantised already; leave the calibration out")
    if options.bits is not None:
        raise InputError(
            f"{source}: a built-in network is quantised already; leave bits out, a name that ends in ,int16 says 16"
        )


def quantised(source: str | os.PathLike[str], options: ModelOptions) -> onnx.ModelProto:
    """Quantise the float model in an ``.onnx`` file by its calibration frames, and return it as a QDQ ONNX model.

    Raises
    ------
    ModelError
        If the file is not a model, or ONNX Runtime can't quantise it.
    InputError
        If the calibration does not fit, or the model is quantised already.
    """
    return _quantised(source, options, [])[0]


def weight_bits(source: str | os.PathLike[str]) -> list[tuple[str, int]]:
    """Return a list of (layer name, total weight bits) of a built-in network, without loading it; empty for a file."""
    from hwgen.network.zoo import builtin

    return [] if _is_file(source, Path(source)) else builtin.weight_bits(str(source))


def _is_file(source: str | os.PathLike[str], path: Path) -> bool:
    """Return whether a model's ``source`` is a file rather than the name of a built-in network."""
    from hwgen.network.zoo import builtin

    if not isinstance(source, str) or path.suffix.lower() == ".onnx" or os.sep in source:
        return True
    return path.is_file() and source not in dict(builtin.names())
