"""Sums, products, concatenations: every pair of values against ONNX Runtime, and whole models that branch."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import by_hwgen, random_graph
from onnx_writing import as_model
from referees import by_integer_kernels, integer_session
from testbench import pack, run, unpack

import hwgen
from hwgen.devices import DEFAULT
from hwgen.errors import ConfigError, ModelError, PlanError
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.rounding import to_float32
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.gateware.weights import Weights
from hwgen.gateware.whole_map import RunningSumConfig, WholeMapConfig
from hwgen.network.float32 import Label
from hwgen.network.maps import INT8, UINT8, FeatureMap, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Add, Concat, Max, Min, Mul, Sub, Sum
from hwgen.network.shares import Shares, find_shares
from hwgen.templates.joins import MulStage, SumStage
from hwgen.tools import synthesis

KINDS = {"int8": INT8, "uint8": UINT8}


def labels_for(kinds: list[str], seed: int) -> tuple[Label, ...]:
    """Scales of any size, powers of two, and such as are almost multiples of each other; any zero points."""
    draw = np.random.default_rng([seed, 3])
    size = draw.uniform(0.01, 0.1)
    scales = [
        draw.uniform(0.01, 0.1, 3),
        np.exp2(draw.integers(-6, -2, 3)),
        size * draw.choice([0.25, 0.5, 1, 2, 3], 3),
        size * draw.choice([0.5, 1, 2], 3) * (1 + draw.integers(-2, 3, 3) * 2.0**-23),
    ][seed % 4]
    limits = [np.iinfo(kind) for kind in kinds]
    zeros = [int(draw.choice([each.min, draw.integers(each.min, each.max + 1)])) for each in limits]
    return tuple(Label(float(np.float32(scale)), zero) for scale, zero in zip(scales, zeros, strict=True))


def by_runtime(operator: str, kinds: list[str], labels: tuple[Label, ...], *, relu: bool = False) -> np.ndarray:
    """What ONNX Runtime makes of each pair of values of two maps, ``[a, b]``; a concatenation gives two such tables."""
    constants, nodes = [], []
    for name, kind, label in zip("aby", kinds, labels, strict=True):
        constants.append(numpy_helper.from_array(np.float32(label.scale), f"{name}_scale"))
        constants.append(numpy_helper.from_array(np.array(label.zero, kind), f"{name}_zero"))
        if name != "y":
            nodes.append(
                helper.make_node("DequantizeLinear", [name, f"{name}_scale", f"{name}_zero"], [f"{name}_real"])
            )
    axis = {"axis": 1} if operator == "Concat" else {}
    nodes.append(helper.make_node(operator, ["a_real", "b_real"], ["joined"], **axis))
    if relu:
        nodes.append(helper.make_node("Relu", ["joined"], ["bounded"]))
    nodes.append(helper.make_node("QuantizeLinear", ["bounded" if relu else "joined", "y_scale", "y_zero"], ["y"]))
    types = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
    model = as_model(
        nodes,
        {name: (types[kind], (1, 1, 256, 256)) for name, kind in zip("ab", kinds, strict=False)},
        {"y": (types[kinds[2]], None)},
        constants,
    )
    a, b = (np.arange(KINDS[kind].minimum, KINDS[kind].maximum + 1).astype(kind) for kind in kinds[:2])
    pairs = np.broadcast_to(a[:, None], (256, 256)), np.broadcast_to(b[None], (256, 256))
    (y,) = integer_session(model)[0].run(None, {name: pair[None, None] for name, pair in zip("ab", pairs, strict=True)})
    return y[0]


def joined(kind: type[Add | Concat | Mul], kinds: list[str], labels: tuple[Label, ...], **parameters):
    maps = [
        FeatureMap(channels=1, height=1, width=1, type=KINDS[each], zero_point=label.zero, scale=label.scale)
        for each, label in zip(kinds, labels, strict=True)
    ]
    output = replace(maps[2], channels=2 if kind is Concat else 1)
    window, low, high = Window(kernel=(1, 1)), output.type.minimum, output.type.maximum
    return kind(
        name="joined",
        **{"input": maps[0], "more": (maps[1],), "output": output, "window": window, "labels": labels},
        **{"low": low, "high": high, **parameters},
    )


def summed(op: Add, shares: Shares) -> np.ndarray:
    """What the hardware makes of each pair: shares added, the whole part raised where the fraction says so."""
    (a, b), one = (np.array(table) for table in shares.tables), 1 << shares.fraction
    total = a[:, None] + b
    whole = total // one + (total % one >= np.array(shares.rounding)[total // one % len(shares.rounding)])
    return np.clip(whole + op.zero_after, op.low, op.high)


@pytest.mark.parametrize("seed", range(50))
def test_sums_of_all_pairs(seed: int) -> None:
    """65,536 pairs: the golden model is ONNX Runtime, and the tables are the golden model."""
    kinds = [["int8"] * 3, ["uint8"] * 3, ["int8", "uint8", "uint8"], ["uint8", "uint8", "int8"]][seed // 4 % 4]
    labels = labels_for(kinds, seed)
    relu = seed % 3 == 0
    least = KINDS[kinds[2]].minimum
    fused = len(set(kinds)) == 1 and (not relu or labels[2].zero == least)
    op = joined(Add, kinds, labels, fused=fused, low=max(least, labels[2].zero) if relu else least)
    theirs = by_runtime("Add", kinds, labels, relu=relu)[0]
    np.testing.assert_array_equal(op.table, theirs)
    np.testing.assert_array_equal(summed(op, find_shares(op)), theirs)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 40))])
@pytest.mark.parametrize("operator", ["Sub", "Sum"])
def test_sums_in_floats_of_all_pairs(operator: str, seed: int) -> None:
    """Sub and Sum, for which ONNX Runtime has no integer kernel: 65,536 pairs as it rounds them, and the tables."""
    kinds = [["int8"] * 3, ["uint8"] * 3, ["int8", "uint8", "uint8"], ["uint8", "uint8", "int8"]][seed // 4 % 4]
    labels = labels_for(kinds, seed)
    relu = seed % 3 == 0
    least = KINDS[kinds[2]].minimum
    low = max(least, labels[2].zero) if relu else least
    op = joined(Sub if operator == "Sub" else Add, kinds, labels, fused=False, low=low)
    theirs = by_runtime(operator, kinds, labels, relu=relu)[0]
    np.testing.assert_array_equal(op.table, theirs)
    np.testing.assert_array_equal(summed(op, find_shares(op)), theirs)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 40))])
@pytest.mark.parametrize("kind", [Max, Min])
def test_extremes_of_all_pairs(kind: type[Max], seed: int) -> None:
    """65,536 pairs: quantising keeps the order, so what ONNX Runtime makes of each map decides."""
    kinds = [["int8"] * 3, ["uint8"] * 3, ["int8", "uint8", "uint8"], ["uint8", "uint8", "int8"]][seed // 4 % 4]
    labels = labels_for(kinds, seed)
    relu = seed % 3 == 0
    least = KINDS[kinds[2]].minimum
    op = joined(kind, kinds, labels, low=max(least, labels[2].zero) if relu else least)
    theirs = by_runtime(kind.__name__, kinds, labels, relu=relu)[0]
    first, second = (np.arange(each.type.minimum, each.type.maximum + 1) for each in op.inputs)
    pairs = (np.broadcast_to(values, (256, 256)) for values in (first[:, None], second))
    np.testing.assert_array_equal(op.compute(*pairs), theirs)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 40))])
def test_sums_of_several_maps(seed: int) -> None:
    """In float32, one map after the other: as ONNX Runtime adds them, and as integers with thresholds behind."""
    draw = np.random.default_rng([seed, 5])
    count = 3 + seed % 2
    kinds = [str(kind) for kind in draw.choice(["int8", "uint8"], count + 1)]
    labels = (*labels_for(kinds[:3], seed), *labels_for([*kinds[3:], "int8", "int8"][:3], seed + 4))[: count + 1]
    constants, nodes = [], []
    for name, kind, label in zip("abcde"[: count + 1], kinds, labels, strict=True):
        constants.append(numpy_helper.from_array(np.float32(label.scale), f"{name}_scale"))
        constants.append(numpy_helper.from_array(np.array(label.zero, kind), f"{name}_zero"))
    names = "abcde"[:count]
    for name in names:
        nodes.append(helper.make_node("DequantizeLinear", [name, f"{name}_scale", f"{name}_zero"], [f"{name}_real"]))
    last = "abcde"[count]
    nodes.append(helper.make_node("Sum", [f"{name}_real" for name in names], ["total"]))
    nodes.append(helper.make_node("QuantizeLinear", ["total", f"{last}_scale", f"{last}_zero"], ["y"]))
    types = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
    model = as_model(
        nodes,
        {name: (types[kind], (1, 1, 400, 400)) for name, kind in zip(names, kinds, strict=False)},
        {"y": (types[kinds[-1]], None)},
        constants,
    )
    maps = [
        draw.integers(KINDS[kind].minimum, KINDS[kind].maximum + 1, (1, 400, 400)).astype(kind) for kind in kinds[:-1]
    ]
    (theirs,) = integer_session(model)[0].run(None, {name: part[None] for name, part in zip(names, maps, strict=True)})
    features = [
        FeatureMap(channels=1, height=400, width=400, type=KINDS[kind], zero_point=label.zero, scale=label.scale)
        for kind, label in zip(kinds, labels, strict=True)
    ]
    low, high = features[-1].type.minimum, features[-1].type.maximum
    op = Sum(
        name="several",
        **{
            "input": features[0],
            "more": tuple(features[1:-1]),
            "output": features[-1],
            "window": Window(kernel=(1, 1)),
        },
        **{"labels": labels, "low": low, "high": high},
    )
    np.testing.assert_array_equal(op.compute(*maps), theirs[0])
    beats = [BeatFormat(channels=1, height=1, width=1, lanes=1, bits=8, signed=kind == "int8") for kind in kinds[:-1]]
    stage = SumStage(op, DEFAULT)
    compute = stage.compute(beats)
    finish = stage.finish(compute, 1)
    sums = []
    for values in zip(*(part[0, 0].tolist() for part in maps), strict=True):
        terms = [table[v - of.type.minimum] for table, v, of in zip(compute.tables, values, op.inputs, strict=True)]
        total = terms[0]
        for term in terms[1:]:
            total = to_float32(total + term)
        sums.append(total)
    found = finish.low + np.searchsorted(np.array(finish.thresholds[0]), sums, side="right")
    np.testing.assert_array_equal(found, theirs[0, 0, 0])


def test_sums_of_maps_of_scales_far_apart() -> None:
    """Integers that hold the terms of all would be too wide."""
    here = FeatureMap(channels=1, height=2, width=2, type=UINT8, zero_point=0, scale=1.0)
    scales = (1.0, 2.0**-25, 3.0, 1.0)
    op = Sum(
        name="far",
        **{"input": here, "more": (replace(here, scale=2.0**-25), replace(here, scale=3.0)), "output": here},
        **{
            "window": Window(kernel=(1, 1)),
            "labels": tuple(Label(scale, 0) for scale in scales),
            "low": 0,
            "high": 255,
        },
    )
    beat = BeatFormat(channels=1, height=2, width=2, lanes=1, bits=8, signed=False)
    assert max(bits for bits, _ in SumStage(op, DEFAULT).compute((beat,) * 3).additions) <= 53
    far = replace(op, labels=(Label(1.0, 0), Label(2.0**-46, 0), Label(3.0, 0), Label(1.0, 0)))
    with pytest.raises(PlanError, match=r"^far: its inputs' scales differ so much that sums need more than 53 bits; "):
        SumStage(far, DEFAULT).compute((beat,) * 3)


@pytest.mark.parametrize("seed", range(50))
def test_concatenations_of_all_values(seed: int) -> None:
    kinds = [["int8"] * 3, ["uint8"] * 3][seed // 4 % 2]
    labels = labels_for(kinds, seed)
    first, second = by_runtime("Concat", kinds, labels)
    op = joined(Concat, kinds, labels)
    np.testing.assert_array_equal(np.broadcast_to(op.tables[0][:, None], (256, 256)), first)
    np.testing.assert_array_equal(np.broadcast_to(op.tables[1][None], (256, 256)), second)


@pytest.mark.parametrize("seed", range(50))
def test_products_of_all_pairs(seed: int) -> None:
    """65,536 pairs: the golden model is ONNX Runtime, and the hardware's thresholds are the golden model."""
    kinds = [["int8"] * 3, ["uint8"] * 3][seed // 4 % 2]
    labels = labels_for(kinds, seed)
    if seed % 2:  # outputs that are not all at one end
        labels = (*labels[:2], Label(float(np.float32(labels[0].scale * labels[1].scale * 70)), labels[2].zero))
    relu = seed % 3 == 0 and labels[2].zero == KINDS[kinds[2]].minimum
    op = joined(Mul, kinds, labels)
    theirs = by_runtime("Mul", kinds, labels, relu=relu)[0]
    a, b = (np.arange(each.type.minimum, each.type.maximum + 1) for each in op.inputs)
    ours = op.compute(*(each.reshape(1, 256, 256) for each in np.meshgrid(a, b, indexing="ij")))
    np.testing.assert_array_equal(ours[0], theirs)
    beat = BeatFormat(channels=1, height=1, width=1, lanes=1, bits=8, signed=kinds[0] == "int8")
    stage = MulStage(op, DEFAULT)
    compute = stage.compute((beat, beat))
    finish = stage.finish(compute, 1)
    products = np.multiply.outer(a - labels[0].zero, b - labels[1].zero)
    least, most = -(1 << compute.result.width - 1), (1 << compute.result.width - 1) - 1
    assert least <= products.min() <= products.max() <= most
    found = finish.low + np.searchsorted(np.array(finish.thresholds[0]), products, side="right")
    np.testing.assert_array_equal(found, theirs)


@pytest.mark.parametrize(("count", "frames"), [(25, 3), pytest.param(130, 8, marks=pytest.mark.long)])
def test_random_graphs(count: int, frames: int) -> None:
    """Every value equals that of ONNX Runtime's session; a float operator of a dense layer may be left over."""
    compared = 0
    for seed in range(count):
        writer = random_graph(seed)
        model, x = writer.model(), writer.frames(frames)
        theirs, floats = by_integer_kernels(model, x)
        if not floats:
            np.testing.assert_array_equal(by_hwgen(model, x).reshape(theirs.shape), theirs, err_msg=f"seed {seed}")
            compared += 1
    assert compared > 0.7 * count


def forked(*behind: onnx.NodeProto, **more: np.generic | np.ndarray) -> onnx.ModelProto:
    """A convolution whose integers ``c`` are dequantised as ``short``; ``behind`` makes a map ``last`` of both.

    ``more`` constants.
    """
    random = np.random.default_rng(0)
    constants = {"s": np.float32(0.05), "z": np.uint8(100), "w_s": np.float32(0.02), "w_z": np.int8(0)}
    constants |= {"w": random.integers(-127, 128, (2, 2, 1, 1)).astype(np.int8), **more}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["weights"]),
        helper.make_node("Conv", ["real", "weights"], ["sums"]),
        helper.make_node("QuantizeLinear", ["sums", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["short"], name="short"),
        *behind,
        helper.make_node("QuantizeLinear", ["last", "s", "z"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.UINT8, ("batch", 2, 6, 6)) for name in "xy"]
    initialisers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "forked", ends[:1], ends[1:], initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


POOL = {"kernel_shape": [3, 3], "pads": [1] * 4}


@pytest.mark.parametrize("pooled", [False, True])
def test_bounds_of_one_reader_are_not_the_others(pooled: bool) -> None:
    """A Relu on one way, perhaps behind a pool that hands its map's bounds on, leaves the other way as it is."""
    pool = [helper.make_node("MaxPool", ["c"], ["pooled"], **POOL)] if pooled else []
    model = forked(
        *pool,
        helper.make_node("DequantizeLinear", ["pooled" if pooled else "c", "s", "z"], ["side"]),
        helper.make_node("Relu", ["side"], ["positive"]),
        helper.make_node("QuantizeLinear", ["positive", "s", "z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["long"]),
        helper.make_node("Add", ["long", "short"], ["last"]),
    )
    frames = np.random.default_rng(1).integers(0, 256, (3, 2, 6, 6)).astype(np.uint8)
    theirs, floats = by_integer_kernels(model, frames)
    assert not floats
    np.testing.assert_array_equal(by_hwgen(model, frames), theirs)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("relu", [False, True])
def test_sums_as_they_are_read(kind: str, relu: bool) -> None:
    """With one type and without a Relu that does anything ONNX Runtime has one kernel, which rounds another way."""
    differ = 0
    for seed in range(6):
        random = np.random.default_rng(seed)
        # Ties, which an odd zero point turns the other way.
        scale, zero = np.float32(random.choice([0.03125, 0.015625])), np.array(random.integers(20, 100), kind)
        model = forked(
            helper.make_node("QuantizeLinear", ["short", "other", "other_zero"], ["side"]),
            helper.make_node("DequantizeLinear", ["side", "other", "other_zero"], ["long"]),
            helper.make_node("Add", ["long", "short"], ["total"]),
            helper.make_node("Relu" if relu else "Identity", ["total"], ["last"]),
            **{"other": scale, "other_zero": zero, "s": np.float32(0.0625), "z": np.uint8(101)},
        )
        frames = random.integers(0, 256, (6, 2, 6, 6)).astype(np.uint8)
        theirs, floats = by_integer_kernels(model, frames)
        assert not floats
        np.testing.assert_array_equal(by_hwgen(model, frames), theirs)
        (op,) = (layer for layer in to_network(model, "forked").layers if isinstance(layer, Add))
        assert op.fused == (kind == "uint8" and not relu)
        differ += (op.table != replace(op, fused=not op.fused).table).any()
    assert differ > 2  # or the test says nothing


@pytest.mark.parametrize(
    ("kind", "behind"), [("Resize", False), ("Flatten", False), ("Flatten", True), ("MaxPool", False)]
)
def test_sums_around_what_stays_in_floats(kind: str, behind: bool) -> None:
    """ONNX Runtime moves a DequantizeLinear past a MaxPool, but not past a Resize or a Flatten."""
    attributes = {"Resize": {"mode": "nearest"}, "Flatten": {}, "MaxPool": {"kernel_shape": [1, 1]}}[kind]

    def moved(source: str, target: str) -> onnx.NodeProto:
        inputs = [source, "", "size"] if kind == "Resize" else [source]
        return helper.make_node(kind, inputs, [target], name=f"to_{target}", **attributes)

    model = forked(
        helper.make_node("MaxPool", ["c"], ["pooled"], **POOL),
        helper.make_node("DequantizeLinear", ["pooled", "s", "z"], ["long"]),
        *([] if behind else [moved("long", "a"), moved("short", "b")]),
        helper.make_node("Add", ["long", "short"] if behind else ["a", "b"], ["total" if behind else "last"]),
        *([moved("total", "last")] if behind else []),
        # Ties, which an odd zero point turns the other way.
        **{"s": np.float32(0.0625), "z": np.uint8(101), "size": np.array([1, 1, 2, 2], np.float32)},
        wider=np.float32(0.125),
    )
    model.graph.node[-1].input[1] = "wider"
    shape = model.graph.output[0].type.tensor_type.shape
    del shape.dim[2 if kind == "Flatten" else 4 :]
    for number, dim in enumerate(shape.dim):
        dim.dim_param = f"side{number}"
    frames = np.random.default_rng(1).integers(0, 256, (3, 2, 6, 6)).astype(np.uint8)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    np.testing.assert_array_equal(by_hwgen(model, frames).reshape(theirs.shape), theirs)
    (op,) = (layer for layer in to_network(model, "forked").layers if isinstance(layer, Add))
    assert op.fused == (kind == "MaxPool")
    assert (op.table != replace(op, fused=not op.fused).table).any()


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Concat", "Sum", "Max", "Min"])
@pytest.mark.parametrize("relu", [False, True])
def test_pools_behind_joins(operator: str, relu: bool) -> None:
    """A max pool before the quantiser: as one behind it, and no reason to compute in floats."""
    random = np.random.default_rng(0)
    for seed in range(4):
        quantised = {"s": np.float32(0.0625), "z": np.uint8(random.integers(20, 200))}
        scale = np.float32(random.choice([0.125, 0.11])) if operator != "Mul" else np.float32(0.3)
        zero = np.uint8(0 if relu and operator == "Mul" else random.integers(0, 99))
        model = forked(
            helper.make_node("MaxPool", ["c"], ["pooled"], **POOL),
            helper.make_node("DequantizeLinear", ["pooled", "s", "z"], ["long"]),
            helper.make_node(operator, ["long", "short"], ["both"], **({"axis": 1} if operator == "Concat" else {})),
            helper.make_node("Relu" if relu else "Identity", ["both"], ["bounded"]),
            helper.make_node("MaxPool", ["bounded"], ["last"], kernel_shape=[2, 2], strides=[2, 2]),
            **quantised,
            **{"other": scale, "other_zero": zero},
        )
        model.graph.node[-1].input[1:] = ["other", "other_zero"]
        for number, dim in enumerate(model.graph.output[0].type.tensor_type.shape.dim):
            dim.dim_param = f"side{number}"
        frames = np.random.default_rng(seed).integers(0, 256, (3, 2, 6, 6)).astype(np.uint8)
        theirs, floats = by_integer_kernels(model, frames)
        assert not floats
        assert len(np.unique(theirs)) > (4 if operator == "Max" else 8)
        np.testing.assert_array_equal(by_hwgen(model, frames), theirs)


def test_floats_behind_a_sum() -> None:
    model = forked(
        helper.make_node("Add", ["short", "real"], ["total"], name="sum"),
        helper.make_node("AveragePool", ["total"], ["last"], name="next", **POOL),
    )
    with pytest.raises(ModelError, match=r"Add node 'sum': must be followed by a QuantizeLinear"):
        to_network(model, "forked")


@pytest.mark.parametrize(
    ("behind", "message"),
    [
        (
            [
                ("MaxPool", ["c"], "less"),
                ("DequantizeLinear", ["less", "s", "z"], "long"),
                ("Mul", ["short", "long"], "last"),
            ],
            "must take maps of one size, not 2x6x6 and 2x1x6",
        ),
    ],
)
def test_products_that_are_refused(behind: list[tuple[str, list[str], str]], message: str) -> None:
    nodes = [
        helper.make_node(
            kind, inputs, [output], name="times", **({"kernel_shape": [6, 1]} if kind == "MaxPool" else {})
        )
        for kind, inputs, output in behind
    ]
    with pytest.raises(ModelError, match=f"^forked: Mul node 'times': {message}"):
        to_network(forked(*nodes, z8=np.int8(0)), "forked")


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 19)])
def test_random_graphs_in_hardware(seed: int, tmp_path: Path) -> None:
    """Through Icarus, or Amaranth's simulator without it: the golden model's values in the predicted cycles."""
    simulator = "verilator" if seed % 13 == 3 else "icarus" if shutil.which("iverilog") else "amaranth"
    writer = random_graph(seed)
    path = tmp_path / "random.onnx"
    onnx.save(writer.model(), path)
    design = hwgen.load(path).plan("vc709", dsp=400, multipliers="dsp")
    result = design.simulate(writer.frames(3), simulator=simulator)
    assert result.mismatches == 0
    assert result.latency == result.predicted_latency
    assert result.interval == result.predicted_interval


