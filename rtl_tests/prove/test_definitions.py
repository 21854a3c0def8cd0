"""Definitions of pools and elementwise arithmetic, simulated: they accept the outputs of NumPy and ONNX Runtime only.

The observer's lines and assertions of an obligation run in Icarus, with golden values in the place of the outputs.
Each assertion must hold for them, and one must fail if a single output is one too large.
"""

import itertools
import subprocess

import numpy as np
import onnxruntime
import pytest
from needs import needs_icarus
from onnx import TensorProto, helper
from proofs import MODULE, emitted
from small_circuits import (
    CHANNEL_TABLE,
    LAST_STAGES,
    MAX_POOL,
    MAXIMUM,
    PRODUCT,
    RECODE,
    VARIANTS,
    whole_map,
)

from hwgen.gateware import elementwise_proof, pooling_proof, threshold_proof
from hwgen.gateware.stream import BeatFormat
from hwgen.network.float32 import Label
from hwgen.network.maps import INT8, UINT8, FeatureMap, Window
from hwgen.network.ops import Add
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Site
from hwgen.templates.stages import stage_of

pytestmark = needs_icarus

_RNG = np.random.default_rng(11)


def stated(kind, config, *more):
    """Return the obligation of a component's values, and the widths of its payloads."""
    modules = modules_of(emitted(config))
    ports = modules[MODULE].ports
    found = kind(config, Site("", modules[MODULE], modules), *more)
    (values,) = (obligation for obligation in found if obligation.kind != "index")
    return values, ports["i__payload"].width, ports["o__payload"].width


def accepted(statement, widths, steps, outputs, cycles, folder, *, level=0, gaps=(), beats=1, seen=()):
    """Return, for each step, whether all assertions of a statement hold with an output ``cycles`` cycles later.

    ``gaps`` are the steps that do not come, and ``seen`` the names of the indices of beats, of which a pixel has
    ``beats``.
    """
    for name, width, words in zip(("steps", "outputs"), widths, (steps, outputs), strict=True):
        text = "\n".join(f"{int(word) % (1 << width):x}" for word in words)
        (folder / f"{name}.hex").write_text(text)
    count = len(steps)
    (folder / "valid.hex").write_text("\n".join("0" if step in gaps else "1" for step in range(count)))
    observer = "\n".join(statement.observer).replace("$anyconst", f"{level}")
    facts = " & ".join(f"({fact})" for fact in statement.asserts.values())
    index_bits = max(beats - 1, 1).bit_length()
    # The lanes with a channel are chosen just before the output leaves, all else when the step comes.
    delays = {name: cycles - 1 if name == "beat_index" else 0 for name in seen}
    index = "\n".join(
        f"wire [{index_bits - 1}:0] {name} = (position - {delay} + {16 * beats}) % {beats}; "
        f"wire [{index_bits - 1}:0] any_{name} = {name};"
        for name, delay in delays.items()
    )
    bench = f"""
module bench;
reg clk = 0; reg rst = 0; integer position = 0;
reg [{widths[0] - 1}:0] steps [0:{count - 1}];
reg [{widths[1] - 1}:0] outputs [0:{count - 1}];
reg valid [0:{count - 1}];
wire [{widths[0] - 1}:0] i__payload = steps[position < {count} ? position : {count - 1}];
wire i__valid = position < {count} ? valid[position] : 0;
wire [{widths[1] - 1}:0] o__payload = outputs[position < {cycles} ? 0 : position - {cycles}];
{index}
{observer}
initial begin
  $readmemh("steps.hex", steps); $readmemh("outputs.hex", outputs); $readmemh("valid.hex", valid);
  repeat ({count + cycles}) begin
    #1 if (position >= {cycles}) $display("%b", {facts});
    #1 clk = 1; #1 clk = 0; position = position + 1; #1;
  end
end
endmodule
"""
    (folder / "bench.v").write_text(bench)
    subprocess.run(["iverilog", "-g2012", "-o", "bench", "bench.v"], cwd=folder, check=True)
    run = subprocess.run(["vvp", "-n", "bench"], cwd=folder, check=True, capture_output=True, text=True)
    answers = [line for line in run.stdout.split() if line in "01x"]
    assert len(answers) == count
    return np.array([answer == "1" for answer in answers])


