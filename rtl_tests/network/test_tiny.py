"""The four networks of MLPerf Tiny, whole: equal to ONNX Runtime, and planned for a ZedBoard in few cycles."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import last_integers
from referees import by_integer_kernels

from hwgen import boards
from hwgen.errors import ModelError
from hwgen.network import golden, load
from hwgen.network.quantise import prepare_inputs
from hwgen.network.zoo import builtin
from hwgen.plan import planner

#: Multiply-adds of a frame; and for a ZedBoard the most cycles of latency and interval, each by its own objective.
TINY = {
    "resnet8": (12_501_632, 51_000, 32_768),
    "dscnn": (2_656_768, 10_700, 8_000),
    "mobilenetv1-0.25": (7_489_664, 95_000, 27_648),
    "autoencoder": (264_192, 5_500, 700),
}
#: Others, of which a small image is enough.
LARGER = ("unet@32x32", "squeezenet@64x64", "mobilenetv2@64x64", "resnet18@64x64", "mobilenetv1@64x64")


@pytest.mark.parametrize("name", [*TINY, *(pytest.param(name, marks=pytest.mark.long) for name in LARGER)])
def test_equal_to_onnxruntime(name):
    """Every value of the last integer tensor, over integer kernels alone."""
    network, model = load(name), last_integers(builtin.quantised(name))
    shape = (2, *(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]))
    frames = np.random.default_rng(5).uniform(-1, 1, shape).astype(np.float32)
    theirs, floats = by_integer_kernels(model, frames)
    assert not floats
    ours = golden.run(network, prepare_inputs(network, frames))
    np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs)
    assert len(np.unique(ours)) > 3


@pytest.mark.parametrize("name", TINY)
def test_multiplications(name):
    assert load(name).macs == TINY[name][0]


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        pytest.param(name, goal, marks=[pytest.mark.long] * (name == "mobilenetv1-0.25" or goal == "latency"))
        for name in TINY
        for goal in ("latency", "interval")
    ],
)
def test_cycles_on_a_zedboard(name, objective):
    made = planner.make(
        load(name), boards.load("zedboard"), multipliers="dsp", macs_per_dsp="auto", objective=objective
    )
    _, latency, interval = TINY[name]
    if objective == "latency":
        assert made.latency <= latency
    else:
        assert made.interval is not None
        assert made.interval <= interval
    assert len(made.groups) == 1
    assert made.obstacle is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet8:3", r"^resnet8:3: a built-in name must be NAME\[@HEIGHTxWIDTH\], as in resnet8@64x64$"),
        ("autoencoder@3x3", r"^autoencoder@3x3: its input has 640 features, and no size$"),
        ("squeezenet@7x7", r"^squeezenet: its input of 7x7 is too small for pool3$"),
        (
            "resnet8,int16",
            r"^resnet8,int16: 3 things can't be built .*\n  Add node 'stack1_add': joins maps of at most 8 bits",
        ),
    ],
)
def test_names_that_make_no_sense(name, message):
    with pytest.raises(ModelError, match=message):
        load(name)


def test_smallest_image():
    assert load("resnet8@1x1").output.channels == 10