def parts_of(seed: int) -> list:
    """Configurations of joins, sums, tables, whole maps, products and upsampling."""
    kinds = ["int8"] * 3

    def beat(channels: int, lanes: int, pixels: int, side: int = 16) -> BeatFormat:
        size = {"height": side, "width": side}
        return BeatFormat(channels=channels, **size, lanes=lanes, bits=8, signed=True, pixels=pixels)

    labels, lanes, pixels = labels_for(kinds, seed), 1 + seed % 3, 1 + seed % 2
    total, joint = joined(Add, kinds, labels, fused=True), joined(Concat, kinds, labels)
    shares = find_shares(total)
    both = JoinConfig(inputs=(beat(16, lanes, pixels),) * 2)
    turns = JoinConfig(inputs=(beat(16, lanes, pixels), beat(24, lanes, pixels)), in_turn=True)
    whole = WholeMapConfig(input=beat(64 << seed % 2, lanes, pixels, 7))
    pixel = replace(beat(64, lanes, 1, 1), signed=False)
    scaled = JoinConfig(inputs=(beat(64, lanes, pixels), pixel), spread=True)
    return [
        *(both, turns, whole, RunningSumConfig(window=whole)),
        TableSumConfig(
            window=both,
            tables=shares.tables,
            fraction=shares.fraction,
            rounding=shares.rounding,
            zero_point=total.zero_after,
            low=total.low,
            high=total.high,
            bits=8,
            signed=True,
        ),
        RecodeConfig(window=turns, tables=tuple(tuple(table.tolist()) for table in joint.tables), bits=8, signed=True),
        *(scaled, ProductConfig(window=scaled, zeros=(-20, 3))),
        UpsampleConfig(input=beat(8, lanes, pixels), factors=(2, 3)),
        UpsampleConfig(input=beat(64, lanes, 1), factors=(2, 2)),
    ]


