"""Models as exporters and quantisers write them: how many are built whole, and equal ONNX Runtime.

Usage: python bench/exports.py [--frames N] [--only KIND ..]     (default: all kinds, 4 frames)

- ``settings``: one network with the usual operators, quantised with the usual settings of ``quantize_static`` and each
  of three averages in front of its classifier;
- ``habits``: small models in the ways that exporters write the same network (`habits.HABITS`);
- ``exporters``: small models in the manner of published ones, in QDQ and QOperator form;
- ``light``: the onnx package's light models with seeded weights, quantised with the defaults of ``quantize_static``.

Prints each refusal with its reason, then a table. Exit status 1 if a value differs that must not.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

import exporters
import habits
import quantiser_settings
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from referees import compare

from hwgen.errors import ModelError
from hwgen.network.onnx.model_shapes import light_names
from hwgen.network.zoo import light

#: A model's name, the model, and its frames.
Case = tuple[str, onnx.ModelProto, np.ndarray]


def all_settings(frames: int) -> Iterator[Case]:
    """Yield the network of `quantiser_settings`, with each setting and each average."""
    for setting in quantiser_settings.SETTINGS:
        for tail in quantiser_settings.TAILS:
            model, writer = quantiser_settings.quantised(setting, tail)
            yield f"{setting}; {tail}", model, writer.frames(frames)


def all_habits(frames: int) -> Iterator[Case]:
    """Yield the models of `habits`."""
    for name in habits.HABITS:
        model, writer = habits.quantised(name)
        yield name, model, writer.frames(frames)


def all_exporters(frames: int) -> Iterator[Case]:
    """Yield the models of `exporters` in both forms."""
    for form in ("QDQ", "QOperator"):
        for name in exporters.MODELS:
            model, writer = exporters.quantised(name, form)
            yield f"{name}, {form}", model, writer.frames(frames)


def all_light(frames: int) -> Iterator[Case]:
    """Yield the light models, with one frame each, because they are large."""
    for name in light_names():
        model = light.model(name)
        source = model.graph.input[0]
        shape = [dim.dim_value for dim in source.type.tensor_type.shape.dim]
        data = np.random.default_rng(7).normal(size=(2, *shape)).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder) / "given.onnx", Path(folder) / "made.onnx"
            onnx.save(model, given)
            reader = iter({source.name: frame} for frame in data)
            quantize_static(str(given), str(made), _Reader(reader))
            yield name, onnx.load(made), data[0, :1]


class _Reader(CalibrationDataReader):
    def __init__(self, frames: Iterator[dict[str, np.ndarray]]) -> None:
        self._frames = frames

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._frames, None)


KINDS = {"settings": all_settings, "habits": all_habits, "exporters": all_exporters, "light": all_light}


def main() -> int:
    parser = argparse.ArgumentParser(description="Models as exporters and quantisers write them.")
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=[*KINDS])
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    rows, wrong = [], 0
    for kind in options.only:
        count = whole = equal = rounded = 0
        for name, model, frames in KINDS[kind](options.frames):
            count += 1
            with tempfile.TemporaryDirectory() as folder:
                try:
                    compared = compare(model, frames, Path(folder))
                    compared.check()
                except ModelError as error:
                    reason = (error.lines[1:] or error.lines)[0].split(".onnx: ")[-1].strip()
                    print(f"{kind}: {name}: {reason}", flush=True)
                    continue
                except AssertionError as error:
                    wrong += 1
                    print(f"{kind}: {name}: differs: {error}", flush=True)
                    continue
            whole, equal, rounded = whole + 1, equal + compared.equal, rounded + compared.rounded
        rows.append((kind, count, whole, equal, rounded))
    print("kind        models  whole  equal values  values near those of float32")
    for kind, count, whole, equal, rounded in rows:
        print(f"{kind:<10}  {count:>6}  {whole:>5}  {equal:>12,}  {rounded:>29,}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
