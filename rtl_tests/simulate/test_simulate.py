"""Simulation: three simulators, one stimulus, one checker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from needs import needs_compiler, needs_icarus
from onnx import TensorProto, helper, numpy_helper
from simple import Simple, SimpleConfig

import hwgen
from hwgen import api, cache, simulate
from hwgen.cli import main as cli
from hwgen.errors import CheckError, InputError, ToolError
from hwgen.gateware.stream import BeatFormat
from hwgen.network import golden
from hwgen.simulate import check, cpp, runner, stimuli, testbench, verilator
from hwgen.simulate.result import join

SIMULATORS = [
    "amaranth",
    pytest.param("icarus", marks=needs_icarus),
    pytest.param("verilator", marks=needs_compiler),
]


def beat(channels=3, height=4, width=5, lanes=2, bits=8, signed=False, pixels=1):
    return BeatFormat(
        channels=channels, height=height, width=width, lanes=lanes, bits=bits, signed=signed, pixels=pixels
    )


# Beats


@st.composite
def beats(draw) -> BeatFormat:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    this = draw(one_group)
    return replace(this, groups=groups, channels=this.channels * groups)


one_group = st.builds(
    beat,
    channels=st.integers(1, 9),
    height=st.integers(1, 4),
    width=st.integers(1, 4),
    lanes=st.integers(1, 11),
    bits=st.integers(1, 33),
    signed=st.booleans(),
    pixels=st.integers(1, 5),
)


@given(beats(), st.data())
@settings(deadline=None)
def test_packing_is_the_definition_of_a_beat(this, data):
    low, high = (-(1 << this.bits - 1), (1 << this.bits - 1) - 1) if this.signed else (0, (1 << this.bits) - 1)
    shape = (data.draw(st.integers(1, 3)), this.channels, this.height, this.width)
    frames = data.draw(npst.arrays(stimuli.dtype(this), shape, elements=st.integers(low, high)))
    payloads = stimuli.pack(frames, this)
    expected = []
    for frame in frames:
        for row in range(this.height):
            for column in range(0, this.width, this.pixels):
                pixels = frame[:, row, column : column + this.pixels]
                for group in np.split(pixels, this.groups):
                    for first in range(0, len(group), this.lanes):
                        value = 0
                        for (lane, pixel), number in np.ndenumerate(group[first : first + this.lanes]):
                            value |= (int(number) & (1 << this.bits) - 1) << (lane * this.pixels + pixel) * this.bits
                        expected.append(value)
        expected[-1] |= 1 << this.data_bits
    assert stimuli.integers(payloads) == expected
    np.testing.assert_array_equal(stimuli.words(expected, this), payloads)
    pixels, last = stimuli.unpack(payloads, this)
    back = stimuli.to_maps(pixels, this)
    np.testing.assert_array_equal(back, frames)
    assert back.dtype == frames.dtype
    assert list(np.flatnonzero(last)) == list(range(this.beats - 1, len(payloads), this.beats))


def test_unpacking_leaves_out_what_is_not_complete():
    this = beat(channels=3, height=2, width=3, lanes=2)
    frames = np.random.default_rng(3).integers(0, 100, (2, 3, 2, 3)).astype(stimuli.dtype(this))
    back, last = stimuli.unpack(stimuli.pack(frames, this)[:-3], this)
    np.testing.assert_array_equal(stimuli.to_maps(back, this), frames[:1])
    assert len(last) == 2 * this.beats - 3


def test_packing_in_parts(monkeypatch):
    this = beat(channels=5, lanes=3, bits=12, signed=True, pixels=2)
    frames = np.random.default_rng(0).integers(-2048, 2048, (7, 5, 4, 5)).astype(np.int16)
    whole = stimuli.pack(frames, this)
    monkeypatch.setattr(stimuli, "_BLOCK", 3 * this.beats * 64)
    np.testing.assert_array_equal(stimuli.pack(frames, this), whole)
    np.testing.assert_array_equal(stimuli.to_maps(stimuli.unpack(whole, this)[0], this), frames)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (np.zeros((1, 3, 5, 4), np.uint8), r"frames must have shape \(n, 3, 4, 5\), n at least 1, not \(1, 3, 5, 4\)"),
        (np.zeros((0, 3, 4, 5), np.uint8), r"n at least 1, not \(0, 3, 4, 5\)"),
        (np.zeros((3, 4, 5), np.uint8), r"not \(3, 4, 5\)"),
        ([[1]], "not list"),
        (np.zeros((1, 3, 4, 5), np.float32), "frames must be integers, not float32"),
        (np.full((1, 3, 4, 5), 256, np.int64), "frames must lie in 0 .. 255, not reach from 256 to 256"),
        (np.full((1, 3, 4, 5), -1, np.int8), "frames must lie in 0 .. 255, not reach from -1 to -1"),
    ],
)
def test_frames_that_do_not_fit(frames, words):
    with pytest.raises(InputError, match=words):
        stimuli.pack(frames, beat())


@pytest.mark.parametrize("jobs", [0, -2, False])
def test_jobs_that_make_no_sense(jobs):
    with pytest.raises(InputError, match=rf"^jobs must be a positive integer, not {jobs!r}$"):
        simulate.Options(jobs=jobs)


def test_stalls_have_their_probability_and_are_seeded():
    for probability in (0.0, 0.25, 0.9):
        stalls = stimuli.Stalls.make((probability, probability), 3)
        drawn = [[next(side) for _ in range(4000)] for side in map(stimuli.draws, (*stalls.sources, *stalls.sinks))]
        for side in drawn:
            assert abs(np.mean(side) - probability) < 0.03
        assert probability == 0 or drawn[0] != drawn[1]
    assert stimuli.Stalls.make((0.5, 0.5), 3) != stimuli.Stalls.make((0.5, 0.5), 4)
    for probabilities in ((1.0, 0.0), (0.0, -0.1)):
        with pytest.raises(InputError, match=r"probabilities of stalls must lie in \[0, 1\)"):
            stimuli.Stalls.make(probabilities, 0)


# The three simulators


CASES = {
    "narrow": beat(channels=1, height=3, width=3, lanes=1, bits=2, signed=True),
    "folds": beat(channels=5, height=3, width=7, lanes=2, bits=8, signed=True),
    "64 bits": beat(channels=9, height=2, width=5, lanes=9, bits=7),
    "65 bits": beat(channels=8, height=5, width=3, lanes=8, bits=8),
    "wide": beat(channels=130, height=5, width=2, lanes=65, bits=16, signed=True),
    "large": beat(channels=3, height=11, width=13, lanes=1, bits=12),  # its table is read by $readmemh
}
RUNS = [{}, {"stalls": (0.5, 0.3), "seed": 1}, {"stalls": (0.0, 0.9), "seed": 2}, {"reset_at": 17}]


@needs_icarus
@needs_compiler
@pytest.mark.parametrize(
    "case", [name if name == "64 bits" else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def test_all_simulators_give_the_same_values_and_cycles(case):
    config = SimpleConfig(name=f"case {case}", input=CASES[case])
    frames = config.random_frames(4)
    for options in RUNS:
        runs = [
            simulate.run(config, frames, simulate.Options(simulator=name, component=Simple, **options))
            for name in simulate.SIMULATORS
        ]
        for run in runs:
            np.testing.assert_array_equal(run.outputs, config.golden(frames))
            assert run.outputs.dtype == frames.dtype
            assert run.taps == {}
            assert (run.frame_ends, run.first_input) == (runs[0].frame_ends, runs[0].first_input)
            assert (run.latency, run.interval, run.cycles) == (runs[0].latency, runs[0].interval, runs[0].cycles)
        assert [run.simulator for run in runs] == list(simulate.SIMULATORS)
        if "stalls" not in options:
            # Two beats of the stand-in are under way: the last one leaves two cycles after it came.
            beats = config.input.beats
            assert (runs[0].latency, runs[0].interval, runs[0].steady) == (beats + 1, beats, True)
            assert runs[0].cycles == 4 * beats + 2
        else:
            assert runs[0].cycles > 4 * config.input.beats + 2


@needs_compiler
def test_side_by_side(capfd):
    """35 frames in two shares of 18 and 17: every value, the first share's cycles; 31 frames are too few for two."""
    config = SimpleConfig(name="shares", input=CASES["folds"])
    beats = config.input.beats
    frames = config.random_frames(35)
    run = simulate.run(config, frames, simulate.Options(component=Simple, jobs=2, progress=True))
    np.testing.assert_array_equal(run.outputs, config.golden(frames))
    assert run.frame_ends == tuple(beats * frame + beats + 1 for frame in range(18))
    assert run.cycles == 35 * beats + 2 * 2
    assert (run.latency, run.interval, run.steady) == (beats + 1, beats, True)
    assert len(simulate.run(config, frames[:31], simulate.Options(component=Simple, jobs=2)).frame_ends) == 31
    assert (
        len(simulate.run(config, frames, simulate.Options(component=Simple, jobs=2, stalls=(0.1, 0.1))).frame_ends)
        == 35
    )


