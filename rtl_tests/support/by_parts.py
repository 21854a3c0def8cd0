"""Whole quantised models of any shape against ONNX Runtime's integer kernels, part by part where some run in float32.

Where the optimised graph of the referee has no operator whose sums are rounded to float32, all of a model's outputs
must be equal. Otherwise each integer tensor is held against the part of the model that makes it of the integer tensors
before it, which are the golden model's: a part with such an operator may differ by 1 in 1 of 10,000 values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from referees import FLOAT_OPERATORS, integer_session

import hwgen

#: Number of values among which one may differ, in a part that runs in float32.
RARELY = 10_000


@dataclass
class Compared:
    """Counts of compared values: exact values, all equal; values of parts in float32; and those of them that differ."""

    equal: int = 0
    rounded: int = 0
    different: int = 0

    def check(self) -> None:
        """Check that something was compared, and that few enough of the rounded values differ."""
        assert self.equal + self.rounded
        assert self.different * RARELY <= max(self.rounded, RARELY)


def compare(model: onnx.ModelProto, frames: np.ndarray, folder) -> Compared:
    """Compare a model's golden maps with ONNX Runtime's. Raise AssertionError if a value differs that must not."""
    session, optimised = integer_session(model)
    ours = _golden(model, frames, folder)
    if not _floats(optimised):
        for name, values in ours.items():
            theirs = _by_frames(session, name, {session.get_inputs()[0].name: frames})
            np.testing.assert_array_equal(values.reshape(theirs.shape), theirs, name)
        return Compared(equal=sum(values.size for values in ours.values()))
    return _by_parts(model, frames, ours, folder)


def _golden(model: onnx.ModelProto, frames: np.ndarray, folder) -> dict[str, np.ndarray]:
    path = folder / "model.onnx"
    onnx.save(model, path)
    found = hwgen.load(path).golden(frames)
    return found if isinstance(found, dict) else {model.graph.output[0].name: found}


def _floats(optimised: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS


def _by_parts(model: onnx.ModelProto, frames: np.ndarray, ends: dict[str, np.ndarray], folder) -> Compared:
    known, integers = _typed(model, frames)
    # The first quantiser has nothing of the hardware's before it.
    before = {name for name in integers if not _upstream(known, name) & set(integers)}
    shown = onnx.ModelProto()
    shown.CopyFrom(known)
    present = {value.name for value in shown.graph.output}
    values = {value.name: value for value in known.graph.value_info}
    shown.graph.output.extend(values[name] for name in integers if name not in before | present)
    ours = _golden(shown, frames, folder)
    for name in before:
        first = _run(_part(known, [known.graph.input[0].name], name), {known.graph.input[0].name: frames})[0]
        ours[name] = first.reshape(len(frames), *first.shape[2:])  # each frame was a batch of one
    found = Compared()
    for name in [name for name in integers if name not in before] + [name for name in ends if name not in integers]:
        frontier = sorted(_upstream(known, name) & set(integers))
        part = _part(known, frontier, name)
        theirs, floats = _run(part, {source: ours[source] for source in frontier})
        values_of = ours[name] if name in integers else ends[name]
        _hold(found, values_of.reshape(theirs.shape), theirs, bool(floats), name)
    return found


def _hold(found: Compared, ours: np.ndarray, theirs: np.ndarray, floats: bool, name: str) -> None:
    if not floats:
        np.testing.assert_array_equal(ours, theirs, name)
        found.equal += theirs.size
        return
    difference = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    assert difference.max(initial=0) <= 1, name
    found.rounded += theirs.size
    found.different += int(np.count_nonzero(difference))


def _typed(model: onnx.ModelProto, frames: np.ndarray) -> tuple[onnx.ModelProto, list[str]]:
    """Return the model with the element type of each tensor, and the names of its integer feature maps in order."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(every.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = dict(zip(names, session.run(names, {model.graph.input[0].name: frames[:1]}), strict=True))
    known = onnx.ModelProto()
    known.CopyFrom(model)
    del known.graph.value_info[:]
    for name, array in arrays.items():
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        known.graph.value_info.append(helper.make_tensor_value_info(name, kind, [None] * np.ndim(array)))
    constants = _constant(model)
    return known, [node.output[0] for node in model.graph.node if _quantises(node) and node.output[0] not in constants]


def _quantises(node: onnx.NodeProto) -> bool:
    return node.op_type in ("QuantizeLinear", "QGemm") or node.op_type.startswith("QLinear")


def _upstream(model: onnx.ModelProto, name: str) -> set[str]:
    """Return the nearest quantised feature maps from which a tensor is computed."""
    producers = {output: node for node in model.graph.node for output in node.output}
    found: set[str] = set()
    waiting, seen = [*producers[name].input], set()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen or tensor not in producers:
            continue
        seen.add(tensor)
        node = producers[tensor]
        if _quantises(node):
            found.add(tensor)
        else:
            waiting += node.input
    return found - _constant(model)


def _constant(model: onnx.ModelProto) -> set[str]:
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if set(node.input) - {""} <= constants:
            constants.update(node.output)
    return constants


def _part(model: onnx.ModelProto, sources: list[str], name: str) -> onnx.ModelProto:
    return onnx.utils.Extractor(model).extract_model(sources, [name])


def _run(part: onnx.ModelProto, values: dict[str, np.ndarray]) -> tuple[np.ndarray, set[str]]:
    session, optimised = integer_session(part)
    return _by_frames(session, part.graph.output[0].name, values), _floats(optimised)


def _by_frames(session: onnxruntime.InferenceSession, name: str, values: dict[str, np.ndarray]) -> np.ndarray:
    """Return an output, computed frame by frame, because not all models have a batch as the first dimension."""
    count = len(next(iter(values.values())))
    frames = ({source: array[place : place + 1] for source, array in values.items()} for place in range(count))
    return np.stack([np.asarray(session.run([name], each)[0]) for each in frames])
