"""Networks with several outputs: from ONNX to every simulator, and what the schedule says of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from accelerators import Case, frames_for, from_beats, to_beats
from counted import cases_in_the_long_run
from graphs import graph_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from min_depths import check_shallower, min_depths
from needs import needs_compiler, needs_icarus
from onnx import TensorProto, helper
from onnx_models import random_graph, with_outputs
from referees import FLOAT_OPERATORS, OPTIONS, integer_session
from runs import SEEDS, check_reset, check_simulator, check_stalled, runs_of
from testbench import ALWAYS, Pattern, StuckError
from testbench import run as drive

import hwgen
from hwgen import boards, emit
from hwgen import simulate as run
from hwgen.cli.main import main
from hwgen.errors import ConfigError, InputError, ModelError, PlanError
from hwgen.gateware.accelerator import Accelerator
from hwgen.network import golden, host
from hwgen.network.graph import INPUT, Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import MaxPool
from hwgen.network.quantise import prepare_inputs, quantise
from hwgen.network.zoo.drawing import Drawing
from hwgen.plan import document
from hwgen.schedule.solve import Schedule
from hwgen.simulate import check, stimuli
from hwgen.simulate.memory import Memory, TrafficModel
from hwgen.simulate.testbench import patience

# In hardware


class ByOne(Accelerator):
    """An accelerator one of whose outputs is ``o``."""

    def __init__(self, config, place: int):
        super().__init__(config)
        self._place = place

    @property
    def o(self):
        return getattr(self, self.config.output_ports[self._place].name)


def driven(config, frames: np.ndarray, place: int, others: Pattern = ALWAYS, **options):
    """A run until output ``place`` is done, the ``others`` ready as they say; and the cycle and word of every beat."""
    component = ByOne(config, place)
    ports = [getattr(component, port.name) for port in config.output_ports]
    rest = [port for number, port in enumerate(ports) if number != place]
    watch = {}
    for number, port in enumerate(ports):
        watch |= {f"moves {number}": port.valid & port.ready, f"word {number}": port.payload.as_value()}
    trace = drive(
        component,
        to_beats(config.input, frames),
        len(frames) * config.output_ports[place].beats,
        drive=[(port.ready, others) for port in rest],
        watch=watch,
        **{"patience": patience(config), **options},
    )
    sent = []
    for number in range(len(ports)):
        moves = zip(trace.watched[f"moves {number}"], trace.watched[f"word {number}"], strict=True)
        sent.append([(cycle, word) for cycle, (moved, word) in enumerate(moves) if moved])
    return trace, sent


def check_maps(config, sent, expected) -> None:
    """Every value of every output, nothing missing and nothing more; ``last`` on the last beat of each frame."""
    for port, beats, maps in zip(config.output_ports, sent, expected, strict=True):
        assert len(beats) == len(maps) * port.beats
        np.testing.assert_array_equal(from_beats(port.beat, [word for _, word in beats]), maps)


def check_exact(case: Case, seed: int) -> None:
    """Every value, and the cycle of every beat at every end as the schedule has it; a frame ends with its last one."""
    config, frames = case.config, frames_for(case.network, 3, seed)
    schedule = Schedule(config, 3)
    cycles = schedule.cycles
    links = [
        next(n for n, link in enumerate(config.links, 1) if (link.sink, link.port) == (len(config.layers), place))
        for place in range(len(config.outputs))
    ]
    slowest = int(np.argmax([schedule.taken[number][-1] for number in links]))
    trace, sent = driven(config, frames, slowest)
    check_maps(config, sent, golden.outputs(case.network, frames))
    begin = schedule.taken[0][0]
    np.testing.assert_array_equal(np.array(trace.taken) - trace.taken[0], schedule.taken[0] - begin)
    ends = []
    for number, port, beats in zip(links, config.output_ports, sent, strict=True):
        times = np.array([cycle for cycle, _ in beats]) - trace.taken[0]
        np.testing.assert_array_equal(times, schedule.taken[number] - begin)
        ends.append(times[port.beats - 1 :: port.beats])
    first, second, third = np.max(ends, axis=0)
    assert (cycles.latency, cycles.interval) == (first, third - second)


@cases_in_the_long_run(5)
@given(case=graph_cases(several=True, max_steps=2, max_side=5), seed=SEEDS)
def test_exact(case, seed):
    """Nobody stalls."""
    check_exact(case, seed)


@pytest.mark.long
@settings(max_examples=23)
@given(case=graph_cases(several=True, max_steps=5), seed=SEEDS)
def test_exact_in_many(case, seed):
    check_exact(case, seed)


@pytest.mark.long
@settings(max_examples=4)
@given(case=graph_cases(several=True, sized=True, max_steps=2, max_side=4), data=st.data())
def test_stalls(case, data):
    check_stalled(case, data)


@pytest.mark.long
@settings(max_examples=16)
@given(case=graph_cases(several=True, sized=True, max_steps=4), data=st.data())
def test_stalls_of_many(case, data):
    check_stalled(case, data, reset_at=data.draw(st.integers(1, 300)))


@pytest.mark.long
@settings(max_examples=3)
@given(case=graph_cases(several=True, max_steps=2, max_side=4), seed=SEEDS, cycle=st.integers(1, 200))
def test_reset(case, seed, cycle):
    check_reset(case, seed, cycle)


@settings(max_examples=5)
@given(case=graph_cases(several=True, sized=True, max_steps=2, max_side=4))
def test_nothing_could_be_less(case):
    """No FIFO could be shallower alone, without a frame that ends later, or a greater interval."""
    assert min_depths(case) == []


@pytest.mark.long
@settings(max_examples=60)
@given(case=graph_cases(several=True, sized=True, max_steps=4))
def test_nothing_could_be_less_in_many(case):
    assert min_depths(case) == []


@settings(max_examples=8)
@given(case=graph_cases(several=True, sized=True, max_steps=2), data=st.data())
def test_stall_for_ever(case, data):
    """What counting on says of shallower FIFOs is what the schedule comes to: an end of all outputs, or none."""
    check_shallower(case.config, data)


def heads(net: Drawing) -> tuple[str, ...]:
    """A map that a head takes and another layer reads, a head behind that, and the map itself."""
    here = net.conv("stem", "image", 2, 3, relu=None)
    coarse = net.conv("coarse", net.max_pool("pool", here, 2, 2), 3, 1, relu=None)
    return coarse, net.conv("fine", here, 1, 1, relu=None), here


def drawn(draw, shape: tuple[int, int, int] = (2, 4, 6)) -> onnx.ModelProto:
    drawing = Drawing("drawn", shape)
    images = np.random.default_rng(0).uniform(-1, 1, (4, *shape)).astype(np.float32)
    return quantise(drawing.model(*draw(drawing)), images, "drawn", 8)


@pytest.fixture(scope="module")
def headed(tmp_path_factory) -> tuple[hwgen.Model, hwgen.Design]:
    path = tmp_path_factory.mktemp("headed") / "headed.onnx"
    onnx.save(drawn(heads), path)
    model = hwgen.load(path)
    return model, model.plan("zedboard", dsp=40, multipliers="dsp")


@pytest.mark.long
def test_an_output_that_stalls(headed):
    """For ever: the others go on until FIFOs are full, then all stands still. Ready at last, nothing is lost."""
    model, design = headed
    config, frames = design.config, model.random_frames(4)
    with pytest.raises(StuckError, match=r"stuck in cycle \d+: \d+ of 64 beats taken, [1-9]\d* of \d+ sent"):
        driven(config, frames, 1, others=Pattern((False,)), patience=300)
    held = Pattern((False,) * 200 + (True,) * 200)
    _, sent = driven(config, frames, 1, others=held, drain=300)
    check_maps(config, sent, golden.outputs(model.network, frames))


SIMULATORS = [
    pytest.param("verilator", marks=[pytest.mark.long, needs_compiler]),
    pytest.param("icarus", marks=needs_icarus),
]


#: With stalls at each end, and a reset; and with a memory that stalls all, whether or not frames overlap.
OPTIONS_OF_RUNS = [
    {"stalls": (0.3, 0.5), "seed": 3, "reset_at": 50},
    {"stalls": (0.1, 0.8, 0.0, 0.4), "memory": Memory(latency=5, bytes_per_cycle=1.5, queue=2)},
    {"memory": Memory(latency=3, bytes_per_cycle=4), "one_by_one": True},
]


@pytest.fixture(scope="module")
def by_amaranth(headed) -> list[run.Run]:
    model, design = headed
    return [*runs_of(design.config, [model.random_frames(3, seed=1)], OPTIONS_OF_RUNS, "amaranth")]


@pytest.mark.long
@pytest.mark.parametrize("simulator", SIMULATORS)
def test_simulators_agree(headed, by_amaranth, simulator):
    """Without stalls as predicted; otherwise as in Amaranth's simulator, values and cycles, at the taps too."""
    model, design = headed
    frames = [model.random_frames(3, seed=1)]
    expected = golden.outputs(model.network, frames)
    check_simulator(design.config, frames, simulator, design.plan.cycles, OPTIONS_OF_RUNS, by_amaranth, expected)


