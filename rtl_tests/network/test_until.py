"""A part of a model in hardware, and the rest in ONNX Runtime on the host.

Referee: ONNX Runtime on the whole model.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from foreign import TEN, Writer, begun, by, by_onnxruntime, conv, real_conv, ten_obstacles
from onnx import TensorProto, helper
from onnx_models import random_graph, with_outputs
from referees import FLOAT_OPERATORS, integer_session
from refusals import refusals_in

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import ModelError, PlanError
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import checked, survey, to_part
from hwgen.network.onnx.walk import ImportWalk
from hwgen.network.options import ModelOptions
from hwgen.network.quantise import prepare_inputs


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> str:
    onnx.save(model, folder / name)
    return str(folder / name)


def check_values(model: onnx.ModelProto, x: np.ndarray, part: hwgen.Model) -> None:
    """Every output of the whole model, in type and shape, from the part in hardware."""
    theirs, ours = by_onnxruntime(model, x), part.golden(x)
    ours = ours if isinstance(ours, dict) else {part.output_names[0]: ours}
    assert list(ours) == list(theirs)
    for name, values in theirs.items():
        assert ours[name].dtype == values.dtype
        np.testing.assert_array_equal(ours[name], values, err_msg=name)


# Models


def _head(writer: Writer) -> None:
    """An unsupported head: a float convolution behind the last integers."""
    writer.layer(conv)
    writer.layer(conv)
    writer.give(writer.add("Tanh", writer.conv(writer.dequantise(writer.tensor), real=True)))


def _two_branches(writer: Writer) -> None:
    """One branch has what can't be built; the map before the fork is needed again."""
    writer.layer(conv)
    fork = writer.tensor
    writer.layer(conv)
    one = writer.tensor
    writer.tensor = fork
    writer.layer(by("MeanVarianceNormalization", axes=[2, 3]))
    two = writer.tensor
    writer.tensor = writer.quantise(writer.add("Add", writer.dequantise(one), writer.dequantise(two)))
    writer.layer(conv)


def _two_heads(writer: Writer) -> None:
    """Two outputs: one can be built whole, the other one not; and a third one, of integers on the way."""
    writer.layer(conv)
    fork = writer.tensor
    writer.layer(conv)
    writer.give(writer.dequantise(writer.tensor))
    writer.tensor = fork
    writer.layer(by("CumSum", np.int64(2)))
    writer.give(writer.add("Softmax", writer.dequantise(writer.tensor), axis=1))
    writer.give(fork, TensorProto.UINT8)


def _float_input(writer: Writer) -> None:
    """What is left needs the model's float input again."""
    writer.layer(conv)
    real = writer.add("MeanVarianceNormalization", "x", axes=[2, 3])
    writer.give(writer.add("Sub", writer.dequantise(writer.tensor), real))


def _integer_input(writer: Writer) -> None:
    """What is left needs the quantised input again."""
    first = writer.tensor
    writer.layer(conv)
    normalised = writer.add("MeanVarianceNormalization", writer.dequantise(first), axes=[2, 3])
    writer.tensor = writer.quantise(writer.add("Sub", writer.dequantise(writer.tensor), normalised))


def _pool(writer: Writer) -> None:
    """A pool of dequantised values, built in integers, right before what can't be built."""
    writer.layer(conv)
    pooled = writer.add("MaxPool", writer.dequantise(writer.tensor), kernel_shape=[2, 2], strides=[2, 2])
    writer.give(writer.add("MeanVarianceNormalization", pooled, axes=[2, 3]))


def _floats_before(writer: Writer) -> None:
    """A convolution whose sums go to what can't be built: the host has to do it."""
    writer.layer(conv)
    writer.layer(conv, by("Trilu"))
    writer.layer(conv)


def _flat(writer: Writer) -> None:
    writer.layer(conv)
    writer.layer(by("Flatten"))
    factor = writer.random.normal(0, 1, (256, 5)).astype(np.float32)
    writer.give(writer.add("MatMul", writer.dequantise(writer.tensor), writer.constant(factor)), rank=2)


