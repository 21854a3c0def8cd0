"""Networks as shapes: tables, ONNX files, the onnx package's light models, integer networks."""

from math import prod
from pathlib import Path

import onnx
import pytest
from chains import conv, pool
from onnx import TensorProto, helper
from refusals import refusals_in

from hwgen import network
from hwgen.blocking.problem import Problem
from hwgen.errors import ConfigError, InputError, ModelError, PlanError
from hwgen.network import shapes
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.network.onnx import model_shapes
from hwgen.network.ops import KINDS

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


def named(loaded):
    """Names and shapes of all layers."""
    return [(layer.name, layer.geometry) for layer in loaded.layers]


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        # channels, rows, columns of every layer's output, from the papers
        ("alexnet", [(96, 55), (96, 27), (256, 27), (256, 13), (384, 13), (384, 13), (256, 13), (256, 6)]),
        ("alexnet-set", [(48, 55), (48, 27), (128, 27), (128, 13)]),
        ("zfnet", [(96, 110), (96, 55), (256, 26), (256, 13), (384, 13), (384, 13), (256, 13), (256, 6)]),
        ("decoilfnet-four", [(64, 224)] * 4),
        ("vgg11:4", [(64, 224), (64, 112), (128, 112), (128, 56)]),
    ],
)
def test_tables(name, outputs):
    layers = shapes.load(name).layers
    assert [(layer.outputs, layer.output_height) for layer in layers] == outputs
    assert all(layer.output_height == layer.output_width for layer in layers)


def test_oblong_tables():
    sizes = [(layer.outputs, layer.output_height, layer.output_width) for layer in shapes.load("speed-sign").layers]
    assert sizes == [(6, 358, 638), (16, 177, 317), (80, 173, 313)]
    sizes = [(layer.outputs, layer.output_height, layer.output_width) for layer in shapes.load("flownets").layers]
    assert sizes[:4] == [(64, 192, 256), (128, 96, 128), (256, 48, 64), (256, 48, 64)]
    assert sizes[-1] == (1024, 6, 8)


@pytest.mark.parametrize(
    ("name", "macs", "weights", "layers"),
    [
        ("vgg16", 15_346_630_656, 14_710_464, 18),
        ("vgg19", 19_508_428_800, 20_018_880, 21),
        ("alexnet", 665_784_864, 2_332_704, 8),
        ("decoilfnet-four", 5_635_768_320, 112_320, 4),
        ("flownets", 12_073_304_064, 24_045_952, 10),
    ],
)
def test_work(name, macs, weights, layers):
    loaded = shapes.load(name)
    assert (loaded.macs, loaded.weight_count, len(loaded.layers)) == (macs, weights, layers)


def test_alexnets_macs_layer_by_layer():
    macs = [layer.macs for layer in shapes.load("alexnet").layers if layer.kind == "conv"]
    assert macs == [105_415_200, 223_948_800, 149_520_384, 112_140_288, 74_760_192]


def test_prefix_and_size():
    small = shapes.load("vgg16:7@64x48")
    assert small.name == "vgg16:7@64x48"
    assert len(small.layers) == 7
    assert (small.layers[-1].output_height, small.layers[-1].output_width) == (16, 12)
    assert named(shapes.load("vgg19").first(11)) == named(shapes.load("vgg19:11"))


def test_a_built_in_network_with_weights_has_the_same_shape():
    assert network.load("vgg16:3@16x16").before_dense().geometry == shapes.load("vgg16:3@16x16").geometry


def test_a_network_ends_at_its_first_fully_connected_layer():
    lenet = shapes.load("lenet5")
    assert [layer.name for layer in lenet.layers] == ["conv1", "pool1", "conv2", "pool2"]
    assert lenet.left_out == ("fc1 and what follows: fully connected",)