def test_shares_that_differ():
    """Side by side, frames must end in the same cycles."""
    config = SimpleConfig(name="shares", input=CASES["narrow"])
    run = simulate.run(config, config.random_frames(3), simulate.Options(simulator="amaranth", component=Simple))
    late = replace(run, frame_ends=(*run.frame_ends[:1], run.frame_ends[1] + 1))
    assert join([run, replace(run, frame_ends=run.frame_ends[:2])]).frame_ends == run.frame_ends
    with pytest.raises(CheckError, match="cycles depend on data"):
        join([run, late])


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_one_frame_and_taps(simulator):
    config = SimpleConfig(name="taps", input=CASES["folds"])
    for count in (1, 2, 3):
        frames = config.random_frames(count, seed=count)
        run = simulate.run(
            config, frames, simulate.Options(simulator=simulator, component=Simple, taps=True, stalls=(0.2, 0.2))
        )
        np.testing.assert_array_equal(run.outputs, config.golden(frames))
        np.testing.assert_array_equal(stimuli.to_maps(run.taps[0], config.input), frames)
        np.testing.assert_array_equal(stimuli.to_maps(run.taps[1], config.output), config.golden(frames))
        assert (run.interval is None) == (count < 3)
        assert run.latency > 0
        assert run.wall_s > 0
        assert run.cycles_per_s == pytest.approx(run.cycles / max(run.wall_s, 1e-6))


