"""Dilated windows, from the model file to the simulated hardware, in both templates; the reference is ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_models import by_hwgen, frames_for, quantised_chain
from referees import by_onnxruntime
from resource_layers import DILATED, config_of, network_of

import hwgen
from hwgen.cli import main as cli
from hwgen.explore.pyramid import reuse_words
from hwgen.network import shapes
from hwgen.plan import read, write
from hwgen.schedule.buffers import ample_rows


@pytest.fixture
def file(tmp_path):
    """Three layers over 2 x 21 x 23: dilations 2, 3 x 2 with strides, and a pool with 2 x 3."""
    model = quantised_chain(
        ("Conv", {"dilations": (2, 2), "auto_pad": "SAME_UPPER"}),
        ("Conv", {"dilations": (3, 2), "strides": (1, 2), "pads": (3, 2, 3, 1)}),
        ("MaxPool", {"kernel_shape": (2, 2), "dilations": (2, 3), "pads": (1, 0, 0, 1)}),
        shape=(2, 21, 23),
    )
    path = tmp_path / "dilated.onnx"
    onnx.save(model, path)
    return path


def padded(file):
    """The same for ONNX Runtime, which wants padding in numbers where windows are dilated."""
    model = onnx.load(file)
    (node,) = (node for node in model.graph.node if node.name == "node0")
    del node.attribute[:]
    node.attribute.extend([onnx.helper.make_attribute("dilations", (2, 2))])
    node.attribute.extend([onnx.helper.make_attribute("pads", (2, 2, 2, 2))])
    return model


PLANS = [
    pytest.param({"dsp": 40}, marks=pytest.mark.long),
    pytest.param({"dsp": 220, "macs_per_dsp": 2}, marks=pytest.mark.long),
    pytest.param({"template": "pyramid", "tile": (3, 4), "dsp": 60}, marks=pytest.mark.long),
    {"template": "pyramid", "tile": (4, 3), "overlap": "reload", "dsp": 200},
    pytest.param({"template": "pyramid", "tile": (5, 9), "overlap": "recompute", "dsp": 60}, marks=pytest.mark.long),
    {"groups": "node0-node1,node2", "in_turn": True},
]


@pytest.mark.long
@pytest.mark.parametrize("options", PLANS)
def test_three_layers(file, options):
    """Values as ONNX Runtime has them, cycles as the schedule says, and the plan as it was written."""
    model = hwgen.load(file)
    assert [layer.window.dilation for layer in model.network.layers] == [(2, 2), (3, 2), (2, 3)]
    design = model.plan("zedboard", multipliers="dsp", **options)
    assert write(read(design.to_json(), design.network, design.board)) == design.to_json()
    reference = padded(file)
    x = frames_for(reference, 3)
    np.testing.assert_array_equal(by_hwgen(onnx.load(file), x), by_onnxruntime(reference, x))
    result = design.simulate(x, simulator="amaranth")
    assert result.ok
    assert result.as_predicted


def test_explored(file, capsys):
    """What neighbouring windows share follows from what they cover: (K - 1) D + 1 pixels."""
    assert cli.main(["explore", str(file)]) == 0
    assert "node2" in capsys.readouterr().out
    first, second, third = shapes.load(file).layers
    assert reuse_words([first]) == 2 * (4 * 23 + 4 * 1)
    assert reuse_words([first, second]) == reuse_words([second]) + 2 * (4 * 23 + 4 * 1)
    assert reuse_words([second]) == 2 * (6 * 23 + (5 - 2) * 1)
    assert reuse_words([third]) == 2 * (2 * third.width + 3 * 1)


def test_not_blocked(file, capsys):
    """The loops of ``hwgen block`` have no gaps: refused, with the layer's name."""
    assert cli.main(["block", str(file), "--memory", "32KB"]) == 2
    assert "node0: loops over a window with dilation 2x2 can't be blocked, 1x1 can" in capsys.readouterr().err


def test_rows_of_a_dilated_window():
    """A line buffer holds all rows that a window covers."""
    (shape,) = (shape for shape in DILATED if shape.name == "dilated3x3-far")
    (layer,) = config_of(shape).layers
    assert layer.least_rows == 13
    assert 13 <= layer.window.rows <= ample_rows(network_of(shape).layers[0].window, 20, 2) == 2 * 13 + 1 + 12 + 1