@pytest.mark.parametrize(
    ("name", "weights", "count"),  # Simonyan and Zisserman, table 2, without biases; Krizhevsky et al., 60 million
    [("vgg16", 138_344_128, 21), ("vgg19", 143_652_544, 24), ("alexnet", 60_954_656, 11), ("lenet5", 61_470, 7)],
)
def test_fully_connected_layers_if_asked_for(name, weights, count):
    loaded = shapes.load(name, dense=True)
    assert (loaded.weight_count, len(loaded.layers), loaded.left_out) == (weights, count, ())
    assert loaded.layers[-1].dense
    if name == "vgg16":
        assert named(shapes.load("vgg16-dense", dense=True)) == named(loaded)
    assert named(shapes.load(f"{name}:{count}", dense=True)) == named(loaded)
    with pytest.raises(ModelError, match=f"has {count} layers"):
        shapes.load(f"{name}:{count + 1}", dense=True)


def test_fully_connected_layers_of_onnx_files_if_asked_for():
    assert shapes.load("light_vgg19", dense=True).geometry[:-1] == shapes.load("vgg19", dense=True).geometry[:-1]
    digits = shapes.load(str(DIGITS), dense=True)
    assert digits.left_out == ()
    built = network.load(DIGITS).layers
    assert [(layer.outputs, layer.weight_count) for layer in digits.layers] == [
        (layer.outputs, layer.weight_count) for layer in built
    ]


@pytest.mark.parametrize(
    ("node", "outputs"),
    [
        (helper.make_node("Gemm", ["f", "w"], ["y"]), 10),
        (helper.make_node("MatMul", ["f", "w"], ["y"]), 10),
        (helper.make_node("Gemm", ["f", "v"], ["y"], transB=1), 10),
        # the map on the other side, an operator of somebody else's, too few inputs, no output
        (helper.make_node("Gemm", ["v", "f"], ["y"], transB=1), None),
        (helper.make_node("Gemm", ["f", "w"], ["y"], domain="my.own"), None),
        (helper.make_node("QGemm", ["f", "w"], ["y"], domain="com.microsoft"), None),
        (helper.make_node("Gemm", ["f", "none"], ["y"]), None),
    ],
)
def test_what_is_a_fully_connected_layer(tmp_path, node, outputs):
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Flatten", ["c"], ["f"]),
        node,
    ]
    weights = [("k", [3, 2, 9, 9]), ("w", [48, 10]), ("v", [10, 48]), ("none", [48, 0])]
    path = save(tmp_path / "m.onnx", nodes, weights=weights, output=("n", "c"))
    found = [layer.outputs for layer in shapes.load(path, dense=True).layers]
    assert found == [3] if outputs is None else [3, outputs]


def test_an_onnx_file():
    digits = shapes.load(str(DIGITS))
    assert [layer.name for layer in digits.layers] == ["conv1", "conv2", "pool1", "conv3", "pool2"]
    assert digits.left_out == ("Flatten flatten and what follows",)
    assert digits.geometry == network.load(DIGITS).before_dense().geometry


# The light models.


def test_light_models_equal_the_tables():
    assert shapes.load("light_vgg19").geometry == shapes.load("vgg19").geometry
    light = shapes.load("light_bvlc_alexnet")
    assert [layer.groups for layer in light.layers if layer.kind == "conv"] == [1, 2, 1, 2, 2]
    assert light.layers[0].name == "conv1"
    assert light.left_out[0] == "LRN n2, LRN n6: planned as if free"
    assert light.left_out[1] == "Reshape n15 and what follows"
    assert light.weight_count == shapes.load("alexnet").weight_count


@pytest.mark.parametrize("name", model_shapes.light_names())
def test_every_light_model_has_a_linear_part(name):
    loaded = shapes.load(name)
    assert loaded.layers[0].channels == 3
    assert loaded.left_out


def test_parts_of_a_residual_network():
    first, second = shapes.load("light_resnet50"), shapes.load("light_resnet50:part2")
    assert [layer.kind for layer in first.layers] == ["conv", "maxpool"]
    assert any(text.startswith("a fork after MaxPool n3 into Conv n4, Conv") for text in first.left_out)
    assert [(layer.channels, layer.outputs, layer.window.kernel) for layer in second.layers] == [
        (64, 64, (1, 1)),
        (64, 64, (3, 3)),
        (64, 256, (1, 1)),
    ]
    assert any("joins 2 branches" in text for text in second.left_out)
    assert second.left_out[-1] == "21 other linear parts with 52 convolutions and pools"


