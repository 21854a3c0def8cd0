"""Layer tables of built-in chain networks: operator, outputs, kernel, stride, padding and groups, as published.

`hwgen.network.shapes` makes shapes of the tables, `hwgen.network.zoo.builtin` networks with weights.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hwgen.errors import ModelError
from hwgen.network.maps import Window
from hwgen.network.ops import Conv, MaxPool, Op

Shape = tuple[int, int, int]
"""Type of an input map's shape: channels, height, width."""


@dataclass(frozen=True)
class Spec:
    """Row of a built-in network's layer table: name, operator and sizes of one layer.

    Parameters
    ----------
    name : str
        Name of the layer, unique in the network.
    op : type of Op
        Operator of the layer.
    outputs : int
        Number of output channels; 0 for a pool, which keeps its channels.
    kernel, stride, padding : int
        Kernel and stride of both axes, and padding of all four sides, in pixels.
    groups : int
        Number of groups of channels (convolutions).
    relu : bool
        Whether a Relu follows (layers with weights).
    dense : bool
        Whether the layer is fully connected: its kernel is the whole map.
    """

    name: str
    op: type[Op]
    outputs: int = 0
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1
    relu: bool = True
    dense: bool = False

    def window(self, height: int, width: int) -> Window:
        """Return the layer's sliding `Window` over a map of this height and width."""
        if self.dense:
            return Window(kernel=(height, width))
        kernel, stride, pad = self.kernel, self.stride, self.padding
        return Window(kernel=(kernel, kernel), stride=(stride, stride), padding=(pad, pad, pad, pad))


@dataclass(frozen=True)
class LayerTable:
    """Description of a built-in chain network: title, input shape, and table rows of its layers.

    ``input`` is channels, height and width.

    ``classifier`` has the fully connected layers that follow. `shapes.load` can include them; networks with weights
    never have them.
    """

    description: str
    input: tuple[int, int, int]
    layers: tuple[Spec, ...]
    classifier: tuple[Spec, ...] = ()


def _conv(name: str, outputs: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1) -> Spec:
    return Spec(name, Conv, outputs, kernel, stride, padding, groups)


def _pool(name: str, kernel: int = 2, stride: int = 2, padding: int = 0) -> Spec:
    return Spec(name, MaxPool, 0, kernel, stride, padding)


def _dense(name: str, outputs: int, *, relu: bool = True) -> Spec:
    return Spec(name, Conv, outputs, relu=relu, dense=True)


CLASSIFIER = (_dense("fc6", 4096), _dense("fc7", 4096), _dense("fc8", 1000, relu=False))
"""Tuple of the `Spec` of each fully connected layer at the end of AlexNet, ZFNet and VGG."""


def _vgg(*blocks: int) -> tuple[Spec, ...]:
    """Return a tuple: VGG's layer table for the given numbers of 3x3 convolutions per block (Simonyan, 2015).

    See their table 1.
    """
    layers = []
    for block, (count, outputs) in enumerate(zip(blocks, (64, 128, 256, 512, 512), strict=True), start=1):
        layers += [_conv(f"conv{block}_{index}", outputs, 3, padding=1) for index in range(1, count + 1)]
        layers.append(_pool(f"pool{block}"))
    return tuple(layers)