def test_memory_takes_beats_as_they_come():
    """Two outputs, a byte a cycle: beats of 2 and 3 bytes are written in the order in which they were posted.

    A frame is one beat of the first and two of the second; of the queue of 2 all take their share.
    """
    traffic = TrafficModel(Memory(bytes_per_cycle=1, queue=2), [np.array([1])], [np.array([2]), np.array([3, 3])], 1)
    posted, seen = {1: [1], 2: [0], 6: [1]}, []
    for cycle in range(12):
        traffic.begin_cycle(cycle, [99])
        rooms = traffic.has_room
        for output in posted.get(cycle, []):
            traffic.post(cycle, output)
        seen.append((rooms, traffic.written))
    # Cycle 0 reads. The first beat's bytes move in cycles 1 to 3, the second's in 4 and 5, the third's in 6 to 8.
    full = [False] * 12
    full[3] = True  # two beats wait
    assert [written for _, written in seen] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert [room for room, _ in seen] == [True] * 12
    assert traffic.written_ends == [8]


@pytest.mark.long
@needs_icarus
def test_the_emitted_bench(headed, tmp_path):
    """It passes; with a wrong value it fails and says of which output."""
    model, design = headed
    folder = design.build(tmp_path / "good")
    assert {f"expected_{place}.hex" for place in range(3)} <= {path.name for path in folder.iterdir()}
    said = subprocess.run(["make", "-C", str(folder), "icarus"], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout
    beats = 3 * sum(port.beats for port in design.config.output_ports)
    assert f"PASS: {beats} output beats as expected" in said.stdout
    assert f"frame 0: latency {design.latency} cycles" in said.stdout
    assert f"frame 2: {design.interval} cycles later" in said.stdout
    report = (folder / "report.md").read_text()
    for port in design.config.output_ports:
        assert f"| `{port.name}__payload` | out | " in report
    frames = model.random_frames(2)
    wrong = [maps.copy() for maps in golden.outputs(model.network, frames)]
    wrong[2][1, 1, 2, 3] ^= 1
    folder = emit.build("{}", design.config, frames, wrong, tmp_path / "bad", "# Bad")
    said = subprocess.run(["make", "-C", str(folder), "icarus"], capture_output=True, text=True)
    assert said.returncode != 0
    assert "first difference: output o_stem_out beat" in said.stdout
    assert "frame 1, row 2, column 3" in said.stdout


def test_the_first_difference(headed):
    """It is said of which output; how many values differ is said of all."""
    model, design = headed
    frames = model.random_frames(2)
    expected = golden.outputs(model.network, frames)
    wrong = [maps.copy() for maps in expected]
    wrong[1][1, 0, 2, 3] ^= 1
    wrong[0][1, 0, 0, 0] ^= 1
    found = check.locate([design.config], model.network, frames, wrong, expected, simulator="amaranth")
    assert found is not None
    size = sum(maps.size for maps in expected)
    assert (found.output, found.frame, found.count, found.size) == ("coarse_out", 1, 2, size)
    assert str(found).startswith("output coarse_out, frame 1, channel 0, row 0, column 0: ")


def test_probabilities_of_stalls(headed):
    _, design = headed
    frames = np.zeros((1, 2, 4, 6), np.uint8)
    with pytest.raises(
        InputError, match=r"^probabilities of stalls must be 2, or 4 \(of the source, then of the outputs\), not 3$"
    ):
        run.run(design.config, frames, run.Options(simulator="amaranth", stalls=(0.1, 0.2, 0.3)))
    made = stimuli.Stalls.make((0.5, 0.25), 3, 3)
    assert len(set(made.sinks)) == 3, "every sink stalls by itself"
    assert {threshold for _, threshold in made.sinks} == {1 << 22}


# Networks and plans


def test_outputs_of_a_network(headed):
    model, design = headed
    network = model.network
    assert network.output_names == ("coarse_out", "fine_out", "stem_out")
    assert network.readers[network.output_layers[2]]
    assert network.output_indices(network.output_layers[2]) == (2,)
    assert model.outputs["fine_out"] == network.output_maps[1]
    assert not network.is_chain
    with pytest.raises(ConfigError, match=r"has 3 outputs \(coarse_out, fine_out, stem_out\), where one is needed$"):
        network.output  # noqa: B018
    with pytest.raises(InputError, match=r"^headed has 3 outputs: ask for outputs$"):
        model.output  # noqa: B018
    with pytest.raises(ConfigError, match=r"outputs are 3, not one: coarse_out, fine_out, stem_out$"):
        design.config.output  # noqa: B018
    with pytest.raises(ConfigError, match=r"outputs must be given by layers, not by 'other'$"):
        replace(network, outputs=("other",), host=None)
    with pytest.raises(ConfigError, match=r"fine must be read by a layer, or give an output"):
        replace(network, outputs=(network.output_layers[2],), host=None)


def test_a_chain_with_an_output_in_the_middle():
    """It is no chain: the layer in the middle has two FIFOs."""
    here = frames_map = hwgen.load("decoilfnet-example").network.layers[-1].output
    pools = [
        MaxPool(
            name=name,
            input=here,
            output=frames_map,
            window=replace(
                hwgen.load("lenet5").network.layers[0].window, kernel=(1, 1), stride=(1, 1), padding=(0, 0, 0, 0)
            ),
        )
        for name in ("one", "two")
    ]
    network = Network(name="pools", layers=tuple(pools), outputs=("one", "two", "one"))
    assert network.output_names == ("one", "two", "one_2")
    assert network.edges == ((INPUT,), ("one",))
    assert not network.is_chain
    plan = hwgen.api.design_of(hwgen.Model(network), hwgen.plan.make(network, boards.load("zedboard")))
    assert [port.name for port in plan.config.output_ports] == ["o_one", "o_two", "o_one_2"]
    assert [len(layer.outputs) for layer in plan.config.layers] == [3, 1]
    check_exact(Case(network, plan.config), 0)


def test_plan_written_and_read(headed):
    """Outputs and their FIFOs by name; what is read is what was written; a FIFO that is missing is named."""
    model, design = headed
    text = design.to_json()
    plan = json.loads(text)
    assert "output" not in plan
    assert [(each["output"], each["name"], each["shape"], each["behind"]) for each in plan["outputs"]] == [
        ("coarse_out", "coarse_out_QuantizeLinear_Output", [3, 2, 3], ["DequantizeLinear"]),
        ("fine_out", "fine_out_QuantizeLinear_Output", [1, 4, 6], ["DequantizeLinear"]),
        ("stem_out", "stem_out_QuantizeLinear_Output", [2, 4, 6], ["DequantizeLinear"]),
    ]
    assert all(each["scale"] == model.outputs[each["output"]].scale for each in plan["outputs"])
    assert len({each["scale"] for each in plan["outputs"]}) == 3
    ends = [fifo["to"] for fifo in plan["groups"][0]["fifos"] if fifo["to"].startswith("output")]
    assert sorted(ends) == ["output coarse_out", "output fine_out", "output stem_out"]
    again = document.read(text, model.network, design.board)
    assert again.groups[0].config == design.config
    assert document.write(again) == text
    fifos = plan["groups"][0]["fifos"]
    fifos.remove(next(fifo for fifo in fifos if fifo["to"] == "output stem_out"))
    with pytest.raises(PlanError, match=r"^plan lacks the FIFO from stem to output stem_out$"):
        document.read(json.dumps(plan), model.network, design.board)
    moved = sum(maps.values for maps in (model.input, *model.outputs.values()))
    assert plan["traffic_bytes"]["feature_maps"] == moved
    table = design.table()
    assert (
        "DequantizeLinear (after output coarse_out), DequantizeLinear (after output fine_out), "
        "DequantizeLinear (after output stem_out)" in table
    )
    assert "| output fine_out | fine_out_QuantizeLinear_Output | 1 x 4 x 6 | uint8 |" in design.report()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"template": "pyramid"},
            r"^headed has 3 outputs \(coarse_out, .*\), but a group of pyramids has one: use --template stream$",
        ),
        ({"in_turn": True}, r"^headed has 3 outputs \(coarse_out, .*\): it is planned as one group, not cut into "),
    ],
)
def test_what_gives_one_output_only(headed, options, message):
    model, _ = headed
    with pytest.raises(PlanError, match=message):
        model.plan("zedboard", **options)