def functions_of(seed: int) -> list:
    """Configurations of functions of one value, tables in block RAM and in LUTs, and of sums of three maps."""
    draw, lanes = np.random.default_rng(seed), 1 + seed % 3
    beat = BeatFormat(channels=3 * lanes, height=4, width=4, lanes=lanes, bits=8, signed=True)
    one = replace(beat, channels=lanes)
    tables = [
        ChannelTableConfig(
            window=JoinConfig(inputs=(each,), in_turn=True),
            tables=Weights(draw.integers(-100, 100, each.channels * 256).tolist()),
            bits=8,
            signed=True,
            tables_in=where,
        )
        for each, where in ((beat, "block"), (beat, "lut"), (one, None))
    ]
    shared = RecodeConfig(
        window=JoinConfig(inputs=(beat,), in_turn=True),
        tables=(tuple(draw.integers(0, 256, 256).tolist()),),
        bits=8,
        signed=False,
    )
    sums = [
        FloatJoinConfig(
            window=JoinConfig(inputs=(beat,) * 3),
            tables=tuple(tuple(to_float32(unit * value) for value in range(-128, 128)) for unit in units),
        )
        for units in ((70001, 12345677, 9), (16777213, 12345677 << 20, 9))
    ]
    return [*tables, shared, *sums]


