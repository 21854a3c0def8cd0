"""Builders of float models of built-in networks with branches, or with average pools and dense layers at the end.

Batch normalisations are folded. The four networks of MLPerf Tiny's closed division (Banbury et al., *MLPerf Tiny
Benchmark*, 2021) and larger ones for images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwgen.errors import ModelError
from hwgen.network.zoo import tables
from hwgen.network.zoo.tables import Shape

if TYPE_CHECKING:  # names are listed without them
    import onnx

    from hwgen.network.zoo.drawing import Drawing


@dataclass(frozen=True)
class Graph:
    """Entry of a built-in branching network: description, input shape, and function that adds its layers to a model.

    ``input`` is channels, height and width. ``draw`` adds all layers, and returns its outputs.
    """

    description: str
    input: Shape
    draw: Callable[[Drawing], str | tuple[str, ...]]


def _resnet8(net: Drawing) -> str:
    """Add the layers of ResNet-8 (He et al., 2016) to a float model, and return the output tensor's name.

    It has three stacks of one block.
    """
    here = net.conv("conv", "image", 16, 3)
    for stack, outputs in enumerate((16, 32, 64), start=1):
        here = _basic(net, f"stack{stack}", here, outputs, 1 if stack == 1 else 2)
    return net.dense("dense", net.average("pool", here), 10, relu=False)


def _basic(net: Drawing, name: str, source: str, outputs: int, stride: int) -> str:
    """Add a residual block of ResNet (two 3x3 convolutions and a shortcut); return the output tensor's name.

    The shortcut has a 1x1 convolution if the size changes.
    """
    here = net.conv(f"{name}_conv1", source, outputs, 3, stride)
    here = net.conv(f"{name}_conv2", here, outputs, 3, relu=None)
    short = source
    if stride != 1 or net.shape(source)[0] != outputs:
        short = net.conv(f"{name}_short", source, outputs, 1, stride, relu=None)
    return net.add(f"{name}_add", here, short, relu=True)


def _bottleneck(net: Drawing, name: str, source: str, outputs: int, stride: int) -> str:
    """Add a bottleneck block of ResNet (1x1, 3x3, 1x1, and a shortcut); return the output tensor's name."""
    here = net.conv(f"{name}_conv1", source, outputs // 4, 1)
    here = net.conv(f"{name}_conv2", here, outputs // 4, 3, stride, padding=1)
    here = net.conv(f"{name}_conv3", here, outputs, 1, relu=None)
    short = source
    if stride != 1 or net.shape(source)[0] != outputs:
        short = net.conv(f"{name}_short", source, outputs, 1, stride, padding=0, relu=None)
    return net.add(f"{name}_add", here, short, relu=True)


def _resnet(
    block: Callable[[Drawing, str, str, int, int], str], counts: tuple[int, ...], outputs: int
) -> Callable[[Drawing], str]:
    def draw(net: Drawing) -> str:
        here = net.max_pool("pool1", net.conv("conv1", "image", 64, 7, 2, padding=3), 3, 2, 1)
        for stage, count in enumerate(counts, start=2):
            for number in range(count):
                stride = 2 if stage > 2 and number == 0 else 1
                here = block(net, f"conv{stage}_{number + 1}", here, outputs << (stage - 2), stride)
        return net.dense("fc", net.average("pool5", here), 1000, relu=False)

    return draw


def _dscnn(net: Drawing) -> str:
    """Add the layers of the small DS-CNN (*Hello Edge*, 2017) to a float model; return its output's name."""
    here = net.conv("conv", "image", 64, (10, 4), 2)
    for number in range(1, 5):
        here = net.conv(f"depthwise{number}", here, 64, 3, depthwise=True)
        here = net.conv(f"pointwise{number}", here, 64, 1)
    return net.dense("dense", net.average("pool", here), 12, relu=False)


def _mobilenet_v1(width: float, classes: int) -> Callable[[Drawing], str]:
    """Return a function that adds MobileNetV1's layers to a float model, and returns the output tensor's name."""

    def draw(net: Drawing) -> str:
        here = net.conv("conv", "image", int(32 * width), 3, 2)
        pairs = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
        for number, (outputs, stride) in enumerate(pairs, start=1):
            here = net.conv(f"depthwise{number}", here, net.shape(here)[0], 3, stride, depthwise=True)
            here = net.conv(f"pointwise{number}", here, int(outputs * width), 1)
        return net.dense("dense", net.average("pool", here), classes, relu=False)

    return draw


def _mobilenet_v2(net: Drawing) -> str:
    """Add the layers of MobileNetV2 (Sandler et al., 2018), and return the output tensor's name.

    The stages are from table 2: expansion, outputs, count and stride.
    """
    here = net.conv("conv1", "image", 32, 3, 2, relu=6)
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for stage, (expansion, outputs, count, first) in enumerate(stages, start=1):
        for number in range(1, count + 1):
            here = _inverted(net, f"block{stage}_{number}", here, expansion, outputs, first if number == 1 else 1)
    here = net.conv("conv2", here, 1280, 1, relu=6)
    return net.dense("dense", net.average("pool", here), 1000, relu=False)


def _inverted(net: Drawing, name: str, source: str, expansion: int, outputs: int, stride: int) -> str:
    """Add a residual block of MobileNetV2 (expand, depthwise, project); return the output tensor's name.

    There is a shortcut only if the size stays.
    """
    channels, here = net.shape(source)[0], source
    if expansion > 1:
        here = net.conv(f"{name}_expand", here, expansion * channels, 1, relu=6)
    here = net.conv(f"{name}_depthwise", here, expansion * channels, 3, stride, depthwise=True, relu=6)
    here = net.conv(f"{name}_project", here, outputs, 1, relu=None)
    return net.add(f"{name}_add", here, source) if stride == 1 and channels == outputs else here


def _squeezenet(net: Drawing) -> str:
    """Add the layers of SqueezeNet 1.1 (Iandola et al., 2016), and return the output tensor's name."""
    here = net.max_pool("pool1", net.conv("conv1", "image", 64, 3, 2, padding=0), 3, 2)
    for number, (squeeze, expand) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)), start=2
    ):
        name = f"fire{number}"
        here = net.conv(f"{name}_squeeze", here, squeeze, 1)
        sides = [net.conv(f"{name}_expand{kernel}x{kernel}", here, expand, kernel) for kernel in (1, 3)]
        here = net.concat(f"{name}_concat", *sides)
        if number in (3, 5):
            here = net.max_pool(f"pool{number}", here, 3, 2)
    return net.average("pool10", net.conv("conv10", here, 1000, 1))