def _inner_graph(writer: Writer) -> None:
    """A graph inside an operator takes tensors from around it."""
    writer.layer(conv)
    inner = writer.tensor
    writer.layer(conv)
    one, two = writer.dequantise(inner), writer.dequantise(writer.tensor)
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [tensor], ["taken"])],
            "branch",
            [],
            [helper.make_tensor_value_info("taken", TensorProto.FLOAT, [None] * 4)],
        )
        for tensor in (one, two)
    ]
    condition = writer.add("Greater", writer.add("Size", two), writer.constant(np.int64(0)))
    writer.give(writer.add("If", condition, then_branch=branches[0], else_branch=branches[1]))


MODELS = {
    function.__name__.strip("_"): function
    for function in (
        *(_head, _two_branches, _two_heads, _float_input, _integer_input, _pool, _floats_before, _flat, _inner_graph),
    )
}
BUILT: dict[str, tuple[int, int]] = {
    "head": (2, 1),
    "two_branches": (2, 2),
    "two_heads": (2, 2),
    "float_input": (1, 1),
    "integer_input": (1, 1),
    "pool": (2, 1),
    "floats_before": (1, 1),
    "flat": (1, 1),
    "inner_graph": (2, 2),
}
"""Layers, and outputs of the hardware."""


@pytest.mark.parametrize("name", MODELS)
def test_auto_gives_the_model_s_own_outputs(name: str, tmp_path: Path) -> None:
    writer = begun()
    MODELS[name](writer)
    model, x = writer.model(), writer.frames()
    path = saved(model, tmp_path)
    with pytest.raises(ModelError):
        hwgen.load(path, until="end")
    part = hwgen.load(path, until="auto")
    assert (len(part.network.layers), len(part.network.output_names)) == BUILT[name]
    check_values(model, x, part)
    found = hwgen.check(path).to_json()["until"]
    assert found["tensors"] == part.host["until"]
    assert found["macs_covered"] == part.host["macs_covered"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_half_of_the_products_are_built_without_options(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two convolutions before what can't be built, and ``count`` of the same size behind it."""
    writer = begun()
    for _ in range(2):
        writer.layer(conv)
    writer.layer(by("MeanVarianceNormalization", axes=[2, 3]))
    for _ in range(count):
        writer.layer(conv)
    model, x = writer.model(), writer.frames()
    path, share = saved(model, tmp_path), f"{2 / (2 + count):.1%} of the multiply-accumulates"
    said = hwgen.check(path)
    assert said.macs_built == (pytest.approx(2 / (2 + count)) if count < 3 else 0)
    arguments = ["plan", path, "--board", "zedboard", "-o", str(tmp_path / "plan.json")]
    capsys.readouterr()
    if count == 3:
        with pytest.raises(ModelError, match=f"is not supported; .*; --until auto builds the part before it, {share}$"):
            hwgen.load(path)
        assert "--until auto builds the part until" in said.table()
        assert cli.main(arguments) == 2
        return
    part = hwgen.load(path)
    check_values(model, x, part)
    assert part.host["until"] == hwgen.load(path, until="auto").host["until"]
    assert "hwgen builds (--until end insists on the whole model) the part until" in said.table()
    assert cli.main(arguments) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"hwgen: warning: the hardware ends at '{integers_of(writer)[1]}', with {share}, and ONNX Runtime runs the "
        "rest on the host: MeanVarianceNormalization node 'meanvariancenormalization10': operator "
        "MeanVarianceNormalization is not supported; --until end insists on the whole model"
    )
    assert cli.main([*arguments, "--until", "end"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"; --until auto builds the part before it, {share}")


@pytest.mark.parametrize("named", [True, False])
def test_ten_obstacles(named: bool, tmp_path: Path) -> None:
    """By the golden model, from the command line; nodes need no names."""
    writer = ten_obstacles(named=named)
    model, x = writer.model(), writer.frames()
    path = saved(model, tmp_path)
    np.save(tmp_path / "x.npy", x)
    files = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy")]
    assert cli.main(["golden", path, "--until", "auto", *files]) == 0
    (expected,) = by_onnxruntime(model, x).values()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


@pytest.mark.long
@pytest.mark.parametrize("name", [*MODELS, "ten_obstacles"])
def test_in_hardware(name: str, tmp_path: Path) -> None:
    """Outputs of the whole model from the circuit of its part; cycles are as predicted."""
    writer = ten_obstacles() if name == "ten_obstacles" else begun()
    MODELS.get(name, lambda writer: None)(writer)
    model, x = writer.model(), writer.frames()
    result = (
        hwgen.load(saved(model, tmp_path), until="auto")
        .plan("vc709", dsp=400, multipliers="dsp")
        .simulate(x, simulator="amaranth")
    )
    assert result.ok
    ours = result.outputs if isinstance(result.outputs, dict) else {"": result.outputs}
    for one, other in zip(ours.values(), by_onnxruntime(model, x).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_several_outputs_in_hardware(tmp_path: Path) -> None:
    """Maps that the rest needs besides leave the hardware as well; cycles are as predicted."""
    writer = begun(frame=(4, 3, 4))
    _two_heads(writer)
    model, x = writer.model(), writer.frames()
    part = hwgen.load(saved(model, tmp_path), until="auto")
    result = part.plan("zedboard", dsp=40, multipliers="dsp").simulate(x, simulator="amaranth")
    assert result.ok
    assert isinstance(result.outputs, dict)
    assert isinstance(result.integers, dict)
    assert list(result.integers) == part.host["until"]
    theirs = by_onnxruntime(model, x)
    assert list(result.outputs) == list(theirs)
    for name, values in theirs.items():
        np.testing.assert_array_equal(result.outputs[name], values)


def chain(count: int = 3) -> Writer:
    """Convolutions all of which can be built; the map behind convolution ``n`` is ``maps[n]``."""
    writer = begun()
    for _ in range(count):
        writer.layer(conv)
    writer.give(writer.dequantise(writer.tensor))
    return writer


def integers_of(writer: Writer) -> list[str]:
    return [node.output[0] for node in writer.nodes if node.op_type == "QuantizeLinear"][1:]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_tensor_by_its_name(place: int, tmp_path: Path) -> None:
    """The share of multiply-accumulates is that of the layers, which are of one size here."""
    writer = chain()
    tensor = integers_of(writer)[place]
    model = writer.model()
    part = hwgen.load(saved(model, tmp_path), until=tensor)
    assert len(part.network.layers) == place + 1
    assert part.host["until"] == [tensor]
    assert part.host["macs_covered"] == pytest.approx((place + 1) / 3)
    check_values(model, writer.frames(), part)


def test_a_relu_behind_the_end_stays_behind_it(tmp_path: Path) -> None:
    """It would have become a bound of the layer before it."""
    writer = begun()
    writer.layer(conv)
    end = writer.tensor
    writer.layer(by("Relu"))
    model, x = writer.model(), writer.frames()
    part = hwgen.load(saved(model, tmp_path), until=end)
    check_values(model, x, part)
    integers = part.golden(x, integers=True)
    assert isinstance(integers, np.ndarray)
    assert integers.min() < 100  # the zero point


def test_all_of_a_model(tmp_path: Path) -> None:
    """Where nothing is in the way, ``auto`` builds the same as without it."""
    writer = chain()
    path = saved(writer.model(), tmp_path)
    whole, auto = hwgen.load(path), hwgen.load(path, until="auto")
    assert whole.host == auto.host
    assert "until" not in auto.host
    assert whole.plan("zedboard").to_json() == auto.plan("zedboard").to_json()


def test_built_in_network() -> None:
    """It gives its last integers, with the rest on the host as without it."""
    whole = hwgen.load("lenet5")
    part = hwgen.load("lenet5", until="pool1_out_QuantizeLinear_Output")
    x = whole.random_frames(3)
    assert len(part.network.layers) == 2
    np.testing.assert_array_equal(part.golden(x), whole.golden(x))


@pytest.mark.parametrize("batch", [1, 2])
def test_batch_of_the_model(batch: int, tmp_path: Path) -> None:
    writer = begun()
    _head(writer)
    model, x = writer.model(), writer.frames(3)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    part = hwgen.load(saved(model, tmp_path), until="auto")
    parts = [
        by_onnxruntime(model, np.resize(x[start : start + batch], (batch, 4, 8, 8))) for start in range(0, 3, batch)
    ]
    (name,) = parts[0]
    np.testing.assert_array_equal(part.golden(x), np.concatenate([each[name] for each in parts])[:3])


def test_integers_given_where_the_rest_takes_floats(tmp_path: Path) -> None:
    """They stand for floats, which the rest gets."""
    writer = begun()
    _float_input(writer)
    model = writer.model()
    part = hwgen.load(saved(model, tmp_path), until="auto")
    integers = part.random_frames(3)
    reals = (integers.astype(np.float32) - 100) / 16
    (expected,) = by_onnxruntime(model, reals).values()
    np.testing.assert_array_equal(part.golden(integers), expected)
    np.testing.assert_array_equal(part.golden(reals), expected)


# Random graphs


def given_by(network: Network, x: np.ndarray) -> dict[str, np.ndarray]:
    prepared = prepare_inputs(network, x)
    made = host.all_outputs(network, golden.outputs(network, prepared), [x], prepared)
    return dict(zip(host.names(network), made, strict=True))


def by_session(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray] | None:
    """``None`` where ONNX Runtime computes sums or products in floats."""
    session, optimised = integer_session(model)
    if {node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS:
        return None
    names = [end.name for end in session.get_outputs()]
    return dict(zip(names, session.run(None, {"image": x}), strict=True))


def check_random(network: Network, x: np.ndarray, theirs: dict[str, np.ndarray], where: str) -> None:
    ours = given_by(network, x)
    assert list(ours) == list(theirs)
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name].reshape(values.shape), values, err_msg=f"{where}, {name}")


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.long)])
def test_any_tensor_of_random_graphs(count: int) -> None:
    """Graphs with forks, sums, concatenations and several outputs, cut anywhere."""
    compared = 0
    for seed in range(count):
        writer = random_graph(seed)
        model, x = with_outputs(writer, 1 + seed % 3), writer.frames(3)
        theirs = by_session(model, x)
        if theirs is None:
            continue
        with checked(model, "m") as given:
            maps = [name for name, value in ImportWalk(given, "m").maps().items() if value.source is not None]
        for tensor in np.random.default_rng(seed).choice(maps, min(3, len(maps)), replace=False):
            part = to_part(model, "m", "m", ModelOptions(until=str(tensor)))
            assert part.host is not None
            assert part.host.remainder is not None
            assert tensor in part.host.remainder.tensors
            check_random(part, x, theirs, f"seed {seed}, until {tensor}")
            compared += 1
    assert compared > count


