"""Quantisation of large fully connected layers, some output channels at a time, to save memory.

ONNX Runtime's quantiser holds a model's float weights several times over: 494 MB of vgg16-dense's become 2.9 GB. But a
fully connected layer has a scale for each output channel, so its output channels can be quantised apart from each
other. Here the quantiser sees the whole network with layers of two output channels in place of the large ones, and the
large ones as models of their own, of `_WEIGHTS_AT_ONCE` weights each. Every integer and every scale is the one that the
quantiser computes for the whole network at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hwgen.network.quantise import Ranges, quantise, run
from hwgen.network.zoo.drawing import SEED

#: Number of weights beyond which the fully connected layers of a network are quantised in slices.
MANY_WEIGHTS = 1 << 25

#: Number of output channels of a layer that stands in for a large one. The quantiser treats one channel differently.
SMALL = 2

_WEIGHTS_AT_ONCE = 1 << 23

#: Number that divides the output channels of a slice, so that ONNX Runtime adds products in the same order.
_ALIGNED_OUTPUTS = 128


@dataclass(frozen=True)
class DenseLayer:
    """Fully connected layer of a built-in network, whose float weights are drawn from a seeded generator.

    Parameters
    ----------
    name : str
    index : int
        Index of the layer in its network, which seeds its weights.
    inputs, outputs : int
        Numbers of input and output features.
    relu : bool
        Whether Relu follows.
    """

    name: str
    index: int
    inputs: int
    outputs: int
    relu: bool

    @property
    def tensors(self) -> tuple[str, ...]:
        """Tuple of names of the float tensors that the fully connected layer and its Relu compute."""
        return (f"{self.name}_out", *([f"{self.name}_relu_out"] if self.relu else []))

    def slices(self) -> Iterator[onnx.ModelProto]:
        """Yield float ONNX models that each compute some output channels of the layer, in order."""
        random = np.random.default_rng([SEED, self.index])
        for _ in range(self.outputs):  # biases are drawn after all weights
            self._row(random)
        bias = random.normal(0, 0.1, self.outputs).astype(np.float32)
        random = np.random.default_rng([SEED, self.index])
        step = max(_WEIGHTS_AT_ONCE // self.inputs // _ALIGNED_OUTPUTS, 1) * _ALIGNED_OUTPUTS
        for begin in range(0, self.outputs, step):
            part = bias[begin : begin + step]
            weights = np.empty((len(part), self.inputs), np.float32)
            for row in weights:
                row[:] = self._row(random)
            yield self._model(weights, part)

    def _row(self, random: np.random.Generator) -> np.ndarray:
        """Return the float64 weights of the fully connected layer's next output channel, drawn at random."""
        return random.normal(0, np.sqrt(2 / self.inputs), self.inputs)

    def _model(self, weights: np.ndarray, bias: np.ndarray) -> onnx.ModelProto:
        """Return a float ONNX model of a slice of the layer: output channels with these weights and biases.

        Nodes and tensors have the same names as in the network.
        """
        parameters = {f"{self.name}_weight": weights, f"{self.name}_bias": bias}
        nodes = [helper.make_node("Gemm", ["features", *parameters], self.tensors[:1], name=self.name, transB=1)]
        if self.relu:
            nodes.append(helper.make_node("Relu", self.tensors[:1], self.tensors[1:], name=f"{self.name}_relu"))
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
            for name, size in (("features", self.inputs), (self.tensors[-1], len(bias)))
        ]
        constants = [numpy_helper.from_array(values, label) for label, values in parameters.items()]
        graph = helper.make_graph(nodes, self.name, ends[:1], ends[1:], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        return model


def quantised_layers(
    layers: Sequence[DenseLayer], features: np.ndarray, where: str, bits: int
) -> tuple[dict[str, np.ndarray], Ranges]:
    """Quantise successive dense layers slice by slice; return a pair: dict of integer constants, and tensor ranges.

    Parameters
    ----------
    layers : sequence of DenseLayer
    features : numpy.ndarray
        Calibration frames at the first layer's input, float32 ``(frames, inputs)``.
    where : str
        Start of error messages.
    bits : int
        Bits of weights and activations: 8 or 16.

    Returns
    -------
    tuple
        Values of the quantised model's initialisers by name, and the range of each float tensor.
    """
    constants: dict[str, np.ndarray] = {}
    ranges: Ranges = {}
    for layer in layers:
        pieces, outputs = defaultdict(list), []
        for model in layer.slices():
            outputs.append(run(model, features))
            for tensor in quantise(model, features, where, bits).graph.initializer:
                if tensor.name.startswith((f"{layer.name}_weight", f"{layer.name}_bias")):
                    pieces[tensor.name].append(numpy_helper.to_array(tensor))
        constants |= {name: np.concatenate(pieces.pop(name)) for name in list(pieces)}
        features = np.concatenate(outputs, axis=1)
        ranges |= dict.fromkeys(layer.tensors, (features.min(), features.max()))
    return constants, ranges


def put(model: onnx.ModelProto, constants: dict[str, np.ndarray], outputs: int) -> None:
    """Replace constants of small stand-in layers in a quantised model by ``constants`` of the large layers.

    The small layers have two output channels. ``constants`` is emptied. ``outputs``: number of the model's output
    features.
    """
    for tensor in model.graph.initializer:
        if tensor.name in constants:
            tensor.CopyFrom(numpy_helper.from_array(constants.pop(tensor.name), tensor.name))
    assert not constants
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = outputs
    del model.graph.value_info[:]
