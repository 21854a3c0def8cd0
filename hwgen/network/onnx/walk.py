"""Import of an ONNX graph node by node, which collects its layers and the tensors where the hardware ends.

`hwgen.network.onnx.values` describes the states of a tensor, `hwgen.network.onnx.operators` the import of each node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from hwgen.errors import ConfigError, HwgenError, ModelError
from hwgen.network.ends import Head, Host, InputEnd, Layout, OutputEnd, Remainder
from hwgen.network.fates import Operator
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import MAX_SIDE, Window
from hwgen.network.onnx import operators
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.constants import ELEMENTS, NAMED, Constants
from hwgen.network.onnx.file import data_inputs, input_shape, named, takes
from hwgen.network.onnx.fixed_program import units
from hwgen.network.onnx.float_operators import hold
from hwgen.network.onnx.fold import why_unfolded
from hwgen.network.onnx.frames import Frames, FrameSearch, Special, declares_rows, is_after_ragged
from hwgen.network.onnx.functions import first_reals
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.inputs import input_view
from hwgen.network.onnx.joins import refuse_floats
from hwgen.network.onnx.ledger import Ledger, RefusalError
from hwgen.network.onnx.macs import macs_of
from hwgen.network.onnx.runtime import Kernels
from hwgen.network.onnx.tail import Tail, TailSearch, host_input, may_run, reals_of
from hwgen.network.onnx.values import (
    AccumulatorState,
    Affine,
    Ended,
    Expression,
    Floats,
    Foreign,
    Integers,
    Joined,
    Map,
    Pending,
    PendingLayer,
    Reals,
    State,
    Value,
    Wide,
    steps_before,
)
from hwgen.network.onnx.views import View
from hwgen.network.ops import Op
from hwgen.network.options import AS_IT_IS, ModelOptions

_QUANTISERS = {"QuantizeLinear"}
"""Set of names of ONNX operators that can begin a new feature map."""
_REALS = {
    *(TensorProto.UNDEFINED, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE),
    *ELEMENTS,
}
"""Set of ONNX element types of tensors that layers could process if they were quantised.