FAULTS = {
    "stuck": "stuck: no transfer for 60 cycles after [0-9]+ of 63 input beats and 5 of 63 output beats",
    "drops": "o__valid fell while o__ready was low, after",
    "changes": "o__payload changed while o__ready was low, after",
    "extra": "1 output beats more than the 63 expected",
    "last": "o.last must be 0 in beat 3 of frame 0, not 1",
}


@pytest.mark.parametrize(
    ("simulator", "fault"),
    [
        *(("amaranth", fault) for fault in FAULTS),
        *(pytest.param("icarus", fault, marks=needs_icarus) for fault in FAULTS),
        pytest.param("verilator", "changes", marks=needs_compiler),
        *(
            pytest.param("verilator", fault, marks=[needs_compiler, pytest.mark.long])
            for fault in FAULTS
            if fault != "changes"
        ),
    ],
)
def test_broken_designs_are_reported(simulator, fault):
    config = SimpleConfig(name="broken", input=beat(channels=3, height=7, width=3, lanes=1), fault=fault)
    frames = config.random_frames(1)
    with pytest.raises(CheckError, match=rf"^broken: {FAULTS[fault]}.*\({simulator}\)") as caught:
        simulate.run(config, frames, simulate.Options(simulator=simulator, component=Simple, stalls=(0, 0.3), idle=60))
    assert "\n" not in str(caught.value)


def test_patience_follows_the_design():
    config = SimpleConfig(name="x", input=CASES["large"])
    assert testbench.patience(config) > 2 * config.input.beats
    assert testbench.patience(config, (0.5, 0.75)) == 8 * testbench.patience(config)


