"""What ONNX Runtime gives for each layer: the model's own tensors, as the maps that the layers make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime

from hwgen.errors import ModelError
from hwgen.network.ends import Layout
from hwgen.network.graph import Network
from hwgen.network.host import session_options
from hwgen.network.onnx.file import copied
from hwgen.network.onnx.importer import checked
from hwgen.network.onnx.qonnx import is_qonnx
from hwgen.network.onnx.rest import walked
from hwgen.network.onnx.values import Reals, Value


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of the model that holds what a layer gives.

    Parameters
    ----------
    name : str
    map : tuple of int
        ``(C, H, W)`` of the layer.
    layout : Layout, optional
        How the tensor lies on that map; ``None`` if in its order.
    scale : float32, optional
        Where the tensor is floats: the scale and
    zero_point : int
        the zero point with which these stand for the layer's integers.
    """

    name: str
    map: tuple[int, int, int]
    layout: Layout | None
    scale: np.float32 | None = None
    zero_point: int = 0

    def maps(self, values: np.ndarray) -> np.ndarray:
        """The layer's maps ``(n, C, H, W)``, int64, of the tensor's values."""
        if self.scale is not None:
            values = np.rint(values.astype(np.float64) / np.float64(self.scale)) + self.zero_point
        maps = values.reshape(len(values), *self.map) if self.layout is None else self.layout.to_maps(values)
        return maps.astype(np.int64)


class RuntimeLayers:
    """ONNX Runtime on a whole model, which gives the tensors between the layers, too.

    Parameters
    ----------
    model : ModelProto
        Quantised.
    network : Network
        What was made of it, or of a part of it.
    where : str
        Starts error messages (a path).

    Attributes
    ----------
    tensors : dict of str to Tensor
        By the layers' names. A layer that is a part of what ONNX Runtime computes in one step has none.

    Raises
    ------
    ModelError
        If ONNX Runtime can't run the model.
    """

    def __init__(self, model: onnx.ModelProto, network: Network, where: str) -> None:
        with checked(model, where) as given:
            walk, _ = walked(given, where)
        runs = given.model if is_qonnx(model) else model
        known = {name for node in runs.graph.node for name in node.output}
        self.tensors: dict[str, Tensor] = {}
        for name, value in sorted(walk.maps().items(), key=lambda pair: isinstance(pair[1].state, Reals)):
            layer = value.source.name if value.source is not None else ""
            if name in known and layer:
                self.tensors.setdefault(layer, _tensor(name, value))
        names = {layer.name for layer in network.layers}
        self.tensors = {layer: tensor for layer, tensor in self.tensors.items() if layer in names}
        self._outputs = [value.name for value in runs.graph.output]
        self._where, self._batch = where, walk.build.batch
        self._session = _session(runs, [tensor.name for tensor in self.tensors.values()], given.optimised, where)

    @property
    def floats(self) -> set[str]:
        """The model's inputs that are floats, by name."""
        return {value.name for value in self._session.get_inputs() if value.type == "tensor(float)"}

    def run(self, frames: Sequence[np.ndarray]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """The model's outputs, and each layer's maps ``(n, C, H, W)`` by its name.

        Parameters
        ----------
        frames : sequence of ndarray
            ``(n, ...)`` of each of the model's inputs, as the model takes them.
        """
        step = self._batch or len(frames[0])
        wanted = list(dict.fromkeys([*self._outputs, *(tensor.name for tensor in self.tensors.values())]))
        parts = [self._batch_of(wanted, [x[at : at + step] for x in frames]) for at in range(0, len(frames[0]), step)]
        values = dict(zip(wanted, map(np.concatenate, zip(*parts, strict=True)), strict=True))
        maps = {layer: tensor.maps(values[tensor.name]) for layer, tensor in self.tensors.items()}
        return [values[name] for name in self._outputs], maps

    def _batch_of(self, wanted: list[str], frames: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The same of some frames; as many as the model fixes, the last one again if there are fewer."""
        count = len(frames[0])
        missing = (self._batch or count) - count
        given = [np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]) for x in frames]
        names = [value.name for value in self._session.get_inputs()]
        try:
            found = self._session.run(wanted, dict(zip(names, given, strict=True)))
        except Exception as error:  # ONNX Runtime raises many kinds
            raise _refused(self._where, error) from None
        return [np.asarray(values)[:count] for values in found]


def _tensor(name: str, value: Value) -> Tensor:
    here, state = value.map, value.state
    reals = state if isinstance(state, Reals) else None
    return Tensor(
        name=name,
        map=(here.channels, here.height, here.width),
        layout=None if value.view.in_order else value.view.layout,
        scale=None if reals is None else reals.scale,
        zero_point=0 if reals is None else reals.zero,
    )


def _session(
    model: onnx.ModelProto, tensors: Sequence[str], optimised: bool, where: str
) -> onnxruntime.InferenceSession:
    """A session that gives these tensors as well."""
    wider = copied(model)
    there = {value.name for value in wider.graph.output}
    wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in there)
    try:
        return onnxruntime.InferenceSession(
            wider.SerializeToString(), session_options(optimised), providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime raises many kinds
        raise _refused(where, error) from None


def _refused(where: str, error: Exception) -> ModelError:
    return ModelError(
        f"{where}: ONNX Runtime can't give the tensors between the layers: {' '.join(str(error).split())[:300]}"
    )