def packed(values, bits):
    """Return words of values, an array with a row for each word, the first value in the lowest bits."""
    rows = np.asarray(values) % (1 << bits)
    return [sum(int(value) << bits * position for position, value in enumerate(row)) for row in rows]


def check_both(statement, widths, steps, outputs, bits, cycles, folder, **options):
    """Check that a statement accepts outputs, and refuses each beat in which one of them is one too large."""
    assert accepted(statement, widths, steps, packed(outputs, bits), cycles, folder, **options).all()
    wrong = np.array(outputs)
    wrong[np.arange(len(wrong)), _RNG.integers(0, wrong.shape[1], len(wrong))] += 1
    assert not accepted(statement, widths, steps, packed(wrong, bits), cycles, folder, **options).any()


def steps_of(*operands):
    """Return the steps of a join, from each map's values, their shape, and type: a row for each step."""
    words, shift = 0, 0
    for values, bits in operands:
        words = words + np.array(packed(values, bits), dtype=object) * (1 << shift)
        shift += bits * np.asarray(values).shape[1]
    return words.tolist()


def onnx_sum(first, second, labels):
    """Return ONNX Runtime's sum of a uint8 and an int8 map, as uint8: floats are added and quantised."""
    types = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT8)
    constants = [
        helper.make_tensor(f"{name}{index}", kind, [], [value])
        for index, (label, type_) in enumerate(zip(labels, types, strict=True))
        for name, kind, value in (("s", TensorProto.FLOAT, label.scale), ("z", type_, label.zero))
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s0", "z0"], ["fa"]),
        helper.make_node("DequantizeLinear", ["b", "s1", "z1"], ["fb"]),
        helper.make_node("Add", ["fa", "fb"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "s2", "z2"], ["y"]),
    ]
    a, b, y = (helper.make_tensor_value_info(name, type_, [None]) for name, type_ in zip("aby", types, strict=True))
    graph = helper.make_graph(nodes, "sum", [a, b], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"a": first, "b": second})
    return result.astype(int)


@pytest.mark.parametrize(
    "labels",
    [
        (Label(0.0235, 3), Label(0.0471, -5), Label(0.0392, 7)),
        # Scales with many ties: a half of an output's step for each odd operand.
        (Label(0.5, 0), Label(1.0, -128), Label(1.0, 0)),
    ],
)
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_sum_of_maps_is_that_of_onnx_runtime(labels, step, tmp_path):
    """The definition of the layer that hwgen builds of an Add, beside ONNX Runtime: each third value beside all."""
    maps = [
        FeatureMap(channels=1, height=1, width=1, type=kind, zero_point=label.zero, scale=label.scale)
        for kind, label in zip((UINT8, INT8, UINT8), labels, strict=True)
    ]
    op = Add(name="sum", input=maps[0], more=(maps[1],), output=maps[2], window=Window(kernel=(1, 1)), labels=labels,
             fused=False, low=0, high=255)  # fmt: skip
    sources = [BeatFormat(channels=1, height=1, width=1, lanes=1, bits=8, signed=signed) for signed in (False, True)]
    config = stage_of(op).compute(sources)
    first, second = (values.ravel() for values in np.meshgrid(np.arange(0, 256, step), np.arange(-128, 128)))
    golden = onnx_sum(first.astype(np.uint8), second.astype(np.int8), labels)
    statement, *widths = stated(elementwise_proof.of_table_sum, config)
    steps = steps_of((first[:, None], 8), (second[:, None], 8))
    check_both(statement, widths, steps, golden[:, None], 8, config.latency, tmp_path)


def _values(beat, count):
    low, high = beat.value_range
    return _RNG.integers(low, high + 1, (count, beat.lanes * beat.pixels))


def test_products_and_extremes_are_those_of_numpy(tmp_path):
    for config, kind in (
        (PRODUCT, elementwise_proof.of_product),
        (MAXIMUM, elementwise_proof.of_extreme),
        (VARIANTS["minimum"], elementwise_proof.of_extreme),
    ):
        maps = [_values(beat, 500) for beat in config.window.inputs]
        if config is PRODUCT:
            outputs = (maps[0] - config.zeros[0]) * (maps[1] - config.zeros[1])
        else:
            converted = [
                np.array(table)[values - beat.value_range[0]] if table else values
                for table, values, beat in zip(config.tables, maps, config.window.inputs, strict=True)
            ]
            outputs = (np.max if config.greatest else np.min)(converted, axis=0)
        steps = steps_of(*((values, beat.bits) for values, beat in zip(maps, config.window.inputs, strict=True)))
        statement, *widths = stated(kind, config)
        check_both(statement, widths, steps, outputs, config.result.width, config.latency, tmp_path)