@pytest.mark.parametrize(
    ("simulator", "suffix"),
    [
        ("amaranth", ".vcd"),
        ("amaranth", ".fst"),
        pytest.param("icarus", ".vcd", marks=needs_icarus),
        pytest.param("icarus", ".fst", marks=needs_icarus),
        pytest.param("verilator", ".vcd", marks=[needs_compiler, pytest.mark.long]),  # test_waves.py looks into one
        pytest.param("verilator", ".fst", marks=[needs_compiler, pytest.mark.long]),
    ],
)
def test_waves(simulator, suffix, tmp_path):
    config = SimpleConfig(name="waves", input=CASES["narrow"])
    frames = config.random_frames(2)
    path = tmp_path / f"out{suffix}"
    if simulator == "amaranth" and suffix == ".fst":
        with pytest.raises(InputError, match=r"waves of amaranth must end in .vcd, not 'out.fst'"):
            simulate.run(config, frames, simulate.Options(simulator=simulator, component=Simple, waves=path))
        return
    try:
        run = simulate.run(config, frames, simulate.Options(simulator=simulator, component=Simple, waves=path))
    except ToolError as error:
        if (simulator, suffix) != ("verilator", ".fst") or "apt install" not in str(error):
            raise
        pytest.skip(str(error))
    np.testing.assert_array_equal(run.outputs, config.golden(frames))
    if suffix == ".vcd":
        text = path.read_text()
        assert "i__payload" in text
        assert text.count("\n#") > run.cycles
    else:
        assert path.stat().st_size > 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"simulator": "xsim"}, "simulator must be one of verilator, icarus, amaranth, not 'xsim'"),
        ({"waves": "none/x.vcd"}, "waves can't be written: folder .*none does not exist"),
        ({"waves": "x.txt"}, "waves of verilator must end in .vcd or .fst, not 'x.txt'"),
        ({"stalls": (0, 1)}, "probabilities of stalls"),
    ],
)
def test_options_that_do_not_fit(options, words):
    config = SimpleConfig(name="x", input=beat())
    with pytest.raises(InputError, match=words):
        simulate.run(config, config.random_frames(1), simulate.Options(component=Simple, **options))


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_progress(simulator, capfd, monkeypatch):
    config = SimpleConfig(name="slow", input=beat(height=20, width=20))
    seen = []
    monkeypatch.setattr("hwgen.progress.on_terminal", lambda: True)
    monkeypatch.setattr("hwgen.progress.DELAY", 1e9)  # no bars, however slow the machine
    monkeypatch.setattr(runner._Bar, "update", lambda self, part, beats: seen.append(beats))
    simulate.run(
        config, config.random_frames(2), simulate.Options(simulator=simulator, component=Simple, progress=True)
    )
    assert seen == sorted(seen)
    assert simulator != "amaranth" or len(seen) > 10
    steps = capfd.readouterr().err.splitlines()
    known = ("slow: writing the Verilog", "slow: compiling the simulator", "slow: simulating")
    assert set(steps) <= {*known, "compiling what all simulators share"}
    assert bool(steps) == (simulator != "amaranth")


# The cache