def _unet(net: Drawing) -> str:
    """Add the layers of a small U-Net (Ronneberger et al., 2015), and return the output tensor's name.

    It has three levels and a quarter of the channels, and is padded to keep sizes.
    """
    here, skipped = "image", []
    for level, outputs in enumerate((16, 32, 64, 128), start=1):
        for number in (1, 2):
            here = net.conv(f"down{level}_conv{number}", here, outputs, 3)
        if level < 4:
            skipped.append(here)
            here = net.max_pool(f"down{level}_pool", here, 2, 2)
    for level, outputs in ((3, 64), (2, 32), (1, 16)):
        here = net.conv(f"up{level}_conv0", net.upsample(f"up{level}", here, 2), outputs, 3)
        here = net.concat(f"up{level}_concat", skipped.pop(), here)
        for number in (1, 2):
            here = net.conv(f"up{level}_conv{number}", here, outputs, 3)
    return net.conv("classes", here, 2, 1, relu=None)


def _yolov3_tiny(net: Drawing) -> tuple[str, str]:
    """Add the layers of YOLOv3-tiny (Darknet's variant), and return a pair: the names of its two output tensors.

    It has Relu in place of LeakyRelu. The outputs are what its two detection layers take: 3 boxes of 85 values each,
    for a 32nd and a 16th of the input.
    """
    _, *size = net.shape("image")
    if any(length % 32 for length in size):
        raise ModelError(f"yolov3-tiny: rows and columns of its input must be multiples of 32, not {size[0]}x{size[1]}")
    here = earlier = "image"
    for number, outputs in enumerate((16, 32, 64, 128, 256), start=1):
        earlier = net.conv(f"conv{number}", here, outputs, 3)
        here = net.max_pool(f"pool{number}", earlier, 2, 2)
    here = net.max_pool("pool6", net.conv("conv6", here, 512, 3), 2, 1, padding=None)
    here = net.conv("conv7", here, 1024, 3)
    here = net.conv("conv8", here, 256, 1)
    coarse = net.conv("conv10", net.conv("conv9", here, 512, 3), 255, 1, relu=None)
    here = net.upsample("upsample", net.conv("conv11", here, 128, 1), 2)
    here = net.conv("conv12", net.concat("concat", here, earlier), 256, 3)
    return coarse, net.conv("conv13", here, 255, 1, relu=None)


