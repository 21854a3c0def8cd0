"""Python interface of hwgen: the command line's commands as functions and classes, with NumPy arrays.

    model = hwgen.load("digits.onnx")
    design = model.plan(board="zedboard")
    design.build("build/digits-zedboard")
    result = design.simulate(images)        # (n, C, H, W), float32 or the model's integer type
    assert result.mismatches == 0
    classes = result.outputs.argmax(axis=1)  # outputs in the model's own type and shape

Every failure that hwgen foresees raises a subclass of ``HwgenError``, whose message is one line; an ``ObstaclesError``
has a line for each obstacle.
"""

from __future__ import annotations

from hwgen.api.arrays import Inputs, Values, model_options, read_archive, read_array, read_inputs
from hwgen.api.design import Design
from hwgen.api.model import Model, Retrained, design_of
from hwgen.api.result import Result
from hwgen.api.verbs import check, from_torch, load, quantise, sweep
from hwgen.network.pixels import Pixels

__all__ = [
    "Design",
    "Inputs",
    "Model",
    "Pixels",
    "Result",
    "Retrained",
    "Values",
    "check",
    "design_of",
    "from_torch",
    "load",
    "model_options",
    "quantise",
    "read_archive",
    "read_array",
    "read_inputs",
    "sweep",
]
