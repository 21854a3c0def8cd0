"""Reference outputs of every hardware layer, which ONNX Runtime computes from the original ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime

from hwgen.errors import ModelError
from hwgen.network.ends import Layout
from hwgen.network.floats import magnitudes, relative_rounding
from hwgen.network.graph import Network
from hwgen.network.host import as_objects, new_session, ragged, rows
from hwgen.network.onnx.file import copied
from hwgen.network.onnx.importer import checked
from hwgen.network.onnx.qonnx import is_qonnx
from hwgen.network.onnx.rest import walked
from hwgen.network.onnx.values import Affine, Ended, Reals, Value
from hwgen.network.ops import Conv
from hwgen.network.options import AS_IT_IS, ModelOptions


@dataclass(frozen=True, kw_only=True)
class LayerTensor:
    """ONNX tensor that holds a hardware layer's output, with how to turn its values into the layer's integers.

    Parameters
    ----------
    name : str
        Name of the tensor in the model.
    map : tuple of int
        ``(C, H, W)`` of the layer.
    layout : Layout, optional
        Layout of the tensor on the layer's map; ``None`` if the tensor is in the map's order.
    scale : float32, optional
        Scale of the layer's integers, if the tensor holds floats.
    zero_point : int
        Zero point of the layer's integers, if the tensor holds floats.
    sums : Affine, optional
        Real value of the layer's accumulators, if the tensor holds the floats that the host computes from them.
    """

    name: str
    map: tuple[int, int, int]
    layout: Layout | None
    scale: np.float32 | None = None
    zero_point: int = 0
    sums: Affine | None = None

    def maps(self, values: np.ndarray) -> np.ndarray:
        """Return the tensor's values as the layer's integer feature maps ``(n, C, H, W)``, int64.

        The integers of accumulators are float64, and can be fractions.
        """
        if self.scale is not None:
            values = np.rint(values.astype(np.float64) / np.float64(self.scale)) + self.zero_point
        maps = values.reshape(-1, *self.map)
        if self.layout is not None:
            maps = self.layout.to_maps(values.reshape(-1, *self.layout.shape))
        if self.sums is not None:
            gain, offset = (numbers.reshape(-1, 1, 1) for numbers in (self.sums.gain, self.sums.offset))
            return (maps.astype(np.float64) - offset) / np.where(gain == 0, 1, gain)
        return maps.astype(np.int64)

    def rounding(self, conv: Conv) -> np.ndarray:
        """Return bounds on ONNX Runtime's rounding error in the layer's sums, in accumulator steps, ``(C, 1, 1)``.

        ``conv``: the layer, or the convolution whose sums the layer only moves.
        """
        assert self.sums is not None
        offset = np.abs(self.sums.offset / np.where(self.sums.gain == 0, 1, self.sums.gain))
        sums = magnitudes(conv)
        largest = sums if len(sums) == len(offset) else sums.max()
        return ((largest + offset) * relative_rounding(conv)).reshape(-1, 1, 1)


class RuntimeLayers:
    """ONNX Runtime session that returns the outputs of a model, and the output of each hardware layer.

    Parameters
    ----------
    model : ModelProto
        Quantised model.
    network : Network
        Network of the model, or of a part of it.
    where : str
        Path that starts error messages.
    options : ModelOptions
        Options that the model was read with as ``network``.

    Attributes
    ----------
    tensors : dict of str to LayerTensor
        Tensors by the layers' names. A layer that ONNX Runtime computes as part of a fused step has no tensor.
    roundings : dict of str to ndarray
        Bounds on the difference of ONNX Runtime's sums from the exact ones, ``(C, 1, 1)`` in steps of the accumulators,
        by the name of each layer whose tensor holds floats that the host computes from accumulators.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run the model.
    """

    def __init__(self, model: onnx.ModelProto, network: Network, where: str, options: ModelOptions = AS_IT_IS) -> None:
        with checked(model, where, options) as checked_model:
            walk, _ = walked(checked_model, where)
        runs = checked_model.graph.model if is_qonnx(model) or checked_model.head is not None else model
        known = {name for node in runs.graph.node for name in node.output}
        ended = {name: value for name, value in walk.values.items() if isinstance(value.state, Ended)}
        maps = {name: value for name, value in (walk.maps() | ended).items() if name in known}
        found = _tensors(maps)
        self.tensors: dict[str, LayerTensor] = {
            layer.name: _tensor(found[layer.name], maps[found[layer.name]])
            for layer in network.layers
            if layer.name in found
        }
        self.roundings = {
            name: tensor.rounding(_convolution(network, name))
            for name, tensor in self.tensors.items()
            if tensor.sums is not None
        }
        self._outputs = [value.name for value in checked_model.graph.model.graph.output]
        self._ragged, self._rows = ragged(network), rows(network)
        one = 1 if self._ragged or not self._rows else None
        self._where, self._batch = where, walk.build.batch or one
        self._session = _session(
            runs, [tensor.name for tensor in self.tensors.values()], checked_model.optimised, where
        )

    @property
    def floats(self) -> set[str]:
        """Set of the names of the model's float32 inputs."""
        return {value.name for value in self._session.get_inputs() if value.type == "tensor(float)"}

    def run(self, frames: Sequence[np.ndarray]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Compute frames; return a pair: the model's outputs, and each layer's output maps ``(n, C, H, W)`` by name.

        Parameters
        ----------
        frames : sequence of ndarray
            Frames ``(n, ...)`` of each input of the model.
        """
        step = self._batch or len(frames[0])
        wanted = list(dict.fromkeys([*self._outputs, *(tensor.name for tensor in self.tensors.values())]))
        batches = [self._batch_of(wanted, [x[at : at + step] for x in frames]) for at in range(0, len(frames[0]), step)]
        values = dict(zip(wanted, map(np.concatenate, zip(*batches, strict=True)), strict=True))
        maps = {layer: tensor.maps(values[tensor.name]) for layer, tensor in self.tensors.items()}
        return [values[name] for name in self._outputs], maps

    def _batch_of(self, wanted: list[str], frames: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Compute one batch of frames in ONNX Runtime, and return a list of the tensors ``wanted``.

        If there are fewer frames than the model's batch, the last one is repeated.
        """
        count = len(frames[0])
        missing = (self._batch or count) - count
        padded = [np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]) for x in frames]
        names = [value.name for value in self._session.get_inputs()]
        try:
            outputs = self._session.run(wanted, dict(zip(names, padded, strict=True)))
        except Exception as error:  # ONNX Runtime raises many types of errors
            raise _refused(self._where, error) from None
        return [self._of_batch(name, np.asarray(values), count) for name, values in zip(wanted, outputs, strict=True)]

    def _of_batch(self, name: str, values: np.ndarray, count: int) -> np.ndarray:
        """Return the first ``count`` frames of a batch's tensor, as an array with one entry per frame."""
        if name in self._ragged:
            return as_objects([values])
        return values[:count] if self._rows or name not in self._outputs else values[None]