@pytest.mark.parametrize("excess", [0, 1, 7, 8, 9, 12])
def test_float_sums_that_drop_bits(excess: int) -> None:
    """Sums of two float32 terms of which rounding drops up to ``excess`` bits, as NumPy adds them, and the latency."""
    rng = np.random.default_rng(excess)
    beat = BeatFormat(channels=1, height=16, width=16, lanes=1, bits=8, signed=False)
    largest = to_float32((1 << 23 + excess) - 1 - (1 << excess))
    tables = [[largest, *(to_float32(int(term)) for term in rng.integers(0, largest, 255))] for _ in range(2)]
    config = FloatJoinConfig(window=JoinConfig(inputs=(beat,) * 2), tables=tuple(map(tuple, tables)))
    assert [bits for _, bits in config.additions] == [excess]
    operands = rng.integers(0, 256, (200, 2))
    operands[0] = 0
    trace = run(config.component(), [pack(pair.tolist(), 8) for pair in operands], len(operands))
    first, second = (np.array(table, np.float32)[values] for table, values in zip(tables, operands.T, strict=True))
    assert [unpack(word, config.result.width, True, 1)[0] for word in trace.words] == (first + second).tolist()
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


def extremes_of(seed: int) -> list:
    """Configurations of the greatest and the least of two maps and of three, with tables and without."""
    draw, lanes, pixels = np.random.default_rng(seed), 1 + seed % 3, 1 + seed % 2
    beat = BeatFormat(channels=3 * lanes, height=4, width=4, lanes=lanes, bits=8, signed=True, pixels=pixels)
    tables = [tuple(draw.integers(-128, 128, 256).tolist()) for _ in range(3)]
    common = {"bits": 8, "signed": True}
    return [
        ExtremeConfig(window=JoinConfig(inputs=(beat,) * 2), tables=((), ()), greatest=True, **common),
        ExtremeConfig(
            window=JoinConfig(inputs=(beat,) * 3), tables=(tables[0], (), tables[1]), greatest=False, **common
        ),
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([*parts_of(3), *functions_of(3)[:1]], id="joins and a table"),
        pytest.param(extremes_of(3), id="extremes", marks=pytest.mark.long),
        pytest.param(functions_of(3), id="functions", marks=pytest.mark.long),
    ],
)
def test_estimates_and_paths(parts: list) -> None:
    """Against Yosys: flip-flops within a quarter; LUTs not too few, as tables of simple functions take fewer."""
    measured, paths = synthesis.measure_paths(parts)
    for part, found, path in zip(parts, measured, paths, strict=True):
        expected = part.resources
        assert (expected.dsp, expected.bram36) == (found.dsp, found.bram36), part
        assert abs(expected.ff - found.ff) <= max(0.25 * found.ff, 4), part
        assert 0.85 * found.lut - 4 <= expected.lut <= 2.5 * found.lut + 12, part
        assert path is None or path.delay <= 3.3