def test_a_cut_before_a_concatenation_that_the_host_flattens() -> None:
    """ONNX's shape inference does not know the sizes behind a QLinearConcat, of which a Reshape makes rows."""
    writer = random_graph(75)
    model, x = with_outputs(writer, 1), writer.frames(3)
    assert [node.op_type for node in model.graph.node][-3:] == ["QLinearConcat", "Reshape", "QLinearMatMul"]
    theirs = by_session(model, x)
    assert theirs is not None
    for tensor in ("layer_stem9", "layer0_a15", "layer0_b21"):
        check_random(to_part(model, "m", "m", ModelOptions(until=tensor)), x, theirs, f"until {tensor}")


def spoilt(model: onnx.ModelProto, seed: int) -> None:
    """Put one to three operators that can't be built behind any DequantizeLinear of maps."""
    random, nodes = np.random.default_rng(seed), model.graph.node
    constants = {tensor.name for tensor in model.graph.initializer}
    for number in range(int(random.integers(1, 4))):
        places = [
            place
            for place, node in enumerate(nodes)
            if node.op_type == "DequantizeLinear" and node.input[0] not in constants
        ]
        if places:
            place = int(random.choice(places))
            given, inner = nodes[place].output[0], f"{nodes[place].output[0]}_{number}"
            nodes[place].output[0] = inner
            operator = str(random.choice(["Trilu", "Hardmax", "LpNormalization"]))
            nodes.insert(place + 1, helper.make_node(operator, [inner], [given], name=f"spoilt{number}"))


