"""Exports networks of torchvision, timm, ultralytics and Keras with random weights, each quantised in three ways.

Usage: python bench/export_zoo.py FOLDER [NAME ..]

Needs torch, torchvision, timm, ultralytics, onnxscript, tensorflow and tf2onnx, which hwgen does not install. For each
network (`zoo_networks.NETWORKS`) it writes to the folder

- ``NAME.onnx``: the float model as the exporter writes it (PyTorch's default exporter; Keras by TFLite and tf2onnx);
- ``NAME-qdq.onnx``: ``quant_pre_process``, then ``quantize_static``: uint8, weights per channel;
- ``NAME-pairs.onnx``: the defaults of ``quantize_static`` (int8) with a Q/DQ pair for each reader (DedicatedQDQPair);
- ``NAME-inputs.onnx``: Q/DQ only in front of convolutions, Gemm and MatMul, as in NVIDIA's training: int8 with zero
  point 0, weights per channel, biases in float32;
- ``keras_cnn-tflite.onnx``: the file that TFLite itself quantised in integers;
- ``NAME.npy``: four frames, with which the models were quantised;
- ``README``: a line for each file.

`bench/zoo_survey.py` says which of them hwgen builds.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import onnx
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn
from zoo_networks import NETWORKS, Entry

FRAMES = 4
_OPERATORS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
WAYS: dict[str, dict[str, Any]] = {
    "qdq": {"activation_type": QuantType.QUInt8, "per_channel": True},
    "pairs": {"extra_options": {"DedicatedQDQPair": True}},
    "inputs": {
        "op_types_to_quantize": _OPERATORS,
        "per_channel": True,
        "extra_options": {
            "OpTypesToExcludeOutputQuantization": _OPERATORS,
            "ActivationSymmetric": True,
            "QuantizeBias": False,
        },
    },
}
"""Arguments of ``quantize_static`` by the name of each way."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Exports of well-known networks, quantised in three ways.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks (default: all)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in options.names or NETWORKS:
        try:
            _make(name, NETWORKS[name], options.folder)
        except Exception as error:  # the other networks are made all the same
            failed += 1
            _say(options.folder, f"{name}: FAILED: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return bool(failed)


def _make(name: str, entry: Entry, folder: Path) -> None:
    """Write all files of one network."""
    begin, exported = time.perf_counter(), folder / f"{name}.onnx"
    frames = np.random.default_rng(7).normal(size=(FRAMES, *entry.shape)).astype(np.float32)
    np.save(folder / f"{name}.npy", frames)
    (_export_keras if entry.keras else _export)(entry, frames, exported)
    seconds = time.perf_counter() - begin
    _say(folder, f"{name}.onnx: float, frame {entry.shape}, {exported.stat().st_size:,} bytes, {seconds:.0f} s")
    for way, arguments in WAYS.items():
        made = folder / f"{name}-{way}.onnx"
        _quantise(exported, made, frames, arguments)
        nodes = len(onnx.load(made).graph.node)
        _say(folder, f"{made.name}: {nodes} nodes, {made.stat().st_size:,} bytes")


def _say(folder: Path, line: str) -> None:
    """Print a line, and append it to the folder's README."""
    print(line, flush=True)
    with (folder / "README").open("a") as file:
        print(line, file=file)


def _export(entry: Entry, frames: np.ndarray, path: Path) -> None:
    """Export a network of PyTorch, with seeded weights and statistics of BatchNorm that fit the frames."""
    torch.manual_seed(0)
    module = entry.make().eval()
    settle(module, torch.from_numpy(frames))
    torch.onnx.export(module, (torch.from_numpy(frames[:1]),), str(path), dynamo=True, external_data=False)


def settle(module: nn.Module, frames: torch.Tensor) -> None:
    """Draw scales and offsets of each BatchNorm, and set its statistics by two passes, to keep activations in range."""
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for norm in norms:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(0, 0.2)
            norm.reset_running_stats()
            norm.momentum = None  # the mean of all passes
            norm.train()
        for _ in range(2):
            module(frames)
    module.eval()


def _export_keras(entry: Entry, frames: np.ndarray, path: Path) -> None:
    """Export a Keras network by TFLite and tf2onnx, in floats, and as TFLite quantises it in integers."""
    import tensorflow as tf

    model = entry.make()
    model.compile(loss="categorical_crossentropy")
    model.fit(frames, np.eye(10, dtype=np.float32)[np.arange(FRAMES) % 10], epochs=20, verbose=0)  # for BatchNorm
    with tempfile.TemporaryDirectory() as folder:
        for made in (path, path.with_stem(f"{path.stem}-tflite")):
            converter = tf.lite.TFLiteConverter.from_keras_model(model)
            if made != path:
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
                converter.representative_dataset = lambda: ([frame[None]] for frame in frames)
                converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            lite = Path(folder) / "model.tflite"
            lite.write_bytes(converter.convert())
            command = [sys.executable, "-m", "tf2onnx.convert", "--opset", "17"]
            subprocess.run([*command, "--tflite", lite, "--output", made], check=True, capture_output=True)


class _Reader(CalibrationDataReader):
    def __init__(self, name: str, frames: np.ndarray):
        self._frames = iter({name: frame[None]} for frame in frames)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._frames, None)


def _quantise(given: Path, made: Path, frames: np.ndarray, arguments: dict[str, Any]) -> None:
    """Quantise a model by ONNX Runtime behind its own pre-processing."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        try:
            quant_pre_process(str(given), str(prepared))
        except Exception:  # its symbolic shape inference does not take every operator
            quant_pre_process(str(given), str(prepared), skip_symbolic_shape=True)
        source = onnx.load(prepared).graph.input[0].name
        quantize_static(str(prepared), str(made), _Reader(source, frames), **arguments)


if __name__ == "__main__":
    sys.exit(main())