def _convolution(network: Network, name: str) -> Conv:
    """Return the `Conv` that computes a layer's integers: the layer itself, or the one whose results it moves."""
    edges = {layer.name: (layer, taken) for layer, taken in zip(network.layers, network.edges, strict=True)}
    layer, taken = edges[name]
    while not isinstance(layer, Conv):
        layer, taken = edges[taken[0]]
    return layer


def _tensors(maps: Mapping[str, Value]) -> dict[str, str]:
    """Return, as a dictionary, the name of the ONNX tensor that holds each layer's output, by the layer's name.

    A tensor of integers is preferred, and the last one of several, because a Clip after a QuantizeLinear, or a Relu
    before another one, becomes a part of the layer.
    """
    of_floats: dict[str, str] = {}
    of_integers: dict[str, str] = {}
    for name, value in maps.items():
        layer = "" if value.source is None else value.source.name
        if isinstance(value.state, Ended | Reals):
            of_floats.setdefault(layer, name)
        else:
            of_integers[layer] = name
    return of_floats | of_integers


def _tensor(name: str, value: Value) -> LayerTensor:
    """Return the `LayerTensor` that describes an ONNX tensor with a layer's output: shape, layout and scale."""
    here, state = value.map, value.state
    reals = state if isinstance(state, Reals) else None
    return LayerTensor(
        name=name,
        map=(here.channels, here.height, here.width),
        layout=None if value.view.in_order else value.view.layout,
        scale=None if reals is None else reals.scale,
        zero_point=0 if reals is None else reals.zero,
        sums=state.reals if isinstance(state, Ended) else None,
    )


def _session(
    model: onnx.ModelProto, tensors: Sequence[str], optimised: bool, where: str
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session of a model with the tensors ``tensors`` as additional outputs."""
    wider = copied(model)
    existing = {value.name for value in wider.graph.output}
    wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in existing)
    try:
        return new_session(wider.SerializeToString(), optimised)
    except Exception as error:  # ONNX Runtime raises many types of errors
        raise _refused(where, error) from None


def _refused(where: str, error: Exception) -> ModelError:
    """Return the error (`ModelError`) that says why ONNX Runtime can't compute the tensors between a model's layers."""
    return ModelError(
        f"{where}: ONNX Runtime can't give the tensors between the layers: {' '.join(str(error).split())[:300]}"
    )