# Models made here.


def save(path, nodes, shape=("n", 2, 12, 12), weights=(), output=("n", "c", "p", "q")):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, list(output))],
        [helper.make_tensor(name, TensorProto.FLOAT, dims, [0.0] * prod(dims)) for name, dims in weights],
    )
    domains = {node.domain for node in nodes} - {""}
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 8
    onnx.save(model, path)
    return str(path)


def node(op, source, target, *others, **attributes):
    return helper.make_node(op, [source, *others], [target], name=target, **attributes)


def test_pads_that_the_model_leaves_open(tmp_path):
    path = save(
        tmp_path / "m.onnx",
        [
            node("Conv", "x", "same", "w", auto_pad="SAME_LOWER", strides=[2, 2]),
            node("MaxPool", "same", "up", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
            node("Conv", "up", "valid", "v", auto_pad="VALID"),
        ],
        shape=("n", 2, 13, 12),
        weights=[("w", [4, 2, 4, 4]), ("v", [2, 4, 2, 3])],
    )
    same, up, valid = shapes.load(path).layers
    assert same.window.padding == (2, 1, 1, 1)  # 13 -> 7: 3 in all; 12 -> 6: 2 in all
    assert (same.output_height, same.output_width) == (7, 6)
    assert (up.output_height, up.output_width) == (3, 3)
    assert up.window.padding == (0, 0, 0, 1)
    assert valid.window == Window(kernel=(2, 3))


def test_dilation(tmp_path):
    nodes = [
        node("Conv", "x", "a", "w", dilations=[2, 3]),
        node("MaxPool", "a", "b", kernel_shape=[2, 1], dilations=[4, 4]),
    ]
    first, second = shapes.load(save(tmp_path / "m.onnx", nodes, weights=[("w", [2, 2, 3, 3])])).layers
    assert first.window == Window(kernel=(3, 3), dilation=(2, 3))
    assert (first.output_height, first.output_width) == (8, 6)  # of 12 x 12, under windows of 5 x 7
    assert second.window == Window(kernel=(2, 1), dilation=(4, 1))
    assert (second.output_height, second.output_width) == (4, 6)
    assert shapes.min_size([first.window, second.window]) == (9, 7)
    with pytest.raises(PlanError, match="a: loops over a window with dilation 2x3 can't be blocked, 1x1 can"):
        Problem.of(first)


def test_a_window_that_would_start_behind_the_map(tmp_path):
    # 5 rows, padded to 7: windows at 0, 3 and, rounded up, 6, which is padding
    pool = node("MaxPool", "x", "a", kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1)
    (layer,) = shapes.load(save(tmp_path / "m.onnx", [pool], shape=("n", 2, 5, 5))).layers
    assert (layer.output_height, layer.output_width) == (2, 2)


def test_average_pools(tmp_path):
    """A window by its attributes; for the global one the whole map."""
    nodes = [
        node("Conv", "x", "a", "w"),
        node("AveragePool", "a", "b", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], count_include_pad=1),
        node("GlobalAveragePool", "b", "c"),
    ]
    loaded = shapes.load(save(tmp_path / "m.onnx", nodes, weights=[("w", [2, 2, 3, 3])]))
    assert not loaded.left_out
    _, pool, whole = loaded.layers
    assert (pool.kind, whole.kind) == ("averagepool", "globalaveragepool")
    assert pool.window == Window(kernel=(3, 2), stride=(2, 2), padding=(1, 0, 0, 0))
    assert whole.window.kernel == pool.output.shape[1:]
    assert whole.output.shape == (2, 1, 1)