def test_tables_are_those_of_numpy(tmp_path):
    inputs = RECODE.window.inputs
    sources = _RNG.integers(0, len(inputs), 500)
    values = np.array([_values(inputs[source], 1)[0] for source in sources])
    outputs = [
        np.array(RECODE.tables[source])[row - inputs[source].value_range[0]] if RECODE.tables[source] else row
        for source, row in zip(sources, values, strict=True)
    ]
    fields = [
        [value % (1 << inputs[source].bits) for value in row] for source, row in zip(sources, values, strict=True)
    ]
    statement, *widths = stated(elementwise_proof.of_recode, RECODE)
    steps = steps_of((fields, 4), (sources[:, None], 2))
    check_both(statement, widths, steps, outputs, 4, RECODE.latency, tmp_path)

    beat = CHANNEL_TABLE.window.input
    values, tables = _values(beat, 500), np.array(CHANNEL_TABLE.tables.values).reshape(beat.channels, -1)
    outputs = np.zeros_like(values)
    for step, (lane, pixel) in itertools.product(range(len(values)), itertools.product(range(2), range(2))):
        channels = beat.fold_channels[step % beat.folds]
        if lane < len(channels):
            outputs[step, lane * 2 + pixel] = tables[channels[lane], values[step, lane * 2 + pixel]]
    statement, *widths = stated(elementwise_proof.of_channel_table, CHANNEL_TABLE)
    options = {"beats": beat.folds, "seen": ("fold_index",)}
    check_both(statement, widths, steps_of((values, 4)), outputs, 4, CHANNEL_TABLE.latency, tmp_path, **options)


@pytest.mark.parametrize("name", ["thresholds", "thresholds by channel", "thresholds of wide sums"])
def test_thresholds_are_counted_as_numpy_does(name, tmp_path):
    config = LAST_STAGES[name]
    half, rows = 1 << config.accumulator_bits - 1, np.array(config.thresholds)
    edges = np.clip([[edge - 1, edge] for edge in rows.ravel()], -half, half - 1).ravel()
    values = np.concatenate([edges, _RNG.integers(-half, half, 400), [-half, half - 1]])
    values = _RNG.permutation(np.tile(values, config.lanes * 2))[: 2 * len(values)].reshape(-1, config.lanes)
    outputs = np.zeros_like(values)
    for step, lane in itertools.product(range(len(values)), range(config.lanes)):
        channels = config.beats[step % len(config.beats)]
        if lane < len(channels):
            row = rows[channels[lane] if config.by_channel else 0]
            outputs[step, lane] = config.low + np.searchsorted(row, values[step, lane], side="right")
    statement, *widths = stated(threshold_proof.of_threshold, config, config.beats)
    options = {"beats": len(config.beats), "seen": ("row_index", "beat_index")}
    steps = steps_of((values, config.accumulator_bits))
    check_both(statement, widths, steps, outputs, config.bits, config.latency, tmp_path, **options)


def pooled_steps(config, num_windows):
    """Return steps of windows with gaps between them, the gaps, and the taps of each window by lane."""
    window = config.window
    bits, lanes = window.input.bits, window.input.lanes
    low, high = window.input.value_range
    steps, gaps, taps = [], set(), []
    for _ in range(num_windows):
        values = _RNG.integers(low, high + 1, (window.steps, window.taps * lanes))
        taps.append(values.reshape(-1, lanes))
        for step, word in enumerate(packed(values, bits)):
            first, last = step == 0, step == window.steps - 1
            steps.append(word | (first | last << 1) << bits * lanes * window.taps)
        for _ in range(int(_RNG.integers(0, 3))):
            gaps.add(len(steps))
            steps.append(int(_RNG.integers(0, 1 << 20)))
    return steps, gaps, np.array(taps)