def test_given_plan_of_pyramids(headed):
    """Edited into pyramids it is refused, too."""
    model, design = headed
    plan = json.loads(design.to_json())
    plan["groups"][0] |= {"template": "pyramid", "tile": [2, 2], "overlap": "reuse"}
    with pytest.raises(
        PlanError,
        match=r"^headed has 3 outputs \(coarse_out, .*\), but a group of pyramids has one: use --template stream$",
    ):
        document.read(json.dumps(plan), model.network, design.board)


# ONNX


def by_hwgen(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """What the golden model and the host give, by the model's names of its outputs."""
    network = to_network(model, "model")
    maps = golden.outputs(network, prepare_inputs(network, x))
    return {
        name: host.outputs(network, values, place)
        for place, (name, values) in enumerate(zip(network.output_names, maps, strict=True))
    }


@pytest.mark.parametrize(("count", "frames"), [(25, 3), pytest.param(130, 8, marks=pytest.mark.long)])
def test_random_graphs(count: int, frames: int) -> None:
    """Every value of every output equals that of ONNX Runtime's session."""
    compared = 0
    for seed in range(count):
        writer = random_graph(seed)
        model, x = with_outputs(writer, 2 + seed % 2), writer.frames(frames)
        session, optimised = integer_session(model)
        names = [end.name for end in session.get_outputs()]
        theirs = dict(zip(names, session.run(None, {"image": x}), strict=True))
        if len(names) > 1 and not {node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS:
            ours = by_hwgen(model, x)
            assert list(ours) == names
            for name in names:
                assert ours[name].dtype == theirs[name].dtype
                np.testing.assert_array_equal(
                    ours[name].reshape(theirs[name].shape), theirs[name], err_msg=f"seed {seed}, {name}"
                )
            compared += 1
    assert compared > 0.5 * count


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(10)])
def test_random_graphs_in_hardware(seed: int, tmp_path: Path) -> None:
    """From the file to the circuit: every value as golden, cycles as predicted."""
    writer = random_graph(seed)
    path = tmp_path / "random.onnx"
    onnx.save(with_outputs(writer, 2 + seed % 2), path)
    design = hwgen.load(path).plan("vc709", dsp=400, multipliers="dsp")
    result = design.simulate(writer.frames(3), simulator="icarus" if shutil.which("iverilog") else "amaranth")
    assert result.ok
    assert (result.latency, result.interval) == (design.latency, design.interval)