@pytest.mark.parametrize("count", [25, pytest.param(165, marks=pytest.mark.long)])
def test_what_comes_before_in_random_graphs(count: int) -> None:
    """What `check` says of ``auto`` is what is built."""
    compared = 0
    for seed in range(count):
        writer = random_graph(seed)
        model, x = with_outputs(writer, 1 + seed % 3), writer.frames(3)
        if by_session(model, x) is None:
            continue
        spoilt(model, seed)
        found = survey(model, "m", "m")
        if found.part is None:
            continue
        part = to_part(model, "m", "m", ModelOptions(until="auto"))
        assert part.host is not None
        assert part.host.remainder is not None
        assert part.host.remainder.tensors == found.part.tensors
        assert part.host.remainder.macs_covered == pytest.approx(found.part.macs_covered)
        theirs = by_session(model, x)
        if theirs is not None:
            check_random(part, x, theirs, f"seed {seed}")
            compared += 1
    assert compared >= count // 10


@pytest.mark.parametrize("again", ["integers", "floats", "maps"])
def test_channels_last(again: str, tmp_path: Path) -> None:
    """The hardware's maps lie otherwise than the model's tensors, which the rest takes."""
    writer = Writer(frame=(5, 6, 4))
    writer.channels = 4
    writer.tensor = writer.quantise("x")
    first = writer.dequantise(writer.tensor)
    moved = writer.add("Transpose", first, perm=[0, 3, 1, 2])
    back = writer.add("Transpose", writer.conv(moved), perm=[0, 2, 3, 1])
    writer.tensor = writer.quantise(back)
    real = writer.dequantise(writer.tensor)
    other = {"integers": first, "floats": "x", "maps": real}[again]
    writer.give(writer.add("Sub", writer.add("CumSum", other, writer.constant(np.int64(3))), real))
    model = writer.model()
    part = hwgen.load(saved(model, tmp_path), until="auto")
    assert len(part.network.layers) == 1
    check_values(model, writer.frames(), part)