@pytest.mark.parametrize(
    ("nodes", "left_out"),
    [
        ([node("Conv", "x", "a", "w"), node("Sigmoid", "a", "b"), node("LpPool", "b", "c", kernel_shape=[2, 2])],
         ("Sigmoid b: planned as if free", "LpPool c and what follows")),
        ([node("Conv", "x", "a", "w"), node("Relu", "a", "b"), node("Add", "a", "c", "b")],
         ("a fork after Conv a into Relu b, Add c",)),
        ([node("Conv", "x", "a", "w"), node("Conv", "a", "b", "full"), node("Relu", "b", "c")],
         ("b and what follows: fully connected",)),
    ],
)  # fmt: skip
def test_what_is_left_out_is_named(tmp_path, nodes, left_out):
    weights = [("w", [2, 2, 3, 3]), ("v", [2, 2, 3, 3]), ("full", [5, 2, 10, 10])]
    loaded = shapes.load(save(tmp_path / "m.onnx", nodes, weights=weights))
    assert [layer.name for layer in loaded.layers] == ["a"]
    assert loaded.left_out == left_out


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", "x", "a")], "no convolution or pool to plan"),
        ([node("Conv", "x", "a", "full")], "no convolution or pool to plan: the first layer is fully connected"),
    ],
)
def test_models_with_nothing_to_plan(tmp_path, nodes, message):
    with pytest.raises(ModelError, match=message):
        shapes.load(save(tmp_path / "m.onnx", nodes, weights=[("full", [5, 2, 12, 12])]))


def test_sizes_that_the_model_leaves_open(tmp_path):
    path = save(tmp_path / "m.onnx", [node("Conv", "x", "a", "w")], ("n", 2, "h", "w"), [("w", [2, 2, 3, 3])])
    with pytest.raises(
        ModelError, match=r"no convolution or pool to plan; Conv a: its input's shape \(0, 2, 0, 0\) is not"
    ):
        shapes.load(path)


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="not an ONNX file"):
        shapes.load(str(tmp_path / "m.onnx"))
    path = save(tmp_path / "n.onnx", [node("Conv", "x", "a")])  # without weights
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        shapes.load(path)


@pytest.mark.parametrize(("name", "message"), refusals_in("shapes_names_that_make_no_sense.txt"))
def test_names_that_make_no_sense(name, message):
    with pytest.raises(ModelError, match=message):
        shapes.load(name)


def test_the_first_so_many_layers():
    loaded = shapes.load("vgg16")
    assert loaded.first(18) == loaded
    for count in (0, -1, 19):
        with pytest.raises(InputError, match=f"vgg16 has 18 layers; the first must be 1 to that, not {count}"):
            loaded.first(count)


def layer(**changes):
    values = {"name": "a", "channels": 2, "outputs": 4, "height": 5, "width": 5}
    values |= {"window": Window(kernel=(3, 3))} | changes
    return KINDS[values.pop("kind", "conv")].shaped(**values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": 0}, "a: channels, outputs, height, width and groups must be positive, not 0, 4, 5, 5 and 1"),
        ({"groups": 3}, "a: 2 input and 4 output channels must be multiples of 3 groups"),
        ({"kind": "maxpool"}, "a: a pool must keep its 2 channels, not give 4"),
        ({"height": 2}, "a: a 2 x 5 map is too small for its 3x3 window"),
    ],
)
def test_layers_that_contradict_themselves(changes, message):
    with pytest.raises(ConfigError) as refused:
        layer(**changes)
    assert str(refused.value) == message


def test_layers_must_follow_each_other():
    with pytest.raises(ConfigError, match="n: b must take a's"):
        Network(name="n", layers=(conv("a", 1, 2, 8), pool("b", 2, 8)))
    with pytest.raises(ConfigError, match="n: a network must have at least one layer, not 0"):
        Network(name="n", layers=())


def test_names_have_descriptions():
    listed = dict(shapes.names())
    assert {"alexnet", "vgg16", "vgg19", "zfnet", "decoilfnet-four", "flownets", "speed-sign", "light_vgg19"} <= set(
        listed
    )
    assert all(listed.values())
