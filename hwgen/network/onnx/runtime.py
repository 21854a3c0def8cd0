"""ONNX Runtime's sessions of small models that the importer runs, and the kernels that it chooses for a model.

ONNX Runtime fuses a convolution and the quantisers around it into one operator on integers, under conditions that
depend on its version. A convolution that it doesn't fuse is computed in float32. Therefore this module asks ONNX
Runtime itself, which writes the graph that its optimiser makes of the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import onnx
from onnx import TensorProto

from hwgen.network.ends import TensorInfo
from hwgen.network.host import session_options
from hwgen.network.onnx.file import copied, data_inputs
from hwgen.network.onnx.operator_traits import CONVOLUTIONS, PRODUCTS, TRAITS, Effect, with_effect
from hwgen.processes import workplace

if TYPE_CHECKING:
    import onnxruntime


def session(
    model: str | bytes, settings: Mapping[str, str] | None = None, *, optimised: bool = True
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session of a small model, on one thread and without log messages.

    Parameters
    ----------
    model : str or bytes
        Path of the file, or its contents.
    settings : mapping, optional
        Entries of the session's configuration.
    optimised : bool
        Whether ONNX Runtime can rewrite the graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for entry in (settings or {}).items():
        options.add_session_config_entry(*entry)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def reason(error: Exception) -> str:
    """Return the message of an ONNX Runtime error, without ONNX Runtime's own file and function names."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"^Load model from .*? failed: ?", "", text)
    text = re.sub(r"^Exception during initialization: ", "", text)
    text = re.sub(r"^/\S+:\d+ .*?\)(?: \[with .*?\])? (?=[A-Z(])", "", text)
    text = re.sub(r"^\(.*?\) was false\. (?=\S)", "", text)
    return text[:300] or type(error).__name__


_IN_FLOATS = {name for name in with_effect(Effect.CONVOLUTION, Effect.PRODUCT) if not TRAITS[name].in_integers}
"""Set of names of ONNX Runtime's convolution and matrix product operators that compute in float32."""
_WITH_BIAS = {"QGemm", "QLinearConv"}
"""Set of names of operators in ONNX Runtime's optimised graph whose integer bias is added to integer sums."""
_LABEL = re.compile(r"hwgen#(\d+)#")
"""Regular expression of a node's temporary name, with the node's index, which the optimised graph's nodes keep."""
_SETTINGS = {
    "session.disable_prepacking": "1",
    # Large constants become a file of their own, which isn't read.
    "session.optimized_model_external_initializers_file_name": "constants.bin",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
}


class Kernels:
    """Kernels that ONNX Runtime's optimised session uses for the nodes of an ONNX model, and its inputs and outputs.

    ONNX Runtime loads the model when one of them is first read.

    Parameters
    ----------
    model : ModelProto
        Model of the file, before import.
    is_optimised : bool
        Whether the optimised session is the model's reference. If it isn't, or ONNX Runtime can't load the model, no
        kernel is known, and inputs and outputs are as the file declares them.
    """

    def __init__(self, model: onnx.ModelProto, *, is_optimised: bool) -> None:
        self._model, self._is_optimised = model, is_optimised

    def is_in_floats(self, node: onnx.NodeProto) -> bool:
        """Return whether ONNX Runtime computes a convolution's or product's results in float32; false if unknown."""
        kernel = self._operators.get(node.output[0])
        return kernel is not None and (kernel.op_type in _IN_FLOATS or _gives_floats(kernel))

    def takes_bias_integers(self, node: onnx.NodeProto) -> bool:
        """Return whether ONNX Runtime adds a node's bias integers to its sums as they are, whatever their scale.

        The bias of a MatMul is the constant of the Add that follows it: ONNX Runtime joins both into a Gemm.
        """
        kernel = self._operators.get(node.output[0])
        return kernel is not None and kernel.op_type in _WITH_BIAS

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Tuple of the `TensorInfo` (name, shape, type) of each model input, as ONNX Runtime's session reports it."""
        return self._session.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Tuple of the `TensorInfo` (name, shape, type) of each model output, as ONNX Runtime's session reports it."""
        return self._session.outputs

    @cached_property
    def _operators(self) -> dict[str, onnx.NodeProto]:
        """Dictionary by output name: node of ONNX Runtime's optimised graph for each convolution and product."""
        nodes = self._model.graph.node
        return {
            nodes[int(found[1])].output[0]: node
            for node in self._session.nodes
            if (found := _LABEL.search(node.name)) and node.op_type in _IN_FLOATS | _WITH_BIAS
        }

    @cached_property
    def _session(self) -> _Session:
        """`_Session`: the model's nodes, inputs and outputs in an optimised session, or the declared ones."""
        if self._is_optimised:
            labelled = copied(self._model)
            for index, node in enumerate(labelled.graph.node):
                if node.op_type in CONVOLUTIONS or node.op_type in PRODUCTS:
                    node.name = f"hwgen#{index}#"
            if session := _optimised(labelled):
                return session
        inputs, outputs = data_inputs(self._model), self._model.graph.output
        return _Session((), tuple(map(_declared, inputs)), tuple(map(_declared, outputs)))


def _gives_floats(kernel: onnx.NodeProto) -> bool:
    """Return whether a kernel is a QGemm without output scale, so that it outputs float32."""
    return kernel.op_type == "QGemm" and not "".join(kernel.input[7:])


class _Session(NamedTuple):
    """Nodes of ONNX Runtime's optimised graph, and inputs and outputs of the model."""

    nodes: Sequence[onnx.NodeProto]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def _declared(value: onnx.ValueInfoProto) -> TensorInfo:
    """Return a `TensorInfo`: a model input or output as the file declares it (name, shape, type)."""
    dims = value.type.tensor_type.shape.dim
    element = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims]
    return TensorInfo(value.name, shape, f"tensor({element})")


def _optimised(model: onnx.ModelProto) -> _Session | None:
    """Return the `_Session` of a model optimised by ONNX Runtime: nodes, inputs, outputs; ``None`` if it can't load."""
    import onnxruntime

    options = session_options(optimised=True)
    options.intra_op_num_threads = 1
    for entry in _SETTINGS.items():
        options.add_session_config_entry(*entry)
    with workplace() as folder:
        options.optimized_model_filepath = str(folder / "optimised.onnx")
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            graph = onnx.load(options.optimized_model_filepath, load_external_data=False).graph
        except Exception:  # ONNX Runtime raises many types of errors; whether it can run the model is checked elsewhere
            return None
    inputs, outputs = (
        tuple(TensorInfo(end.name, list(end.shape), end.type) for end in ends)
        for ends in (session.get_inputs(), session.get_outputs())
    )
    return _Session(graph.node, inputs, outputs)