def _autoencoder(net: Drawing) -> str:
    """Add the layers of ToyADMOS's autoencoder (Koizumi et al., 2019), and return the output tensor's name.

    They are fully connected.
    """
    here = "image"
    for number, outputs in enumerate((128, 128, 128, 128, 8, 128, 128, 128, 128), start=1):
        here = net.dense(f"dense{number}", here, outputs)
    return net.dense("dense10", here, 640, relu=False)


GRAPHS = {
    "resnet8": Graph(
        "ResNet-8 of MLPerf Tiny: 9 convolutions, 3 sums, 1 dense layer; 32x32x3 input", (3, 32, 32), _resnet8
    ),
    "dscnn": Graph(
        "DS-CNN of MLPerf Tiny: 9 convolutions, 4 of them depthwise, 1 dense layer; 49x10x1 input", (1, 49, 10), _dscnn
    ),
    "mobilenetv1-0.25": Graph(
        "MobileNetV1 of a quarter of its width, of MLPerf Tiny: 27 convolutions, 1 dense layer; 96x96x3 input",
        (3, 96, 96),
        _mobilenet_v1(0.25, 2),
    ),
    "autoencoder": Graph("the autoencoder of MLPerf Tiny: 10 dense layers; 640 features", (640, 1, 1), _autoencoder),
    "resnet18": Graph(
        "ResNet-18: 20 convolutions, 8 sums, 1 dense layer; 224x224x3 input",
        (3, 224, 224),
        _resnet(_basic, (2, 2, 2, 2), 64),
    ),
    "resnet50": Graph(
        "ResNet-50: 53 convolutions, 16 sums, 1 dense layer; 224x224x3 input",
        (3, 224, 224),
        _resnet(_bottleneck, (3, 4, 6, 3), 256),
    ),
    "mobilenetv1": Graph(
        "MobileNetV1: 27 convolutions, 1 dense layer; 224x224x3 input", (3, 224, 224), _mobilenet_v1(1, 1000)
    ),
    "mobilenetv2": Graph(
        "MobileNetV2: 52 convolutions, 10 sums, 1 dense layer; 224x224x3 input", (3, 224, 224), _mobilenet_v2
    ),
    "unet": Graph("U-Net of three levels: 18 convolutions, 3 concatenations; 128x128x3 input", (3, 128, 128), _unet),
    "yolov3-tiny": Graph(
        "YOLOv3-tiny with Relu in place of its leaky one: 13 convolutions, 2 outputs; 416x416x3 input",
        (3, 416, 416),
        _yolov3_tiny,
    ),
    "squeezenet": Graph(
        "SqueezeNet 1.1: 26 convolutions, 8 concatenations; 224x224x3 input", (3, 224, 224), _squeezenet
    ),
}


def model(name: str) -> tuple[onnx.ModelProto, Shape]:
    """Return, as a pair, the float ONNX model of the built-in network ``NAME[@HEIGHTxWIDTH]``, and its input's shape.

    The shape is (channels, height, width).

    Raises
    ------
    ModelError
        If the name is not formed like that, or the input is too small.
    """
    graph = GRAPHS[tables.base(name)]
    _, shape = tables.size(name, graph.input, prefix=False)
    if shape[1:] != graph.input[1:] and graph.input[1:] == (1, 1):
        raise ModelError(f"{name}: its input has {graph.input[0]} features, and no size")
    from hwgen.network.zoo.drawing import Drawing

    drawing = Drawing(tables.base(name), shape, flat=graph.input[1:] == (1, 1))
    outputs = graph.draw(drawing)
    return drawing.model(*((outputs,) if isinstance(outputs, str) else outputs)), shape