def edited(*behind: onnx.NodeProto, outputs: tuple[str, ...], more: tuple[np.ndarray, ...] = ()) -> onnx.ModelProto:
    """The three-headed model with nodes behind it, and these outputs."""
    model = drawn(heads)
    model.graph.node.extend(behind)
    del model.graph.output[:]
    for name in outputs:
        integer = name.endswith("QuantizeLinear_Output")
        model.graph.output.append(
            helper.make_tensor_value_info(
                name, TensorProto.UINT8 if integer else TensorProto.FLOAT, [None] * (1 if "scale" in name else 4)
            )
        )
    return model


def by_runtime(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    for option in OPTIONS:
        options.add_session_config_entry(option, "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [end.name for end in session.get_outputs()]
    return dict(zip(names, session.run(None, {"image": x}), strict=True))


@pytest.mark.parametrize(
    ("behind", "outputs", "operators"),
    [
        # Each its own tail.
        (
            [
                helper.make_node("Softmax", ["coarse_out"], ["classes"], axis=1),
                helper.make_node("Transpose", ["fine_out"], ["turned"], perm=[0, 2, 3, 1]),
                helper.make_node("Sigmoid", ["turned"], ["boxes"]),
            ],
            ("classes", "boxes"),
            [["DequantizeLinear", "Softmax"], ["DequantizeLinear", "Transpose", "Sigmoid"]],
        ),
        # A map and what the host makes of it; the same map as integers.
        (
            [helper.make_node("Sigmoid", ["fine_out"], ["boxes"])],
            ("boxes", "fine_out", "fine_out_QuantizeLinear_Output"),
            [["DequantizeLinear", "Sigmoid"], ["DequantizeLinear"], []],
        ),
        # Two names of one tensor, and one name twice.
        ([helper.make_node("Identity", ["fine_out"], ["again"])], ("fine_out", "again"), [["DequantizeLinear"]] * 2),
        ([], ("coarse_out", "stem_out", "coarse_out"), [["DequantizeLinear"]] * 2),
    ],
)
def test_tails(behind, outputs, operators) -> None:
    model = edited(*behind, outputs=outputs)
    x = np.random.default_rng(2).uniform(-1, 1, (3, 2, 4, 6)).astype(np.float32)
    theirs, ours = by_runtime(model, x), by_hwgen(model, x)
    assert list(ours) == list(dict.fromkeys(outputs)) == list(theirs)
    for name, values in theirs.items():
        assert ours[name].dtype == values.dtype
        np.testing.assert_array_equal(ours[name], values)
    network = to_network(model, "model")
    assert network.host is not None
    assert [list(end.behind) for end in network.host.outputs] == operators


def test_a_relu_behind_an_output_leaves_it_as_it_is() -> None:
    """Bounds that one reader of a map may be given must not reach the map that leaves."""
    drawing = Drawing("drawn", (2, 4, 4))
    first = drawing.conv("first", "image", 3, 3, relu=None)
    images = np.random.default_rng(0).uniform(-1, 1, (4, 2, 4, 4)).astype(np.float32)
    model = quantise(drawing.model(first), images, "drawn", 8)
    scale, zero = model.graph.node[-1].input[1:]
    model.graph.node.append(helper.make_node("Relu", ["first_out"], ["positive"]))
    model.graph.node.append(helper.make_node("QuantizeLinear", ["positive", scale, zero], ["p"]))
    model.graph.output.append(helper.make_tensor_value_info("p", TensorProto.UINT8, [None] * 4))
    theirs, ours = by_runtime(model, images), by_hwgen(model, images)
    assert (theirs["p"] != theirs["p"].min()).any()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values)


@pytest.mark.parametrize(
    ("behind", "outputs", "message"),
    [
        (
            [helper.make_node("Relu", ["fine_out"], ["positive"])],
            ("coarse_out", "positive"),
            r"^m: Relu node 'positive': gives floats; a QuantizeLinear must follow \(quantise its output too\); "
            "--until auto builds the part before it, 100.0% of the multiply-accumulates$",
        ),
        ([], ("fine_out", "image"), r"^m: holds no layer to build before output 'image': no convolution, "),
        ([], ("coarse_weight_scale",), r"^m: a model must have an input that an output depends on$"),
    ],
)
def test_outputs_that_are_refused(behind, outputs, message) -> None:
    model = edited(*behind, outputs=outputs)
    with pytest.raises(ModelError, match=message):
        to_network(model, "m")


def test_batches_of_the_model() -> None:
    """A model that takes two frames at a time: each output's tail gets as many."""
    model = drawn(heads)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    x = np.random.default_rng(2).uniform(-1, 1, (3, 2, 4, 6)).astype(np.float32)
    ours = by_hwgen(model, x)
    theirs = [by_runtime(model, np.stack([frame, frame])) for frame in x]
    for name, values in ours.items():
        np.testing.assert_array_equal(values, np.concatenate([each[name][:1] for each in theirs]))


# The command line, and Python


def test_command_line(headed, tmp_path, capsys):
    """Values by name in a .npz; one .npy can't hold them."""
    onnx.save(drawn(heads), tmp_path / "headed.onnx")
    frames = np.random.default_rng(4).uniform(-1, 1, (3, 2, 4, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", frames)
    given, whole = [str(tmp_path / "headed.onnx"), "--input", str(tmp_path / "x.npy")], headed[0].golden(frames)
    assert main(["golden", *given, "--output", str(tmp_path / "y.npz")]) == 0
    assert capsys.readouterr().out.count("3 frames, ") == 3
    with np.load(tmp_path / "y.npz") as archive:
        assert list(archive) == list(whole)
        for name in archive:
            np.testing.assert_array_equal(archive[name], whole[name])
    options = ["--board", "zedboard", "--multipliers", "dsp", "--dsp", "40", "--simulator", "amaranth", "--integers"]
    assert main(["simulate", *given, *options, "--output", str(tmp_path / "z.npz")]) == 0
    integers = headed[0].golden(frames, integers=True)
    assert f"every one of {sum(map(np.size, integers.values())):,} output values equals" in capsys.readouterr().out
    with np.load(tmp_path / "z.npz") as archive:
        for name, values in integers.items():
            np.testing.assert_array_equal(archive[name], values)
            assert archive[name].dtype == np.uint8
    for verb in (["golden", *given], ["simulate", *given, *options]):
        assert main([*verb, "--output", str(tmp_path / "y.npy")]) == 2
        said = capsys.readouterr().err
        assert "can't hold 3 outputs (coarse_out, fine_out, stem_out): give a file that ends in .npz" in said
    assert not (tmp_path / "y.npy").exists()


def test_python(headed):
    model, design = headed
    frames = model.random_frames(3)
    result = design.simulate(frames, simulator="amaranth")
    assert result.ok
    assert result.frames == 3
    assert list(result.outputs) == ["coarse_out", "fine_out", "stem_out"]
    for name, values in model.golden(frames).items():
        np.testing.assert_array_equal(result.outputs[name], values)
        assert result.outputs[name].dtype == np.float32
        assert result.integers[name].dtype == np.uint8


# yolov3-tiny


def test_yolov3_tiny():
    """The published layers: maps of both heads, and by hand 8,845,488 - 6,144 - 510 weights but for biases."""
    model = hwgen.load("yolov3-tiny@64x96")
    assert {name: maps.shape for name, maps in model.outputs.items()} == {
        "conv10_out": (255, 2, 3),
        "conv13_out": (255, 4, 6),
    }
    kernels = [(3, 16, 9), (16, 32, 9), (32, 64, 9), (64, 128, 9), (128, 256, 9), (256, 512, 9), (512, 1024, 9)]
    kernels += [(1024, 256, 1), (256, 512, 9), (512, 255, 1), (256, 128, 1), (384, 256, 9), (256, 255, 1)]
    assert model.network.weight_count == sum(int(np.prod(kernel)) for kernel in kernels)
    kinds = [layer.kind for layer in model.network.layers]
    assert [kinds.count(kind) for kind in ("conv", "maxpool", "upsample", "concat")] == [13, 6, 1, 1]
    with pytest.raises(
        ModelError, match=r"^yolov3-tiny: rows and columns of its input must be multiples of 32, not 48x64$"
    ):
        hwgen.load("yolov3-tiny@48x64")


@pytest.mark.long
def test_yolov3_tiny_in_hardware():
    """On a board like the VC709 whose block RAM holds its 8.8 million weights: every value, cycles as predicted."""
    model = hwgen.load("yolov3-tiny@64x64")
    with pytest.raises(PlanError, match=r"^plan needs [\d,]+ BRAM36, but vc709 \(XC7VX690T\) has 1,470"):
        model.plan("vc709")
    board = replace(boards.load("vc709"), bram36=2_600)
    design = model.plan(board, dsp=700, multipliers="dsp", macs_per_dsp="auto")
    result = design.simulate(model.random_frames(3))
    assert result.ok
    assert (result.latency, result.interval) == (design.latency, design.interval)