def _alexnet(sets: int) -> tuple[Spec, ...]:
    """Return a tuple: AlexNet's layer table, whole with ``sets`` 2 (grouped), or one GPU's half with 1."""
    half = 2 // sets
    groups = sets
    return (
        _conv("conv1", 96 // half, 11, stride=4),
        _pool("pool1", 3),
        _conv("conv2", 256 // half, 5, padding=2, groups=groups),
        _pool("pool2", 3),
        _conv("conv3", 384 // half, 3, padding=1),
        _conv("conv4", 384 // half, 3, padding=1, groups=groups),
        _conv("conv5", 256 // half, 3, padding=1, groups=groups),
        _pool("pool5", 3),
    )


TABLES = {
    "decoilfnet-example": LayerTable(
        "DeCoILFNet's test example: 2 convolutions of 3 filters, 1 pool; 5x5x3 input",
        (3, 5, 5),
        (_conv("conv1", 3, 3, padding=1), _conv("conv2", 3, 3, padding=1), _pool("pool1")),
    ),
    "lenet5": LayerTable(
        "LeNet-5 with max pools and Relu: 2 convolutions, 2 pools, 3 dense layers; 32x32x1 input",
        (1, 32, 32),
        (
            _conv("conv1", 6, 5),
            _pool("pool1"),
            _conv("conv2", 16, 5),
            _pool("pool2"),
            _dense("fc1", 120),
            _dense("fc2", 84),
            _dense("fc3", 10, relu=False),
        ),
    ),
    "alexnet": LayerTable(
        "AlexNet, both sets: 5 convolutions, 3 pools; 227x227x3 input", (3, 227, 227), _alexnet(2), CLASSIFIER
    ),
    "alexnet-set": LayerTable(
        "AlexNet's first two convolutions and pools, one of the two sets; 227x227x3 input",
        (3, 227, 227),
        _alexnet(1)[:4],
    ),
    "vgg11": LayerTable(
        "VGG-11 (A): 8 convolutions, 5 pools; 224x224x3 input", (3, 224, 224), _vgg(1, 1, 2, 2, 2), CLASSIFIER
    ),
    "vgg16": LayerTable(
        "VGG-16 (D): 13 convolutions, 5 pools; 224x224x3 input", (3, 224, 224), _vgg(2, 2, 3, 3, 3), CLASSIFIER
    ),
    "vgg16-dense": LayerTable(
        "VGG-16 (D) with its dense layers: 13 convolutions, 5 pools, 3 dense layers; 224x224x3 input",
        (3, 224, 224),
        (*_vgg(2, 2, 3, 3, 3), *CLASSIFIER),
    ),
    "vgg19": LayerTable(
        "VGG-19 (E): 16 convolutions, 5 pools; 224x224x3 input", (3, 224, 224), _vgg(2, 2, 4, 4, 4), CLASSIFIER
    ),
    "zfnet": LayerTable(
        "ZFNet: 5 convolutions, 3 pools; 224x224x3 input",
        (3, 224, 224),
        (
            _conv("conv1", 96, 7, stride=2, padding=1),
            _pool("pool1", 3, padding=1),
            _conv("conv2", 256, 5, stride=2),
            _pool("pool2", 3, padding=1),
            _conv("conv3", 384, 3, padding=1),
            _conv("conv4", 384, 3, padding=1),
            _conv("conv5", 256, 3, padding=1),
            _pool("pool5", 3),
        ),
        CLASSIFIER,
    ),
    "decoilfnet-four": LayerTable(
        "DeCoILFNet's own network (Table III): 4 convolutions of 64 filters; 224x224x3 input",
        (3, 224, 224),
        tuple(_conv(f"conv1_{index}", 64, 3, padding=1) for index in range(1, 5)),
    ),
    "flownets": LayerTable(
        "FlowNetS, contracting part: 10 convolutions; 384x512x6 input",
        (6, 384, 512),
        (
            _conv("conv1", 64, 7, 2, 3),
            _conv("conv2", 128, 5, 2, 2),
            _conv("conv3", 256, 5, 2, 2),
            _conv("conv3_1", 256, 3, 1, 1),
            _conv("conv4", 512, 3, 2, 1),
            _conv("conv4_1", 512, 3, 1, 1),
            _conv("conv5", 512, 3, 2, 1),
            _conv("conv5_1", 512, 3, 1, 1),
            _conv("conv6", 1024, 3, 2, 1),
            _conv("conv6_1", 1024, 3, 1, 1),
        ),
    ),
    "speed-sign": LayerTable(
        "Peemen's speed-sign network: 3 convolutions (the second with all connections); 720x1280x1 input",
        (1, 720, 1280),
        (_conv("conv1", 6, 6, 2), _conv("conv2", 16, 6, 2), _conv("conv3", 80, 5, groups=2)),
    ),
}


def base(name: str) -> str:
    """Return a built-in network's base name: without number of layers, image size and bits, such as ``vgg16``."""
    return re.split("[:@,]", name, maxsplit=1)[0]


def precision(name: str) -> tuple[str, int]:
    """Split a built-in network's name at ``,int8`` or ``,int16``; return a pair: the part before it, and 8 or 16.

    Raises
    ------
    ModelError
        If something else follows the comma.
    """
    plain, comma, suffix = name.partition(",")
    bits = {"": 8, "int8": 8, "int16": 16}.get(suffix)
    if bits is None or (comma and not suffix):
        raise ModelError(f"{name}: what follows the comma must be int8 or int16, not {suffix!r}")
    return plain, bits


def size(name: str, shape: tuple[int, int, int], *, prefix: bool = True) -> tuple[int | None, tuple[int, int, int]]:
    """Parse ``NAME[:LAYERS][@HEIGHTxWIDTH]``; return a pair: number of layers (or ``None``) and input shape.

    ``shape`` is the input that is meant without a size; ``prefix``: whether a number of layers can be asked for.

    Raises
    ------
    ModelError
        If the name is not formed like that.
    """
    plain = base(name)
    scaled, _ = precision(name)
    match = re.fullmatch(r"(?::(\d{1,9}))?(?:@(\d{1,9})x(\d{1,9}))?", scaled[len(plain) :])
    if not match or (match[1] and not prefix):
        form = "NAME[:LAYERS][@HEIGHTxWIDTH][,int16]" if prefix else "NAME[@HEIGHTxWIDTH]"
        example = f"{plain}:2@64x64" if prefix else f"{plain}@64x64"
        raise ModelError(f"{name}: a built-in name must be {form}, as in {example}")
    count, height, width = (None if group is None else int(group) for group in match.groups())
    channels, rows, columns = shape
    return count, (channels, rows if height is None else height, columns if width is None else width)


def find(name: str, *, classifier: bool = False) -> tuple[tuple[Spec, ...], tuple[int, int, int]]:
    """Return a pair: `Spec` rows and input shape of the built-in chain ``NAME[:LAYERS][@HEIGHTxWIDTH][,int8|int16]``.

    With ``classifier``, the layers include the classifier.

    Raises
    ------
    ModelError
        If the name is not formed like that, or there are not so many layers.
    """
    plain = base(name)
    table = TABLES[plain]
    count, shape = size(name, table.input)
    layers = table.layers + (table.classifier if classifier else ())
    if count is not None and not 1 <= count <= len(layers):
        raise ModelError(f"{name}: {plain} has {len(layers)} layers; a prefix must be 1 to that, not {count}")
    return layers[:count], shape


def unknown(name: str, known: Iterable[str]) -> ModelError:
    """Return the `ModelError` for a name that is neither a file nor one of the ``known`` built-in networks."""
    if name and Path(name).exists():
        hint = "this is a folder; " if Path(name).is_dir() else ""
        return ModelError(f"{name}: {hint}a model must be an .onnx file or a built-in network's name")
    known = tuple(known)
    near = difflib.get_close_matches(base(name).lower(), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return ModelError(f"unknown model {name!r}: neither an .onnx file nor a built-in network; {hint}")