@pytest.mark.parametrize("seed", range(4))
def test_tables_are_what_they_must_be(seed: int) -> None:
    both, turns, _, _, total, recode, *_ = parts_of(seed)
    with pytest.raises(ConfigError, match=r"^window must take two inputs of at most 8 bits at once, not "):
        replace(total, window=turns)
    with pytest.raises(ConfigError, match=r"^tables must have an entry for each value of their input, \[.*\], not \["):
        replace(total, tables=(total.tables[0], total.tables[1][1:]))
    with pytest.raises(ConfigError, match=r"^rounding must have 256 entries from 0 to "):
        replace(total, rounding=(-1,) * 256)
    with pytest.raises(ConfigError, match=r"^window must take 2 inputs in turn, not "):
        replace(recode, window=both)
    with pytest.raises(ConfigError, match=r"^tables must have an entry for each of 256 values, not 3$"):
        replace(recode, tables=((1, 2, 3), ()))
    with pytest.raises(ConfigError, match=r"^tables must have entries for an input of type "):
        replace(recode, tables=((), recode.tables[1]), signed=False)
    plain, tabled = extremes_of(seed)
    assert (plain.latency, tabled.latency) == (1, 3)
    for changes in ({"window": turns}, {"tables": ((),)}, {"window": JoinConfig(inputs=(both.input,))}):
        with pytest.raises(ConfigError, match=r"^window must take \d inputs at once, two at least, not "):
            replace(plain, **changes)
    with pytest.raises(ConfigError, match=r"^tables must have entries for an input of type "):
        replace(plain, bits=7)
    with pytest.raises(ConfigError, match=r"^tables must have an entry for each of 256 values, not 3$"):
        replace(tabled, tables=(tabled.tables[0], (), (1, 2, 3)))
    with pytest.raises(ConfigError, match=r"^window must take several inputs at once, not "):
        FloatJoinConfig(window=turns, tables=())
    with pytest.raises(ConfigError, match=r"^tables must have an entry for each value of their input, \[.*\], not \["):
        FloatJoinConfig(window=both, tables=((0,) * 256, (0,) * 255))
    with pytest.raises(ConfigError, match=r"^inputs must be one or more that agree in lanes, not "):
        JoinConfig(inputs=(both.input, replace(both.input, lanes=both.input.lanes + 1)))
