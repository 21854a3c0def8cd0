"""Proofs of what connects the parts of an engine, and faults seeded in the Verilog that they must refute."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from programs import SMALL, behind
from proofs import Fault, engine, kinds_of, proved

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

TOP, MEMORY, CORE = "", "memory_side", "core"
#: Kinds of obligations of each module that connects others, by its path, without those of other tests.
KINDS = {TOP: {"wires", "logic"}, MEMORY: {"wires", "logic"}, CORE: {"wires", "logic", "contract"}}
_BEATS = ".clk(clk),\n        .rst(rst),\n        .beats__payload"
_COUNTS = ".loaded(memory_side__loaded),\n        .stored(memory_side__stored),\n        .finished"
_BANK, _SELECT = (
    ".rest(lanes__rest),\n        .words(lanes__words),\n        .o",
    ".select(drains__select),\n        .yields",
)
FAULTS = {
    "top: stored jobs as loaded ones": Fault(TOP, "wires", _COUNTS, _COUNTS.replace("loaded)", "stored)")),
    "top: no reset": Fault(TOP, "wires", _BEATS, _BEATS.replace("(rst)", "(1'b0)")),
    "top: an open port": Fault(
        TOP, "wires", ".finished(finish__finished),\n        .comp", ".finished(),\n        .comp"
    ),
    "top: a reset a cycle late": Fault(TOP, "logic", ".run_reset(memory_side__run_reset)", ".run_reset(begin_)"),
    "top: a run ends before its jobs": Fault(TOP, "logic", "core__drained == memory_side__jobs,", "1'b1,"),
    "top: stuck too early": Fault(TOP, "logic", "quiet_cycles == 12'hfff", "quiet_cycles == 12'h00f"),
    "top: bytes without their enable": Fault(TOP, "logic", "{8{memory_side__written__payload[65]}}", "8'hff"),
    "top: the last beat is another": Fault(TOP, "logic", "= memory_side__written__payload[64]", "= m_axi__wvalid"),
    "memory side: drained jobs as computed ones": Fault(MEMORY, "wires", ".computed(computed)", ".computed(drained)"),
    "memory side: an open port": Fault(MEMORY, "wires", ".drained(drained)", ".drained()"),
    "memory side: a unit without a reset": Fault(MEMORY, "wires", ".run_reset(run_reset)", ".run_reset(1'b0)"),
    "memory side: a job's word is shifted": Fault(
        MEMORY, "logic", "answers__payload[90:27]", "answers__payload[89:26]"
    ),
    "memory side: a stored job is not counted": Fault(MEMORY, "logic", "stored + 24'd1", "stored + {23'd0, !stop}"),
    "memory side: a fault is lost": Fault(MEMORY, "logic", "4'd12 : check__fault", "4'd12 : 4'd0"),
    "core: a bank is another": Fault(CORE, "wires", _BANK, _BANK.replace("__rest", "__words[2:0]")),
    "core: sums of another selection": Fault(
        CORE, "wires", _SELECT, _SELECT.replace("drains__select", "drains__note__addend")
    ),
    "core: another slot": Fault(
        CORE, "logic", ".slot(steps__step__half_to_slot[10:8])", ".slot(steps__step__half_to_slot[9:7])"
    ),
    "core: another stride": Fault(CORE, "logic", "steps__job[47:45]", "steps__job[46:44]"),
    "core: a control word comes early": Fault(CORE, "contract", "control <= control_8", "control <= control_7"),
    "core: a note comes early": Fault(CORE, "contract", "note_4 <= note_3", "note_4 <= note_2"),
    "core: a step's weights come early": Fault(CORE, "contract", "step <= weight_step_7", "step <= weight_step_6"),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


def test_each_module_emits_its_kinds():
    kinds = kinds_of(engine(SMALL)[1])
    assert all(wanted <= kinds[path] for path, wanted in KINDS.items())


def test_each_kind_of_each_module_has_two_faults():
    for path, kinds in KINDS.items():
        for kind in kinds:
            assert sum((fault.path, fault.kind) == (path, kind) for fault in FAULTS.values()) >= 2, (path, kind)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(": ", "-").replace(" ", "-"))
def test_faults_are_refuted(name):
    assert "refuted" in FAULTS[name].results()


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [SMALL, behind(4), behind(16), behind(32), replace(SMALL, kept_words=4096), replace(SMALL, cores=4)],
    ids=["8 bytes", "4 bytes", "16 bytes", "32 bytes", "map memory", "cores"],
)
def test_connections_are_proved(config):
    verilog, found = engine(config)
    connections = [
        obligation for path, kinds in KINDS.items() for obligation in found[path] if obligation.kind in kinds
    ]
    proofs = proved(connections, verilog)
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}
