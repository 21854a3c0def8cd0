"""Graphs of well-known networks as exporters and quantisers write them, kept without weights in kept/zoo.xz.

``python rtl_tests/support/zoo_graphs.py FOLDER`` packs the quantised models of a folder that bench/export_zoo.py wrote.
Shapes, scales of activations, small constants, divisors and the order of nodes stay. A larger tensor is drawn anew when
a graph is read: weights and biases around 0 with the deviation of the original, scales of weights around the original's
mean.
"""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FILE = Path(__file__).resolve().parents[1] / "kept" / "zoo.xz"
_KEPT = 16
"""Largest number of values of a tensor that stays in the file."""
_TIMES = "times"
"""First word of a tensor whose values are the products of those of two others: the scale of a bias."""


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without the values of its larger tensors, and without names and texts that nothing reads."""
    made = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    made.graph.CopyFrom(model.graph)
    used = {node.domain for node in made.graph.node}
    del made.opset_import[:]
    made.opset_import.extend(entry for entry in model.opset_import if entry.domain in used)
    del made.graph.value_info[:], made.graph.metadata_props[:]
    for node in made.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    products = _scales_of_biases(made.graph)
    divisors = {node.input[1] for node in made.graph.node if node.op_type == "Div"}
    for tensor in made.graph.initializer:
        del tensor.metadata_props[:]
        tensor.ClearField("doc_string")
        values = numpy_helper.to_array(tensor)
        stays = values.dtype == np.int64 or tensor.name in divisors  # shapes, indices, numbers of pixels
        if values.size > _KEPT and not stays:
            what = f"{_TIMES} {' '.join(products[tensor.name])}" if tensor.name in products else _statistics(values)
            tensor.CopyFrom(
                TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, doc_string=what)
            )
    return made


def _statistics(values: np.ndarray) -> str:
    """Return the mean, and the deviation from 0, of values in text of a few digits."""
    if not values.any():
        return "0 0"
    floats = values.astype(np.float64)
    if values.dtype.kind == "f" and (floats > 0).all():
        return f"{floats.mean():.3g} 0"
    return f"0 {np.sqrt(np.square(floats).mean()):.3g}"


def _scales_of_biases(graph: onnx.GraphProto) -> dict[str, tuple[str, str]]:
    """Return the names of the scales of a layer's input and weights, by the name of the scale of its bias."""
    makers = {name: node for node in graph.node for name in node.output}
    found = {}
    for node in graph.node:
        operands = [makers.get(name) for name in node.input]
        if len(operands) == 3 and all(source and source.op_type == "DequantizeLinear" for source in operands):
            x, weights, bias = (source.input[1] for source in operands if source)
            found[bias] = (x, weights)
    return found


def with_weights(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Draw the missing values of a model of `without_weights`."""
    rng = np.random.default_rng(seed)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, tensor in tensors.items():
        if tensor.doc_string and not tensor.doc_string.startswith(_TIMES):
            mean, deviation = map(float, tensor.doc_string.split())
            tensor.CopyFrom(numpy_helper.from_array(_drawn(rng, tensor, mean, deviation), name))
    for name, tensor in tensors.items():
        if tensor.doc_string:
            x, weights = (numpy_helper.to_array(tensors[factor]) for factor in tensor.doc_string.split()[1:])
            tensor.CopyFrom(numpy_helper.from_array((x * weights).astype(np.float32), name))
    return model


def _drawn(rng: np.random.Generator, tensor: TensorProto, mean: float, deviation: float) -> np.ndarray:
    """Draw values for a tensor."""
    dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    if dtype.kind == "f":
        return (mean * rng.uniform(0.8, 1.2, shape) + deviation * rng.standard_normal(shape)).astype(dtype)
    limit = min(int(deviation * np.sqrt(3)), np.iinfo(dtype).max)
    return rng.integers(max(-limit, np.iinfo(dtype).min), limit, shape, dtype, endpoint=True)


def pack(folder: Path) -> None:
    """Write the graphs of all quantised models in a folder to the kept file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.glob("*-*.onnx")):
            content = without_weights(onnx.load(path)).SerializeToString()
            entry = tarfile.TarInfo(path.stem)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    FILE.write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))


@cache
def _archive() -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(FILE.read_bytes()))) as archive:
        return {entry.name: file.read() for entry in archive if (file := archive.extractfile(entry))}


def names() -> list[str]:
    """Return the names of the kept graphs: NETWORK-WAY."""
    return sorted(_archive())


def model(name: str, seed: int = 0) -> onnx.ModelProto:
    """Return a kept graph with weights drawn by a seed."""
    return with_weights(onnx.load_from_string(_archive()[name]), seed)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
    print(f"{FILE}: {len(names())} graphs, {FILE.stat().st_size:,} bytes")