Tensors of other types hold indices, shapes or conditions.
"""


@dataclass(frozen=True, kw_only=True)
class FoldedModel:
    """Checked ONNX model with folded constants, ready for import, with what was removed and the import options.

    Parameters
    ----------
    graph : GraphIndex
        Model of the file, with constants folded, a dialect translated, and redundant nodes and the head removed.
    head : Head or None
        Operators that the host runs before the first quantisers.
    removed : dict of str to tuple
        Verdict on each removed node, and the reason, by the node's output.
    replaced : dict of str to str
        Tensors that replace the outputs of redundant nodes.
    float_tensors : collection of str
        Tensors that ONNX Runtime computes in floats, although a QuantizeLinear follows here.
    optimised : bool
        Whether ONNX Runtime's optimised session is the model's reference. It computes in integers where it can, and
        rounds some biases. Otherwise the reference computes each operator as it is written, in floats.
    kernels : Kernels
        Kernels that ONNX Runtime has for the nodes of the file's model.
    constant_outputs : tuple of str
        Outputs of the file's model that no input influences, and that the model lacks.
    options : ModelOptions
        Options for reading the model.
    """

    graph: GraphIndex
    head: Head | None
    removed: Mapping[str, tuple[str, str]]
    replaced: Mapping[str, str]
    float_tensors: Collection[str]
    optimised: bool
    kernels: Kernels
    constant_outputs: tuple[str, ...] = ()
    options: ModelOptions = AS_IT_IS


class ImportWalk:
    """Import of an ONNX model node by node, which notes nodes that can't be built and continues after them.

    Parameters
    ----------
    until : sequence of str
        Tensors where the import ends: only nodes that they depend on are imported. Without tensors, all nodes that the
        outputs depend on are imported, up to the nodes of the host.
    sums : collection of str
        Tensors in ``until`` that are floats of convolutions: the hardware ends at the accumulators.
    """

    def __init__(self, folded: FoldedModel, where: str, until: Sequence[str] = (), sums: Collection[str] = ()) -> None:
        graph, model = folded.graph, folded.graph.model
        self.graph, self.where = graph, where
        self._head, self._float_tensors, self._sums = folded.head, folded.float_tensors, sums
        self.ledger = Ledger(graph, where)
        constants, nodes = self._constants()
        self.constant = {id(node) for node in graph.needed} - {id(node) for node in nodes}
        self.build = Builder(constants, folded.kernels, folded.options)
        self.build.optimised = folded.optimised
        self.build.units = units(graph)
        self.build.warnings += [
            f"output {name!r} is left out: it is a constant, which no input influences"
            for name in folded.constant_outputs
        ]
        self.ledger.layers, self.ledger.absorbed = self.build.made, self.build.absorbed
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in nodes:
            for tensor in takes(node) if node.op_type != "Shape" else ():
                self._consumers.setdefault(tensor, []).append(node)
        self.values: dict[str, Value] = {}
        self.refused_inputs: list[str] = []
        """List of error messages about the model inputs that were refused."""
        self.reached_ends: dict[str, tuple[OutputEnd, PendingLayer]] = {}
        """Dictionary by a model output's name: the hardware's `OutputEnd` that it is computed from, and its
        `PendingLayer`."""
        self._elsewhere: dict[int, PendingLayer] = {}
        """Dictionary by ``id`` of unfinished placeholder layers of maps that no layer can compute."""
        self._guessed: dict[int, str] = {}
        """Dictionary by a placeholder layer's ``id``: unsupported operator (text) whose output map has a guessed
        layout."""
        # Two outputs of one name are one output.
        self.outputs = tuple(dict.fromkeys(graph.outputs))
        ends = dict.fromkeys(until) or {value.name: TailSearch(graph, value) for value in model.graph.output}
        self._open_outputs = {
            name: _OpenOutput(end, {id(node) for node in graph.backwards([name])}) for name, end in ends.items()
        }
        self._nodes = nodes
        read = {*self.outputs}.union(*map(takes, graph.needed))
        self.sources = [value for value in data_inputs(model) if value.name in read]
        """List of inputs of the ONNX model that an output depends on."""
        self._unfolded = self._not_folded()
        """Dictionary by name of each tensor that depends only on constants but is not folded: node that is the cause.
        """
        self._read_inputs()
        for node in nodes:
            self._import_node(node)
        self._refuse_unreached()

    def _constants(self) -> tuple[Constants, list[onnx.NodeProto]]:
        """Fold the model's constants; return a pair: the `Constants`, and a list of the other nodes.

        Constants that can't be folded are refused.
        """
        while True:
            constants = Constants(self.graph.model, self.where)
            try:
                rest = constants.fold([node for node in self.graph.needed if not self.ledger.is_refused(node)])
            except RefusalError as error:
                self.ledger.refuse(error)
                continue
            kept = {id(node) for node in rest}
            return constants, [node for node in self.graph.needed if id(node) in kept or self.ledger.is_refused(node)]

    def _not_folded(self) -> dict[str, onnx.NodeProto]:
        """Return a dict of tensors that depend only on constants but are not folded, each with the node to blame."""
        depending = self.graph.with_dependents(self.graph.inputs)
        causes: dict[str, onnx.NodeProto] = {}
        for node in self._nodes:
            taken = takes(node)
            if depending.isdisjoint(taken) and not self.ledger.is_refused(node):
                cause = next((causes[name] for name in taken if name in causes), node)
                causes |= dict.fromkeys(filter(None, node.output), cause)
                why = why_unfolded(node) if cause is node else f"takes the output of {named(cause)}, not a constant"
                self.ledger.unfolded[id(node)] = why
        return causes

    def _refuse_unfolded(self, node: onnx.NodeProto, operands: Sequence[Value]) -> str:
        """Refuse an unfolded node that should give ``node`` a constant; return the refused node's name, or ``""``.

        The name is empty if all such inputs are constants, or if other ``operands`` can't be built, which is then the
        cause.
        """
        if any(isinstance(value.state, Foreign) for value in operands):
            return ""
        cause = next((self._unfolded[name] for name in takes(node) if name in self._unfolded), None)
        if cause is None:
            return ""
        self.ledger.refuse(self.build.refusal(cause, why_unfolded(cause)))
        return named(cause)

    def _read_inputs(self) -> None:
        """Note the model's inputs as the first known tensors of the import, or refuse them."""
        if not self.sources:
            self.ledger.refuse(ModelError(f"{self.where}: a model must have an input that an output depends on"))
        dims = [source.type.tensor_type.shape.dim for source in self.sources]
        batches = {max(sizes[0].dim_value, 0) for sizes in dims if sizes}  # 0 if the batch is symbolic
        self.build.batch = max(batches, default=0) or None
        if len(batches) > 1:
            shown = " and ".join(str(size) if size else "any number" for size in sorted(batches, reverse=True))
            self.ledger.refuse(ModelError(f"{self.where}: inputs must have one batch, not {shown} of frames"))
        if len(self.sources) > 1:
            self.build.reserve(source.name for source in self.sources)
        for source in self.sources:
            try:
                _read_input(self.build, source, self.where, self._nodes, self.graph.shapes)
            except ModelError as error:
                self.ledger.refuse(error)
                self.refused_inputs.append(str(error))
                self._take_foreign(source.name, f"input {source.name!r}")
            else:
                self._note_tensor(source.name)

    def _import_node(self, node: onnx.NodeProto) -> None:
        """Import an ONNX node, and note what is known of its output tensors.

        Outputs of a node that can't be built become tensors that no layer can compute.
        """
        operands = [self.values[name] for name in takes(node) if name in self.values]
        wanted = any(id(node) in output.nodes for output in self._open_outputs.values())
        cause = named(node)
        if not self.ledger.is_refused(node):
            try:
                if self._is_size(node, operands) or not wanted or not operands:
                    return
                lost = self._refuse_unfolded(node, operands)
                if not lost and self._apply_operator(node, operands):
                    self._note_outputs(node)
                    return
                cause = lost or next(value.state.cause for value in operands if isinstance(value.state, Foreign))
                self.ledger.after_refused[id(node)] = cause
            except (ModelError, ConfigError) as error:
                self._refuse(error, node, operands)
        if wanted:
            for tensor in filter(None, node.output):
                self._take_foreign(tensor, cause, constant=not operands)

    def _refuse(self, error: HwgenError, node: onnx.NodeProto, operands: Sequence[Value]) -> None:
        """Note the reason why a node can't be built, or that it depends on a refused node.

        If the layout of an operand's map is only guessed, the refusal is a consequence, not a reason of its own.
        """
        guesses = (self._guessed.get(id(step)) for step in steps_before(value.source for value in operands))
        cause = next(filter(None, guesses), None)
        if cause is None or (isinstance(error, RefusalError) and error.unknown):
            self.ledger.refuse(error, node)
        else:
            self.ledger.after_refused[id(node)] = cause

    def _note_outputs(self, node: onnx.NodeProto) -> None:
        """Note what is known of a node's output tensors after its import."""
        for tensor, value in zip(node.output, self.build.results or [self.build.value], strict=False):
            if tensor:
                self.build.enter(value)
                self._note_tensor(tensor)

    def _is_size(self, node: onnx.NodeProto, operands: Sequence[Value]) -> bool:
        """Note a node's output as a constant if it computes known tensor sizes; return whether it does."""
        constants = self.build.constants
        is_foreign = bool(operands) and isinstance(operands[0].state, Foreign)
        if bool(operands) == (node.op_type == "Shape") and not is_foreign:
            constants.note_sizes(node, self.graph.shapes)
        if node.output[0] not in constants.arrays:
            return False
        self.constant.add(id(node))
        return True

    def _apply_operator(self, node: onnx.NodeProto, operands: list[Value]) -> bool:
        """Import an ONNX node into the builder; return false if it reads a tensor that no layer can compute.

        It can't be imported if it reads a tensor that no layer can compute, and begins no new feature map.
        """
        build, foreign = self.build, [value.state for value in operands if isinstance(value.state, Foreign)]
        build.operands, build.results = operands, []
        build.enter(operands[0])
        if foreign and not _starts_new_map(node, operands):
            if node.op_type != "Shape" and (any(state.real for state in foreign) or not may_run(node)):
                operators.importer_of(build, node)
            return False
        if isinstance(build.state, Floats) and not foreign:
            self.ledger.host_before.append(node)
        operators.apply(build, node)
        if foreign:
            self.ledger.starts_after[id(node)] = foreign[0].cause
            self._stand_in(foreign[0].cause)
        self._note_float_source(node)
        return True

    def _note_float_source(self, node: onnx.NodeProto) -> None:
        """Note in the ledger which node's unquantised floats the output of ``node`` holds, and its map's layer."""
        state, source = self.build.state, self.build.source
        floats = state.node if isinstance(state, Expression | Joined | Pending | AccumulatorState) else None
        self.ledger.float_origins[id(node)] = floats, None if source is None else source.name

    def _take_foreign(self, tensor: str, cause: str, *, constant: bool = False) -> None:
        """Note that no layer can compute the tensor ``tensor``; a new feature map may begin with it.

        Parameters
        ----------
        cause : str
            Operator that can't be built, as messages name it.
        constant : bool
            Whether the tensor is a constant, so that no feature map can begin with it.
        """
        known, build = self.graph.shapes.of(tensor), self.build
        sizes = (known.shape or ())[1:]
        rows = (known.shape or (0,))[0]
        is_of_frames = not constant and rows in (0, build.batch or 0)
        fits = is_of_frames and 1 <= len(sizes) <= 3 and all(0 < size <= MAX_SIDE for size in sizes)
        view = input_view(build.constants, self._nodes, tensor, sizes if fits else (1,), build.batch, self.graph.shapes)
        build.source, build.shared = None, False
        if fits and known.type in ELEMENTS:
            _enter(build, view, known.type)
            self._stand_in(cause)
        else:
            _enter(build, view, TensorProto.FLOAT)
            begins = fits and known.type == TensorProto.FLOAT
            build.state = Foreign(view.sizes, cause=cause, begins=begins, real=known.type in _REALS)
        self._note_tensor(tensor)

    def _stand_in(self, cause: str) -> None:
        """Make a placeholder layer the builder's source, because no layer can compute the current map.

        ``cause``: operator that can't be built, as messages name it. With three dimensions, any can be the channels.
        """
        here = self.build.map
        step = PendingLayer("", here, here, Window(kernel=(1, 1)), low=here.type.minimum, high=here.type.maximum)
        self.build.source = self._elsewhere[id(step)] = step
        if len(self.build.view.dims) == 2:
            self._guessed[id(step)] = cause

    def _note_tensor(self, tensor: str) -> None:
        """Note what is known of a tensor, and which model outputs the hardware ends for at this tensor."""
        build, readers = self.build, self._consumers.get(tensor, [])
        if tensor in self._float_tensors:
            build.leave_in_floats()
        self._end_in_accumulators(tensor, readers)
        foreign = isinstance(build.state, Foreign)
        for name, output in list(self._open_outputs.items()):
            if output.tail_search is not None and (foreign or (build.source is not None and not _gives_floats(build))):
                self._note_hardware_end(name, output.tail_search, tensor)
        if not foreign:
            if len(readers) > 1:
                self._hold_floats(tensor)
            try:
                refuse_floats(build, self._float_readers(readers) if isinstance(build.state, Floats) else readers)
            except ModelError as error:
                node = self.ledger.refuse(error)
                if not isinstance(build.state, Floats):
                    self._take_foreign(tensor, "" if node is None else named(node))
                    return
        build.shared |= len(readers) + (tensor in self.outputs) > 1
        self.values[tensor] = build.value

    def _hold_floats(self, tensor: str) -> None:
        """Append a layer that holds floats in fixed point if several nodes read them, and a QuantizeLinear later."""
        state = self.build.state
        if isinstance(state, Expression | Joined | AccumulatorState) and tensor in self.build.units:
            with suppress(RefusalError):
                hold(self.build, state.node, tensor)

    def _float_readers(self, readers: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Return a list of nodes that read the model's float input and are not left to the host, QuantizeLinears first.

        If there are several readers, the last one is refused.
        """
        wanted = [node for node in readers if any(id(node) in output.nodes for output in self._open_outputs.values())]
        return sorted(wanted, key=lambda node: node.op_type not in _QUANTISERS)

    def _end_in_accumulators(self, tensor: str, readers: Sequence[onnx.NodeProto]) -> None:
        """End the hardware at a convolution's accumulators, if the host runs all nodes after the convolution.

        The host computes the convolution's floats from the accumulators. A bias in steps of the accumulators is part of
        them; any other bias is added by the host.
        """
        build, state = self.build, self.build.state
        first = self._reals_of_kernel(tensor, state)
        if first is None or not (tensor in self._sums or self._is_last(tensor, state, readers)):
            return
        assert isinstance(state, AccumulatorState)
        if build.optimised and state.affine is None and not state.residue.any():
            build.emit_accumulators(state)
            first = Affine(first.gain, np.zeros_like(first.offset))
        else:
            build.emit_accumulators(replace(state, bias=np.zeros_like(state.bias), residue=np.zeros(1), affine=None))
        if state.opened is not None:
            state.opened.make()
            first = first.of_channels(np.unique(state.opened.channels, return_index=True)[1])
        build.state = Ended(first)

    def _reals_of_kernel(self, tensor: str, state: State) -> Affine | None:
        """Return the `Affine` from accumulators to the floats ``tensor``; ``None`` if these are not a kernel's sums."""
        if not isinstance(state, AccumulatorState) or tensor != self._sums_of_kernel(state):
            return None
        return state.first if state.opened is None else first_reals(state)

    def _is_last(self, tensor: str, state: State, readers: Sequence[onnx.NodeProto]) -> bool:
        """Return whether the host runs all nodes after the floats ``tensor`` of a convolution."""
        node = state.node if isinstance(state, AccumulatorState) else None
        searches = [output.tail_search for output in self._open_outputs.values() if id(node) in output.nodes]
        tails = [ends and ends.tail_after(tensor, integers=False) for ends in searches]
        nodes = [node for tail in tails if tail for node in tail.nodes]
        if not tails or None in tails or not {id(node) for node in nodes}.issuperset(map(id, readers)):
            return False
        # If only operators that move values are between the convolution and a QuantizeLinear, ONNX Runtime's optimised
        # session fuses that QuantizeLinear into the convolution, and these floats don't exist there. The unoptimised
        # session always computes them.
        return not self.build.optimised or _QUANTISERS.isdisjoint(node.op_type for node in nodes)

    def _sums_of_kernel(self, state: AccumulatorState) -> str:
        """Return the name of the tensor that ONNX Runtime's kernel of a convolution or product outputs.

        It is the node's output. For a MatMul whose kernel includes the Add after it, it is the Add's output.
        """
        tensor = state.node.output[0]
        if state.node.op_type == "MatMul" and self.build.kernels.takes_bias_integers(state.node):
            (tensor,) = self._consumers[tensor][0].output
        return tensor

    def _note_hardware_end(self, name: str, ends: TailSearch, tensor: str) -> None:
        """Let the hardware end at ``tensor`` for a model output, if the host can run the nodes after it.

        The hardware can't end at a tensor that no layer can compute, but the output waits no longer.
        """
        state = self.build.state
        constants = state.node.input[1:] if isinstance(state, Reals) else ()
        tail = ends.tail_after(tensor, constants, integers=not isinstance(state, Ended))
        if tail is None:
            return
        frames = self.host_frames({tensor}, (*tail.constants, *tail.nodes), [name])
        for error in frames.errors:
            self.ledger.refuse(error)
        self.ledger.host_after |= {id(node) for node in (*tail.constants, *tail.nodes)}
        del self._open_outputs[name]
        if not isinstance(state, Foreign) and self.is_built(self.build.source):
            end, step = _hardware_end(self.build, ends, tail, name, tensor, rows=frames.rows)
            end = replace(end, ragged=name in frames.ragged, frames=frames.positions.get(name))
            self.reached_ends[name] = end, step

    def host_frames(
        self, sources: Collection[str], nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]
    ) -> HostFrames:
        """Return `HostFrames`: which axis holds the frames of a batch in the outputs of nodes that the host runs.

        Parameters
        ----------
        sources : collection of str
            Outputs of the hardware, and inputs of the model.
        nodes : sequence of NodeProto
            Nodes after them, in topological order.
        outputs : sequence of str
            Outputs of these nodes.
        """
        build = self.build
        search = FrameSearch(self.graph, build.constants.arrays, build.batch)
        views = {name: self.values.get(name, build.value).view for name in sources}
        first = {name: Frames(0, behind=view.all_sizes[0]) for name, view in views.items()}
        errors: list[ModelError] = [build.refusal(node, why) for node, why in search.mixing(first, nodes)]
        if errors:
            return HostFrames(errors)
        ragged = frozenset(name for name in outputs if self._is_ragged(search, name))
        plain = [name for name in outputs if name not in ragged]
        positions = {name: here for name in plain if isinstance(here := search.of(name), Frames)}
        rows = all(name in positions and positions[name].are_rows for name in plain)
        whys = ((name, self._no_rows(search, name, is_ragged=name in ragged)) for name in outputs)
        refused = [ModelError(f"{self.where}: output {name!r} {why}") for name, why in whys if why]
        return HostFrames(refused, rows, ragged, positions)

    def _is_ragged(self, search: FrameSearch, output: str) -> bool:
        """Return whether the number of an output's rows depends on the frames' values."""
        here = search.of(output)
        if isinstance(here, Special) and here.is_ragged:
            return True
        is_one = self.build.batch == 1 or here is Special.ONE_FRAME
        return is_one and is_after_ragged(self.graph, output) and not declares_rows(self.graph.model, output)

    def _no_rows(self, search: FrameSearch, output: str, *, is_ragged: bool) -> str:
        """Return the reason why an output can't be computed for a batch of several frames, or ``""``."""
        here, batch = search.of(output), self.build.batch
        if batch == 1 or (isinstance(here, Frames) and here.are_rows):
            return ""
        if is_ragged and batch is not None:
            return (
                f"has rows of all {batch:,} frames of a batch, as many as their values make; export the model for a "
                "batch of 1"
            )
        if is_ragged and declares_rows(self.graph.model, output):
            return (
                "is declared with one row per frame, but its values can't be assigned to frames; export "
                "the model for a batch of 1"
            )
        if batch is not None:
            return (
                f"must have {batch} rows, one per frame; move the frames to its first axis, or export the model for a "
                "batch of 1"
            )
        if here is None and search.depends_on_count(output):
            return "depends on the number of frames, and not on the frames; leave it out, or export for a batch of 1"
        return ""

    def _refuse_unreached(self) -> None:
        """Refuse each model output that no hardware output leads to, unless a node before it is refused."""
        for output, waiting in self._open_outputs.items():
            if waiting.tail_search is None or not self.sources:
                continue
            if output not in self.values:
                self.ledger.refuse(ModelError(f"{self.where}: output {output!r} does not depend on the input"))
                continue
            self.build.enter(self.values[output])
            if _gives_floats(self.build) or (
                not isinstance(self.build.state, Foreign) and self.is_built(self.build.source)
            ):
                several = output if len(self.outputs) > 1 else None
                self.ledger.refuse(_unfinished(self.build, self.where, several))

    def is_built(self, source: PendingLayer | None) -> bool:
        """Return whether the map that ``source`` computes depends only on layers that can be built.

        An input of the model (``None``) does.
        """
        return not any(id(step) in self._elsewhere for step in steps_before([source]))

    def maps(self) -> dict[str, Value]:
        """Return, as a dict, what is known (`Value`) of each integer tensor where the hardware can end, by tensor name.

        Integer inputs of the model are among them.
        """
        maps = {}
        for tensor, value in self.values.items():
            state = value.state
            plain = isinstance(state, Integers)
            # A pool after DequantizeLinear is a map of integers in hardware, and of floats in the model.
            if isinstance(state, Reals) and not isinstance(state, Wide) and not state.steps:
                plain = tensor != state.node.output[0]
            if (plain or (isinstance(state, Ended) and tensor in self._sums)) and self.is_built(value.source):
                maps[tensor] = value
        return maps

    def sums(self) -> dict[str, Value]:
        """Return a dict by tensor name: what is known (`Value`) of convolutions' float sums that no layer quantises."""
        return {
            tensor: value
            for tensor, value in self.values.items()
            if self._reals_of_kernel(tensor, value.state) is not None and self.is_built(value.source)
        }

    @property
    def ends(self) -> dict[str, tuple[OutputEnd, PendingLayer]]:
        """Dict by name of each output's pair (`OutputEnd`, `PendingLayer`), for a model without obstacles.

        The model must be one that can be built.
        """
        return {output: self.reached_ends[output] for output in self.outputs}

    def end(self, tensor: str, name: str) -> OutputEnd:
        """Return the hardware output ``tensor``, called ``name``, as an `OutputEnd` without host nodes after it."""
        view = self.values[tensor].view
        return OutputEnd(name=name, tensor=name, shape=view.shape, layout=_layout(view))

    def _steps(self) -> list[PendingLayer]:
        """Return a list of each unfinished `PendingLayer`, except if other layers include it or none reads it."""
        steps = self.build.steps
        merged = {id(step) for step, node in self.build.merged if self.ledger.became_layer(node)}
        ends = {id(step) for _, step in self.reached_ends.values()}
        while True:
            read = ends | {id(source) for step in steps for source in step.sources}
            left = [step for step in steps if id(step) not in merged or id(step) in read]
            if len(left) == len(steps):
                return left
            steps = left

    def layers(self) -> tuple[Op, ...]:
        """Finish each layer of the model that can be built, independently of others; return a tuple of the layers.

        A layer whose configuration contradicts itself is refused.
        """
        nodes = {name: node for node in self.ledger.nodes for name in self.build.made.get(id(node), ())}
        layers = []
        for step in self._steps():
            try:
                layers.append(step.frozen(*(source.frozen() for source in (step.input, *step.more))))
            except ConfigError as error:
                self.ledger.refuse(error, nodes[step.name])
        return tuple(layers)

    def _macs(self) -> dict[int, int | None]:
        """Return a dict by node ``id`` of multiply-adds per frame, for nodes that outputs and inputs depend on.

        The keys are the nodes' ``id``. The count is ``None`` if it is not known.
        """
        shape = self.graph.shapes.for_batch(1).of
        counts = {id(node): macs_of(node, shape) for node in self.graph.needed if id(node) not in self.constant}
        return {key: None if macs is None else -(-macs // (self.build.batch or 1)) for key, macs in counts.items()}

    def operators(self) -> tuple[Operator, ...]:
        """Return a tuple with an `Operator` (verdict: built, folded, host or unsupported) per node of the model."""
        macs = self._macs()
        self.ledger.note_merged(
            {step.name for step in self._steps()}, {step.name: node for step, node in self.build.merged}
        )
        return self.ledger.operators({id(node) for node in self.graph.needed}, self.constant, macs)

    def network(
        self, name: str, ends: Mapping[str, tuple[OutputEnd, PendingLayer]], remainder: Remainder | None = None
    ) -> Network:
        """Return the `Network` of the layers that the hardware outputs ``ends`` depend on.

        Parameters
        ----------
        ends : mapping
            Each end of the hardware with its layer, by the output's name.
        remainder : Remainder, optional
            Rest of the model, which the host runs.
        """
        inputs = [
            InputEnd(
                name=source.name,
                shape=tuple(dim.dim_value for dim in source.type.tensor_type.shape.dim[1:]),
                layout=_layout(self.values[source.name].view),
                dtype=helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type).name,
            )
            for source in self.sources
        ]
        before = (node.op_type for node in self.ledger.host_before if node.op_type != "Identity")
        host = Host(
            inputs=tuple(inputs),
            outputs=tuple(end for end, _ in ends.values()),
            before=(*(self._head.operators if self._head else ()), *before),
            head=self._head,
            batch=self.build.batch,
            remainder=remainder,
            optimised=self.build.optimised,
            input_infos=self.build.kernels.inputs,
            output_infos=self.build.kernels.outputs,
        )
        return _network(self.build, name, host, ends)


@dataclass(frozen=True)
class HostFrames:
    """Axes of a batch's frames in the outputs of nodes that the host runs, with errors about mixed frames.

    Parameters
    ----------
    errors : list of ModelError
        Refusals of nodes that mix frames, or of outputs that don't have one row for each frame.
    rows : bool
        Whether each row of each output is one frame.
    ragged : frozenset of str
        Outputs whose number of rows depends on the frames' values.
    positions : dict of str to Frames
        Position of the frames in each other output, where it is known.
    """

    errors: list[ModelError]
    rows: bool = True
    ragged: frozenset[str] = frozenset()
    positions: Mapping[str, Frames] = field(default_factory=dict)


@dataclass(frozen=True)
class _OpenOutput:
    """Model output that no hardware output leads to yet, with the ``id`` of each node before it."""

    tail_search: TailSearch | None
    """`TailSearch` for the tensor where the hardware ends; ``None`` if it must end at the output itself."""
    nodes: set[int]


def _starts_new_map(node: onnx.NodeProto, operands: Sequence[Value]) -> bool:
    """Return whether a node starts a new feature map from a tensor that no layer computes."""
    (state, *others) = (value.state for value in operands)
    return node.op_type in _QUANTISERS and not others and isinstance(state, Foreign) and state.begins


def _network(
    build: Builder, name: str, host: Host, layer_of_end: Mapping[str, tuple[OutputEnd, PendingLayer]]
) -> Network:
    """Finish the layers that the hardware's outputs depend on, and return their `Network`."""
    ends = [layer_of_end[end.name][1] for end in host.outputs]
    used = {id(step) for step in steps_before(ends)}
    steps = [step for step in build.steps if id(step) in used]
    inputs_of_steps = [pair for step in steps for pair in zip(step.sources, (step.input, *step.more), strict=True)]
    taken = {map_.origin: map_ for source, map_ in inputs_of_steps if source is None}
    # A single input has no name of its own. Several inputs have the model's names, which no layer has.
    names = {origin: origin for origin in taken} if len(taken) > 1 else dict.fromkeys(taken, INPUT)
    layers: dict[int, Op] = {}
    edges = []
    for step in steps:
        pairs = [*zip(step.sources, (step.input, *step.more), strict=True)]
        maps = [map_.frozen() if source is None else layers[id(source)].output for source, map_ in pairs]
        layers[id(step)] = step.frozen(*maps)
        edges.append(tuple(names[map_.origin] if source is None else layers[id(source)].name for source, map_ in pairs))
    inputs = tuple(_input_end(end, taken.get(end.name)) for end in host.inputs)
    clips = ["Clip"] if any(end.limits is not None for end in inputs) else []
    network = Network(
        name=name,
        layers=tuple(layers.values()),
        edges=tuple(edges),
        inputs=tuple(names[end.name] for end in inputs if end.taken),
        outputs=tuple(layers[id(step)].name for step in ends),
        warnings=tuple(build.warnings),
        in_floats=build.in_floats(layers.values()),
        host=replace(host, inputs=inputs, before=(*host.before, *clips)),
    )
    return network.with_inputs_read_once()


def _input_end(end: InputEnd, taken: Map | None) -> InputEnd:
    """Return the `InputEnd` of a model input with the bounds the model clips it to, or marked as not read.

    ``taken``: map of the input; ``None`` if the hardware doesn't read the input.
    """
    return replace(end, taken=False) if taken is None else replace(end, limits=taken.bounds)


def _read_input(
    build: Builder, source: onnx.ValueInfoProto, where: str, nodes: Sequence[onnx.NodeProto], shapes: Shapes
) -> None:
    """Make one of the ONNX model's inputs the builder's current value, laid out on a feature map.

    ``nodes`` and ``shapes`` determine the layout of the input's map.
    """
    shape = input_shape(source, where)
    element_type = source.type.tensor_type.elem_type
    if element_type != TensorProto.FLOAT and element_type not in ELEMENTS:
        shown = TensorProto.DataType.Name(element_type).lower()
        raise ModelError(f"{where}: input {source.name!r} must be float, {NAMED}, not {shown}")
    build.source, build.shared = None, False
    view = input_view(build.constants, nodes, source.name, shape, build.batch, shapes)
    _enter(build, view, element_type, source.name)


def _enter(build: Builder, view: View, element_type: int, origin: str = "") -> None:
    """Make a tensor that no layer computes (a model input, or a foreign tensor) the builder's current value.

    Parameters
    ----------
    view : View
        Layout of the tensor on its map.
    element_type : int
        Element type of ONNX.
    origin : str
        Name of the tensor, if it is one of the model's inputs.
    """
    build.view = view
    if element_type == TensorProto.FLOAT:
        build.state = Floats(view.sizes, origin)
    else:
        build.state = Integers()
        build.map = Map(*view.sizes, ELEMENTS[element_type], origin=origin)


def _gives_floats(build: Builder) -> bool:
    """Return whether the builder's current value is floats without a quantiser, where the hardware can't end."""
    state = build.state
    if isinstance(state, Reals):
        return bool(state.steps) or isinstance(state, Wide)
    return isinstance(state, Expression | Joined | Pending | AccumulatorState)


def _hardware_end(
    build: Builder, ends: TailSearch, tail: Tail, output: str, tensor: str, *, rows: bool
) -> tuple[OutputEnd, PendingLayer]:
    """Return a pair: the hardware's `OutputEnd` at ``tensor`` with the host's nodes after it, and its layer.

    ``rows``: whether each row of the output is a frame.
    """
    state = build.state
    name = ends.unused(f"{tensor}_integers") if isinstance(state, Ended | Reals) else tensor
    first, later = reals_of(build.value, name, tensor, tail.nodes, ends.unused), [*tail.nodes]
    if isinstance(state, Ended):
        later = [*(node for node in first if node.op_type != "Constant"), *later]
    if isinstance(state, Reals):  # pools after DequantizeLinear were built in integers, so it follows them
        later.insert(0, state.node)
    source, made = host_input(build.value, name, build.batch, ends.unused)
    if later:
        _note_scale(build, later[0])
    end = OutputEnd(
        name=output,
        tensor=name,
        shape=build.view.shape,
        layout=_layout(build.view),
        behind=tuple(node.op_type for node in later if node.op_type != "Identity"),
        tail=ends.cut(source, [*made, *tail.constants, *first, *tail.nodes]) if later else None,
        rows=rows,
    )
    assert build.source is not None
    return end, build.source


def _layout(view: View) -> Layout | None:
    """Return the `Layout` (permutation) between a tensor and its feature map; ``None`` if both have one order."""
    return None if view.in_order else view.layout


def _note_scale(build: Builder, node: onnx.NodeProto) -> None:
    """Note the scale of the hardware's last integer tensor, if only the DequantizeLinear after it states the scale."""
    if node.op_type == "DequantizeLinear" and build.map.scale is None:
        scale, zero = build.constants.scale_and_zero(node, 1, build.map.type.dtype)
        if scale.size == zero.size == 1:
            build.label(node, np.float32(scale.item()), int(zero.item()))


def _unfinished(build: Builder, where: str, output: str | None) -> ModelError:
    """Return the error (`ModelError`) that says why the hardware can't end at the model's output.

    ``output``: name of the output, if the model has several.
    """
    state = build.state
    if isinstance(state, Expression | Joined | Pending | AccumulatorState | Wide):
        return build.refusal(state.node, "gives floats; a QuantizeLinear must follow (quantise its output too)")
    if isinstance(state, Reals) and state.steps:
        return build.refusal(state.steps[-1], "gives floats; a QuantizeLinear must follow (quantise its output too)")
    before = "" if output is None else f" before output {output!r}"
    return ModelError(f"{where}: holds no layer to build{before}: no convolution, matrix product or pool")