# plan.json


@pytest.mark.long
def test_a_plan_says_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that are given the plan build the same part; the folder of a build has all that they need."""
    monkeypatch.chdir(tmp_path)
    writer = ten_obstacles()
    model, x = writer.model(), writer.frames()
    saved(model, tmp_path)
    np.save("x.npy", x)
    board = ["model.onnx", "--board", "zedboard"]
    tensor = integers_of(writer)[1]
    assert cli.main(["build", *board, "--multipliers", "dsp", "--until", "auto", "-o", "result"]) == 0
    said = capsys.readouterr().out
    line = f"a part of the model, until '{tensor}': 19.3% of the MACs; ONNX Runtime computes the rest on the host"
    assert line in said
    assert f"This is {line}." in Path("result/report.md").read_text(encoding="utf-8")
    document = json.loads(Path("result/plan.json").read_text(encoding="utf-8"))
    assert document["until"] == [tensor]
    assert document["macs_covered"] == pytest.approx(2 * 144 * 64 / 95_616)
    assert document["output"]["name"] == tensor
    assert document["host"]["behind"].count("Conv") == 11
    given = ["--plan", "result/plan.json", "--input", "x.npy", "--output", "y.npy", "--simulator", "amaranth"]
    assert cli.main(["simulate", *board, *given]) == 0
    (expected,) = by_onnxruntime(model, x).values()
    np.testing.assert_array_equal(np.load("y.npy"), expected)
    capsys.readouterr()
    assert cli.main(["simulate", *board, *given, "--until", integers_of(writer)[0]]) == 2
    assert f"it is for its part until '{tensor}', not for its part until" in capsys.readouterr().err


def test_plans_of_parts_and_wholes_are_told_apart(tmp_path: Path) -> None:
    path = saved(chain().model(), tmp_path)
    end = integers_of(chain())[2]
    whole, part = hwgen.load(path), hwgen.load(path, until=end)
    for one, other, message in (
        (whole, part, f"it is for its part until '{end}', not for the whole model"),
        (part, whole, f"it is for the whole model, not for its part until '{end}'"),
    ):
        (tmp_path / "plan.json").write_text(other.plan("zedboard").to_json())
        with pytest.raises(PlanError, match=message):
            one.plan("zedboard", plan=tmp_path / "plan.json")


# What is refused


def test_the_nearest_tensors_are_named(tmp_path: Path) -> None:
    writer = chain()
    path = saved(writer.model(), tmp_path)
    one, two, _ = integers_of(writer)
    floats = next(node.output[0] for node in writer.nodes[5:] if node.op_type == "Conv")
    with pytest.raises(ModelError) as error:
        hwgen.load(path, until=floats)
    assert str(error.value).startswith(
        f"{path}: the hardware can't end at {floats!r}: it is not a map of integers that"
    )
    assert str(error.value).endswith(f"the nearest that would do: {one!r} or {two!r}")


@pytest.mark.parametrize(("until", "message"), refusals_in("until_tensors_at_which_nothing_ends.txt"))
def test_tensors_at_which_nothing_ends(until: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message) as error:
        hwgen.load(saved(chain().model(), tmp_path), until=until)
    assert len(error.value.lines) == 1


def test_what_comes_before_must_be_built(tmp_path: Path) -> None:
    writer = ten_obstacles()
    path = saved(writer.model(), tmp_path)
    with pytest.raises(
        ModelError, match=r"^\S+: MeanVarianceNormalization node 'meanvariancenormalization10': operator "
    ):
        hwgen.load(path, until=integers_of(writer)[2])
    with pytest.raises(hwgen.ObstaclesError) as error:
        hwgen.load(path, until=writer.tensor)
    assert len(error.value.lines) == 1 + len(TEN)


def test_nothing_to_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first layer is not supported."""
    writer = begun()
    writer.layer(real_conv)
    writer.layer(conv)
    path = saved(writer.model(), tmp_path)
    for verb in (["plan", path, "--board", "zedboard", "-o", str(tmp_path / "plan.json")],):
        assert cli.main([*verb, "--until", "auto"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "model.onnx: no layer can be built before the first unsupported operator: Conv node 'conv2': " in said[0]
    assert not (tmp_path / "plan.json").exists()
    assert cli.main(["check", path]) == 1
    assert "--until auto builds nothing: no layer precedes the operators that can't be built" in capsys.readouterr().out


def test_a_rest_that_mixes_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime runs some frames at a time, so that results would depend on which run together."""
    writer = begun()
    writer.layer(conv)
    real = writer.conv(writer.dequantise(writer.tensor), real=True)
    turned = writer.add("ReduceMean", writer.add("Transpose", real, perm=[2, 3, 0, 1]), axes=[-2])
    writer.give(writer.add("Transpose", turned, perm=[2, 3, 0, 1]))
    path = saved(writer.model(), tmp_path)
    with pytest.raises(hwgen.ModelError, match=r"ReduceMean node '\w+': works along axis -2, which holds the frames; "):
        hwgen.load(path, until="auto")
    assert cli.main(["check", path]) == 1
    said = capsys.readouterr().out
    assert "--until auto builds nothing: ReduceMean node" in said
    assert "works along axis -2, which holds the frames" in said


@pytest.mark.parametrize("operator", ["Einsum", "Compress"])
def test_a_rest_of_operators_that_hwgen_does_not_build(operator: str, tmp_path: Path) -> None:
    """What the rest does with the frames is known of each operator; others are refused."""
    for equation, axis in (("nchw,mchw->nchw", 0), ("nchw,nkhw->nchw", 1)):
        writer = begun()
        writer.layer(conv)
        real = writer.dequantise(writer.tensor)
        if operator == "Einsum":
            mixed = writer.add("Einsum", real, real, equation=equation)
        else:
            mixed = writer.add("Compress", real, writer.constant(np.array([False, True])), axis=axis)
        writer.give(mixed)
        model = writer.model()
        path, x = saved(model, tmp_path), writer.frames(40)
        if axis:
            np.testing.assert_allclose(
                hwgen.load(path, until="auto").golden(x), next(iter(by_onnxruntime(model, x).values())), rtol=1e-6
            )
        else:
            with pytest.raises(ModelError, match=rf"{operator} node '\w+': works along .*, which holds the frames; "):
                hwgen.load(path, until="auto")


def test_what_onnx_runtime_can_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rest holds an operator that it does not know."""
    writer = begun()
    writer.layer(conv)
    writer.layer(lambda writer, tensor: writer.add("Swish", tensor, domain="my.own"))
    for batch, message in (
        (None, "is not known to compute each frame of a batch by itself"),
        (1, "ONNX Runtime refuses"),
    ):
        model = writer.model("my.own")
        if batch is not None:
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
        assert cli.main(["plan", saved(model, tmp_path), "--board", "zedboard", "--until", "auto"]) == 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1
        assert message in said[0]
