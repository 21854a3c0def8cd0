"""Builder of float ONNX models, layer by layer, with seeded random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hwgen.errors import ModelError
from hwgen.network.maps import Window
from hwgen.network.ops import Op
from hwgen.network.zoo.tables import Shape

SEED = 20180600


class Drawing:
    """Builder of a float ONNX model, layer by layer, with He-normal random weights and small normal biases.

    Each layer has its own seed.

    A method adds a layer. It takes the name of its input tensor, and returns the name of its output tensor.

    Parameters
    ----------
    name : str
        Name of the model.
    shape : tuple of int
        Channels, height and width of the input.
    flat : bool
        Whether the input is a vector of features, with one row and one column.
    """

    def __init__(self, name: str, shape: Shape, *, flat: bool = False):
        self._name, self._nodes = name, list[onnx.NodeProto]()
        self._model = onnx.ModelProto()  # parameters can take a gigabyte, so that they are stored once
        self._shapes = {"image": shape}
        self._input = shape
        self._flat: set[str] = set()
        if flat:
            self._flat.add("image")

    def shape(self, tensor: str) -> Shape:
        """Return channels, height and width of a tensor in the model being built."""
        return self._shapes[tensor]

    def conv(
        self,
        name: str,
        source: str,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        *,
        padding: int | None = None,
        depthwise: bool = False,
        groups: int = 1,
        relu: float | None = np.inf,
    ) -> str:
        """Add to the model a convolution, followed by a Relu, and return the output tensor's name.

        Parameters
        ----------
        padding : int, optional
            Padding of all four sides. By default, the output has ``ceil(size / stride)`` rows and columns.
        groups : int
            Number of groups of channels; a depthwise convolution has one for each channel.
        relu : float, optional
            Upper bound of the Relu; no Relu with ``None``.
        """
        channels, *size = self._shapes[source]
        kernels = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = _same_padding(size, kernels, stride) if padding is None else (padding, padding, padding, padding)
        groups = channels if depthwise else groups
        weights = self._weights(name, (outputs, channels // groups, *kernels))
        window = Window(kernel=kernels, stride=(stride, stride), padding=pads)
        made = self._windowed("Conv", name, [source, *weights], window, outputs, group=groups)
        return made if relu is None else self._relu(name, made, relu)

    def layer(self, layer: Op, source: str, seed: int, *, relu: bool) -> str:
        """Add to the model a convolution with a Relu, or a pool, as ``layer`` has them; return the output's name.

        ``seed``: seed of the weights.
        """
        if not layer.weight_count:
            return self._windowed(layer.operators[0], layer.name, [source], layer.window, layer.outputs)
        shape = (layer.outputs, layer.channels // layer.groups, *layer.window.kernel)
        operands = [source, *self._weights(layer.name, shape, seed)]
        made = self._windowed("Conv", layer.name, operands, layer.window, layer.outputs, group=layer.groups)
        return self._relu(layer.name, made, np.inf) if relu else made

    def dense(
        self, name: str, source: str, outputs: int, *, relu: bool = True, seed: int | None = None, flatten: str = ""
    ) -> str:
        """Add a fully connected layer, with a Relu unless ``relu`` is false; return the output tensor's name.

        ``flatten``: name of a Flatten before it. ``seed``: seed of the weights.
        """
        channels, rows, columns = self._shapes[source]
        if source not in self._flat:
            made = flatten or f"{name}_flatten"
            source = self._add("Flatten", made, [source], (channels * rows * columns, 1, 1))
            self._flat.add(source)
        weights = self._weights(name, (outputs, channels * rows * columns), seed)
        made = self._add("Gemm", name, [source, *weights], (outputs, 1, 1), transB=1)
        self._flat.add(made)
        if relu:
            made = self._relu(name, made, np.inf)
            self._flat.add(made)
        return made

    def add(self, name: str, *sources: str, relu: bool = False) -> str:
        """Add to the model a layer that sums several maps, and return the output tensor's name."""
        made = self._add("Add", name, list(sources), self._shapes[sources[0]])
        return self._relu(name, made, np.inf) if relu else made

    def concat(self, name: str, *sources: str) -> str:
        """Add to the model a layer that concatenates maps along the channels, and return the output tensor's name."""
        channels = sum(self._shapes[source][0] for source in sources)
        return self._add("Concat", name, list(sources), (channels, *self._shapes[sources[0]][1:]), axis=1)

    def multiply(self, name: str, *sources: str) -> str:
        """Add to the model a layer that multiplies two maps, and return the output tensor's name.

        The second map can have one pixel for all pixels of the first map.
        """
        return self._add("Mul", name, list(sources), self._shapes[sources[0]])

    def upsample(self, name: str, source: str, factor: int) -> str:
        """Add to the model a layer that repeats rows and columns ``factor`` times; return the output tensor's name."""
        channels, rows, columns = self._shapes[source]
        scales = self._parameter(f"{name}_scales", np.array([1, 1, factor, factor]))
        attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        shape = (channels, rows * factor, columns * factor)
        return self._add("Resize", name, [source, "", scales], shape, **attributes)

    def max_pool(self, name: str, source: str, kernel: int, stride: int, padding: int | None = 0) -> str:
        """Add a maximum pool to the model, and return the output tensor's name. ``padding`` is as for `conv`."""
        channels, *size = self._shapes[source]
        pads = (
            _same_padding(size, (kernel, kernel), stride) if padding is None else (padding, padding, padding, padding)
        )
        window = Window(kernel=(kernel, kernel), stride=(stride, stride), padding=pads)
        return self._windowed("MaxPool", name, [source], window, channels)

    def average(self, name: str, source: str) -> str:
        """Add a global average pool to the model, and return the output tensor's name."""
        return self._add("GlobalAveragePool", name, [source], (self._shapes[source][0], 1, 1))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the finished ONNX model with the given output tensors."""

        def tensor(name: str) -> onnx.ValueInfoProto:
            channels, *size = self._shapes[name]
            dims: list[str | int] = ["batch", channels, *([] if name in self._flat else size)]
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

        ends = [tensor(output) for output in outputs]
        graph = helper.make_graph(self._nodes, self._name, [tensor("image")], ends)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name="hwgen")
        model.ir_version = 10
        self._model.MergeFrom(model)
        return self._model

    def _windowed(
        self, operator: str, name: str, inputs: list[str], window: Window, outputs: int, **attributes: Any
    ) -> str:
        shape = (outputs, *window.output_size(*self._shapes[inputs[0]][1:]))
        attributes |= {"kernel_shape": window.kernel, "strides": window.stride, "pads": window.padding}
        return self._add(operator, name, inputs, shape, **attributes)

    def _relu(self, name: str, source: str, bound: float) -> str:
        if np.isinf(bound):
            return self._add("Relu", f"{name}_relu", [source], self._shapes[source])
        ends = [self._parameter(f"{name}_{end}", np.array(value)) for end, value in (("least", 0), ("most", bound))]
        return self._add("Clip", f"{name}_clip", [source, *ends], self._shapes[source])

    def _weights(self, name: str, shape: tuple[int, ...], seed: int | None = None) -> list[str]:
        random = np.random.default_rng([SEED, len(self._model.graph.initializer) if seed is None else seed])
        inputs = int(np.prod(shape[1:]))
        weights = np.empty((shape[0], inputs), np.float32)
        for row in weights:  # float64 numbers would take twice the memory
            row[:] = random.normal(0, np.sqrt(2 / inputs), inputs)
        bias = random.normal(0, 0.1, shape[0])
        return [self._parameter(f"{name}_weight", weights.reshape(shape)), self._parameter(f"{name}_bias", bias)]

    def _parameter(self, label: str, values: np.ndarray) -> str:
        self._model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32, copy=False), label))
        return label

    def _add(self, operator: str, name: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        made = f"{name}_out"
        self._nodes.append(helper.make_node(operator, inputs, [made], name=name, **attributes))
        if min(shape) < 1:
            raise ModelError(f"{self._name}: its input of {self._input[1]}x{self._input[2]} is too small for {name}")
        self._shapes[made] = shape
        return made


def _same_padding(size: list[int], kernel: tuple[int, int], stride: int) -> tuple[int, int, int, int]:
    """Return four numbers of padding pixels (top, left, bottom, right) for ``ceil(size / stride)`` outputs."""
    whole = [max((-(-length // stride) - 1) * stride + k - length, 0) for length, k in zip(size, kernel, strict=True)]
    top, left = (total // 2 for total in whole)
    return top, left, whole[0] - top, whole[1] - left