def test_averages_are_sums_of_numpy(tmp_path):
    config = VARIANTS["average of one tap a step"]
    assert config.window.taps == 1  # no tree, whose register the statement would see
    steps, gaps, taps = pooled_steps(config, 60)
    statement, *widths = stated(pooling_proof.of_sum, config)
    check_windows(statement, widths, config, steps, gaps, taps.sum(axis=1), tmp_path)


def test_max_pools_are_maxima_of_numpy(tmp_path):
    for config, signed in ((MAX_POOL, False), (VARIANTS["max pool of one tap a step"], True)):
        steps, gaps, taps = pooled_steps(config, 60)
        statement, *widths = stated(pooling_proof.of_max_pool, config)
        maxima = taps.max(axis=1)
        refused = np.zeros(len(steps), bool)
        low, high = config.window.input.value_range
        assert signed == (low < 0)
        for level in range(low, high + 1):
            folder = tmp_path / f"{signed}_{level}"
            folder.mkdir()
            level_bits = level % (1 << config.window.input.bits)
            refused |= check_windows(statement, widths, config, steps, gaps, maxima, folder, level=level_bits)
        ends = window_ends(config, steps, gaps)
        assert refused[ends].all()  # a maximum that is one too large reaches a level that no tap reaches


def window_ends(config, steps, gaps):
    """Return the positions of the last steps of windows."""
    present = [step for step in range(len(steps)) if step not in gaps]
    return np.array(present[config.window.steps - 1 :: config.window.steps])


def check_windows(statement, widths, config, steps, gaps, results, folder, *, level=None):
    """Check that a statement accepts the results of windows; return the steps at which it refuses larger ones."""
    ends, bits = window_ends(config, steps, gaps), config.result.width
    fact = {name: f"!o__valid | ({fact})" for name, fact in statement.asserts.items()}
    shown = type(statement)(**{**vars(statement), "asserts": fact, "observer": (_shown(config), *statement.observer)})
    answers = []
    for difference in (0, 1):
        outputs = np.zeros((len(steps), results.shape[1]), int)
        outputs[ends] = (
            np.minimum(results + difference, config.window.input.value_range[1])
            if level is not None
            else (results + difference)
        )
        options = {"gaps": gaps, "level": level or 0}
        answers.append(accepted(shown, widths, steps, packed(outputs, bits), config.latency, folder, **options))
    right, wrong = answers
    assert right.all()
    if level is None:
        assert not wrong[ends].any()
    full = (
        (results == config.window.input.value_range[1]).all(axis=1) if level is not None else np.zeros(len(ends), bool)
    )
    refused = ~wrong
    refused[ends[full]] = True  # no larger output exists
    return refused


def _shown(config):
    """Return the line that says in which cycles an output is valid: ``latency`` cycles after a window's last step."""
    last = dict(config.window.step_layout)["last"].offset
    return (
        f"reg [{config.latency}:0] ends = 0; always @(posedge clk) ends <= {{ends, i__valid & i__payload[{last}]}}; "
        f"wire o__valid = {f'ends[{config.latency - 1}]' if config.latency else f'i__valid & i__payload[{last}]'};"
    )


def test_global_sums_are_those_of_numpy(tmp_path):
    config = whole_map(3, signed=True)
    source = config.window.input
    frames, pixels = 3, source.frame_pixels
    values = _RNG.integers(-8, 8, (frames, pixels, source.folds, source.lanes))
    sums = values.sum(axis=1)
    marked = 1
    steps, outputs = [], []
    for frame, pixel, fold in itertools.product(range(frames), range(pixels), range(source.folds)):
        word = packed(values[frame, pixel, fold][None], source.bits)[0]
        flags = fold | (pixel == 0) << 2 | (pixel == pixels - 1) << 3
        steps.append(word | flags << source.bits * source.lanes)
        outputs.append(sums[frame, fold] if pixel == pixels - 1 else np.zeros(source.lanes, int))
    statement, *widths = stated(pooling_proof.of_running_sum, config)
    bits = config.result.width
    right, wrong = (
        accepted(
            statement, widths, steps, packed(np.array(outputs) + more, bits), config.latency, tmp_path, level=marked
        )
        for more in (0, 1)
    )
    ends = [index for index in range(len(steps)) if index // source.folds % pixels == pixels - 1]
    assert right.all()
    assert not wrong[[end for end in ends if end % source.folds == marked]].any()