@pytest.mark.long
@needs_compiler
def test_compiled_once(empty_cache, monkeypatch):
    compiled = []
    verilate = verilator._verilate
    monkeypatch.setattr(verilator, "_verilate", lambda *args: (compiled.append(args[1]), verilate(*args)))
    config = SimpleConfig(name="first", input=CASES["large"])
    frames = config.random_frames(1)

    def run(this):
        np.testing.assert_array_equal(
            simulate.run(this, frames, simulate.Options(component=Simple)).outputs, this.golden(frames)
        )
        return len(compiled)

    assert run(config) == 1
    assert run(config) == 1
    # Other contents of a memory file: the same program.
    assert run(SimpleConfig(name="first", input=CASES["large"], seed=9)) == 1
    (program,) = empty_cache.glob("simulators/*/simulator")
    program.write_bytes(program.read_bytes()[:-1])
    assert run(config) == 2  # what is broken is made anew
    assert run(SimpleConfig(name="first", input=CASES["large"], depth=9)) == 3
    assert len(list((empty_cache / "simulators").iterdir())) == 2


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache that has nothing but what Verilator brings, which takes seconds to compile."""
    if (runtimes := cache.folder() / "runtimes").is_dir():
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "runtimes").symlink_to(runtimes)
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.mark.long
@needs_compiler
def test_components_are_compiled_by_themselves(empty_cache, monkeypatch):
    """What changes in one component leaves the objects of the others; all outputs are right before and after."""
    monkeypatch.setattr(verilator, "LARGE", 3000)
    monkeypatch.setattr(cpp, "SMALL", 0)  # as if these components were large
    compiled, call = [], cpp._call
    monkeypatch.setattr(cpp, "_call", lambda command, place: (compiled.append(command), call(command, place)))

    def units():
        found = {Path(command[command.index("-c") + 1]).stem for command in compiled if "-c" in command}
        compiled.clear()
        return found

    model = hwgen.load("decoilfnet-example")
    design = model.plan(board="zedboard", dsp=20, multipliers="dsp")
    frames = model.random_frames(2)
    assert design.simulate(frames).ok
    first = units()
    names = {name for name in first if name.startswith("Vdesign_decoilfnet_example_conv")}
    assert len({name.split("__")[0] for name in names}) == 2
    assert design.simulate(frames).ok
    assert units() == set()
    conv1, *others = model.network.layers
    # A bias that takes more bits.
    wide = hwgen.Model(replace(model.network, layers=(replace(conv1, bias=conv1.bias + (1 << 15)), *others)))
    assert wide.plan(board="zedboard", dsp=20, multipliers="dsp").simulate(frames).ok
    second = units()
    assert {name for name in second if "_conv1_" in name}
    assert not {name for name in second if "_conv2_" in name}


@needs_compiler
def test_failed_compilation_leaves_nothing(empty_cache, monkeypatch):
    driver = verilator._compile
    monkeypatch.setattr(
        verilator, "_compile", lambda key, files, *rest: driver(key, {**files, "driver.cpp": b"nonsense"}, *rest)
    )
    config = SimpleConfig(name="fails", input=CASES["narrow"])
    with pytest.raises(ToolError, match=r"^g\+\+ failed with status 1: driver.cpp:1:1: error") as caught:
        simulate.run(config, config.random_frames(1), simulate.Options(component=Simple))
    assert "\n" not in str(caught.value)
    assert list((empty_cache / "simulators").iterdir()) == []


def test_cache_that_can_not_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "file" / "cache"))
    config = SimpleConfig(name="x", input=CASES["narrow"])
    with pytest.raises(ToolError, match=r"the cache .* can't be written: .*; set HWGEN_CACHE" if _compiler() else "g"):
        simulate.run(config, config.random_frames(1), simulate.Options(component=Simple))


def _compiler():
    return shutil.which("g++") and shutil.which("make")


@pytest.mark.parametrize(("simulator", "package"), [("verilator", r"g\+\+"), ("icarus", "iverilog")])
def test_missing_tools(simulator, package, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    config = SimpleConfig(name="x", input=CASES["narrow"])
    with pytest.raises(ToolError, match=f"apt install {package}$"):
        simulate.run(config, config.random_frames(1), simulate.Options(simulator=simulator, component=Simple))


@needs_compiler
def test_simulator_that_crashes(tmp_path, monkeypatch):
    program = tmp_path / "simulator"
    program.write_text("#!/bin/sh\necho trouble >&2\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setattr(verilator.Verilator, "build", lambda *args: program)
    config = SimpleConfig(name="x", input=CASES["narrow"])
    with pytest.raises(ToolError, match="the simulator of x ended with status 7: trouble"):
        simulate.run(config, config.random_frames(1), simulate.Options(component=Simple))


# The checker


@given(st.data())
@settings(deadline=None)
def test_compare_finds_the_first_difference(data):
    expected = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    values = expected.copy()
    places = data.draw(st.sets(st.tuples(*(st.integers(0, size - 1) for size in values.shape)), min_size=1, max_size=4))
    for place in places:
        values[place] += 1000
    frame, channel, row, column = min(places, key=lambda place: (place[0], place[2], place[3], place[1]))
    mismatch = check.compare(values, expected, layer="conv1")
    assert mismatch.count == len(places)
    assert mismatch.size == values.size
    value = expected[frame, channel, row, column]
    assert str(mismatch) == (
        f"layer conv1, frame {frame}, channel {channel}, row {row}, column {column}: {value + 1000}, expected {value}"
    )


def test_compare_equal_and_misshapen():
    values = np.zeros((1, 2, 3, 4), np.int8)
    assert check.compare(values, values.astype(np.int64)) is None
    with pytest.raises(InputError, match="values and expected must have the same shape"):
        check.compare(values, values[:, :1])
    values[0, 1, 2, 3] = 1
    assert str(check.compare(values, values * 0)) == "frame 0, channel 1, row 2, column 3: 1, expected 0"


@pytest.mark.parametrize("layer", [0, 1])
def test_compare_layers_names_the_first_wrong_layer(layer):
    config = SimpleConfig(name="taps", input=CASES["folds"])
    frames = config.random_frames(2)
    run = simulate.run(config, frames, simulate.Options(simulator="amaranth", component=Simple, taps=True))
    expected = [("fifo", frames.copy()), ("table", config.golden(frames))]
    assert check.compare_layers(run.taps, expected, config.tap_orders) is None
    for _, values in expected[layer:]:
        values[1, 2, 1, 3] ^= 1
    mismatch = check.compare_layers(run.taps, expected, config.tap_orders)
    assert (mismatch.layer, mismatch.frame, mismatch.channel) == (expected[layer][0], 1, 2)
    assert (mismatch.row, mismatch.column) == (1, 3)


ROOT = Path(__file__).resolve().parents[2]
SIDE = 256


@pytest.fixture(scope="module")
def pool(tmp_path_factory) -> Path:
    """A max pool between QuantizeLinear and DequantizeLinear: large frames, little work."""

    def quantise(kind: str, source: str, target: str) -> onnx.NodeProto:
        return helper.make_node(kind, [source, "scale", "zero"], [target])

    nodes = [
        quantise("QuantizeLinear", "x", "integers"),
        quantise("DequantizeLinear", "integers", "reals"),
        helper.make_node("MaxPool", ["reals"], ["pooled"], kernel_shape=[4, 4], strides=[4, 4]),
        quantise("QuantizeLinear", "pooled", "less"),
        quantise("DequantizeLinear", "less", "y"),
    ]
    constants = [
        numpy_helper.from_array(np.float32(0.5), "scale"),
        numpy_helper.from_array(np.uint8(3), "zero"),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1, side, side])]
        for name, side in (("x", SIDE), ("y", SIDE // 4))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "pool", *ends, constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path = tmp_path_factory.mktemp("pool") / "pool.onnx"
    onnx.save(model, path)
    return path


def save(path: Path, count: int) -> np.ndarray:
    """Write so many frames, no two alike, and return them."""
    steps = np.arange(count * SIDE * SIDE, dtype=np.uint32).reshape(count, 1, SIDE, SIDE) * np.uint32(2654435761)
    frames = (steps >> np.uint32(25)).astype(np.float32)
    np.save(path, frames)
    return frames


def test_values_of_parts(pool, tmp_path, monkeypatch, capfd):
    """Part by part they are ONNX Runtime's, and the file is as `numpy.save` writes it."""
    monkeypatch.chdir(tmp_path)
    frames = save(tmp_path / "x.npy", 7)
    monkeypatch.setattr(golden, "PART_VALUES", 2 * SIDE * SIDE)
    assert cli.main(["golden", str(pool), "--input", "x.npy", "--output", "y.npy"]) == 0
    assert capfd.readouterr().out == f"7 frames, {7 * (SIDE // 4) ** 2:,} values of float32: y.npy\n"
    session = onnxruntime.InferenceSession(pool, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": frames})
    np.save("z.npy", np.asarray(expected))
    assert Path("y.npy").read_bytes() == Path("z.npy").read_bytes()
    np.testing.assert_array_equal(hwgen.load(pool).golden(frames), expected)
    frames[5, 0, 2, 1] = np.nan
    frames[6, 0, 0, 0] = np.inf
    np.save("x.npy", frames)
    Path("y.npy").unlink()
    assert cli.main(["golden", str(pool), "--input", "x.npy", "--output", "y.npy"]) == 2
    assert "not 2 NaN or infinite (first at (5, 0, 2, 1))" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "z.npy"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(4, dtype=">f4"),
        np.empty((0, 3)),
        np.float32(3),
    ],
)
def test_what_is_mapped_is_what_was_saved(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    found = api.read_array(tmp_path / "x.npy")
    np.testing.assert_array_equal(found, array)
    assert found.shape == np.shape(array)
    assert found.dtype.isnative
    assert type(found) is np.ndarray
    golden.release(found)
    np.testing.assert_array_equal(found, array)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_memory_does_not_grow_with_the_frames(pool, tmp_path):
    """40 MB of frames, in parts of 4 MB: beside 4 MB of them no more than some 20 MB are taken."""
    program = (
        "import sys; from pathlib import Path\n"
        "from hwgen.network import golden\n"
        "golden.PART_VALUES = 1 << 20\n"
        "from hwgen.cli.main import main\n"
        f"status = main(['golden', {str(pool)!r}, '--input', sys.argv[1], '--output', sys.argv[2]])\n"
        "print(status, Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    )
    most = []
    for count in (16, 160):
        path = tmp_path / f"{count}.npy"
        save(path, count)
        command = [sys.executable, "-c", program, str(path), str(tmp_path / "y.npy")]
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        status, kilobytes = run.stdout.split()[-2:]
        assert status == "0"
        most.append(int(kilobytes))
    assert np.load(tmp_path / "y.npy", mmap_mode="r").shape == (160, 1, SIDE // 4, SIDE // 4)
    assert most[1] - most[0] < 20_000
