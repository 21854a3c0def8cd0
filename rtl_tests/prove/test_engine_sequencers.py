"""Proofs of an engine's compute core and job check, and faults seeded in their Verilog that they must refute."""

from __future__ import annotations

import re
import shutil

import pytest
from programs import SMALL
from proofs import Fault, engine, kinds_of, proved

from hwgen.obligations.modules import modules_of

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

CHECK, CORE, STEPS, DRAINS = "memory_side.check", "core", "core.steps", "core.drains"
#: Kinds of obligations of each component, by its path.
KINDS = {
    CHECK: {"rules", "tokens", "wires"},
    CORE: {"wires", "logic", "contract", "credits", "tokens"},
    STEPS: {"path", "occupancy", "tokens", "progress"},
    DRAINS: {"path", "stream", "occupancy", "tokens", "progress"},
}


def _ready_by(condition: str) -> tuple[str, str]:
    """Return text, and faulty text, of a module whose ``jobs.ready`` is also ``condition``."""
    return "endmodule", f"    always @* jobs__ready = {condition};\nendmodule"


FAULTS = {
    "check: a bound is one too high": Fault(CHECK, "rules", "> 16'd128", "> 16'd129", statement="w_steps must be at"),
    "check: a field is of another word": Fault(
        CHECK, "rules", "word_index_delayed == 5'd6", "word_index_delayed == 5'd7", statement="folds must not be 0"
    ),
    "check: a product is too long": Fault(
        CHECK,
        "rules",
        "compute_groups_total_length_1 > 5'd5",
        "compute_groups_total_length_1 > 5'd6",
        statement="groups times folds",
    ),
    "check: a verdict is early": Fault(
        CHECK, "tokens", "crc__verdict <= is_last_word_2", "crc__verdict <= is_last_word_1"
    ),
    "check: a job is counted twice": Fault(CHECK, "tokens", "job_index + 24'd1", "job_index + 24'd2"),
    "check: a broken rule is kept": Fault(
        CHECK,
        "tokens",
        "if (crc__verdict) begin\n            is_rule_broken",
        "if (1'b0) begin\n            is_rule_broken",
    ),
    "check: the checksum is not reset": Fault(CHECK, "wires", ".rst(rst)", ".rst(1'b0)"),
    "check: the checksum is reset by a job": Fault(CHECK, "wires", ".rst(rst)", ".rst(crc__verdict)"),
    "core: parts are crossed": Fault(CORE, "wires", ".jobs__valid(drain__valid)", ".jobs__valid(compute__valid)"),
    "core: jobs are loaded early": Fault(CORE, "wires", ".loaded(loaded)", ".loaded(stored)"),
    "core: a step is early": Fault(CORE, "contract", "step_valid_5 <= step_valid_4", "step_valid_5 <= step_valid_3"),
    "core: ignored sums leave": Fault(CORE, "contract", "drains__valid & !array__yields", "drains__valid"),
    "core: each step completes a group": Fault(
        CORE,
        "credits",
        "group_complete_1 <= steps__valid & steps__step__ends_complete[1]",
        "group_complete_1 <= steps__valid",
    ),
    "core: a group is complete from the beginning": Fault(
        CORE, "credits", "group_complete_14 = 1'b0", "group_complete_14 = 1'b1"
    ),
    "core: a block is skipped": Fault(
        CORE,
        "tokens",
        "is_last_fold <= blocks_left == 5'd2",
        "is_last_fold <= blocks_left == 5'd3",
        module="engine_core_drains",
    ),
    "core: a fold ends a pixel early": Fault(
        CORE, "tokens", "pixels_left[1:0] <= 2'd2", "pixels_left[1:0] <= 2'd3", module="engine_core_drains"
    ),
    "core: an address is a pixel behind": Fault(
        CORE, "tokens", "pixel_address + 16'd1", "pixel_address + 16'd2", module="engine_core_drains"
    ),
    "core: a lane is behind": Fault(
        CORE, "tokens", "select[5:3] <= 3'd0", "select[5:3] <= 3'd1", module="engine_core_drains"
    ),
    "steps: ready by valid": Fault(STEPS, "path", *_ready_by("jobs__valid")),
    "steps: ready by a job": Fault(STEPS, "path", *_ready_by("jobs__payload[0]")),
    "steps: a slot is used twice": Fault(STEPS, "occupancy", "(used_slots + 4'd1)", "(used_slots + 4'd2)"),
    "steps: a group has no slot": Fault(STEPS, "occupancy", "!(job[8] & used_slots[3])", "1'b1"),
    "steps: a column is left out": Fault(STEPS, "tokens", "columns_left == 8'd2", "columns_left == 8'd3"),
    "steps: weights go on": Fault(STEPS, "tokens", "word_2[7:1] <= fold_weights", "word_2[7:1] <= sum"),
    "steps: a fold is repeated": Fault(STEPS, "tokens", "folds_left == 8'd2", "folds_left == 8'd1"),
    "steps: a job waits for the next": Fault(
        STEPS, "progress", "is_next_job_ready <= !jobs__ready & ", "is_next_job_ready <= !jobs__ready & jobs__valid & "
    ),
    "steps: a group never starts": Fault(
        STEPS,
        "progress",
        "next_group_start = is_group_boundary & ",
        "next_group_start = is_group_boundary & (groups_left != 8'd1) & ",
    ),
    "drains: ready by valid": Fault(DRAINS, "path", *_ready_by("jobs__valid")),
    "drains: ready by a job": Fault(DRAINS, "path", *_ready_by("jobs__payload[0]")),
    "drains: a lane goes on": Fault(
        DRAINS,
        "stream",
        "end else if (beat_selected) begin\n            select",
        "end else if (valid) begin\n            select",
    ),
    "drains: an address goes on": Fault(DRAINS, "stream", "both_2 = beat_selected & ", "both_2 = valid & "),
    "drains: two groups are taken": Fault(DRAINS, "occupancy", "complete_groups - 4'd1", "complete_groups - 4'd2"),
    "drains: an empty job is not counted": Fault(DRAINS, "occupancy", "if (finished | job_skip)", "if (finished)"),
    "drains: a stride is kept": Fault(
        DRAINS,
        "tokens",
        "if (group_start) begin\n            group_stride",
        "if (job_start) begin\n            group_stride",
    ),
    "drains: a stride is not stored": Fault(DRAINS, "tokens", "if (opens) strides", "if (opens & !valid) strides"),
    "drains: a job waits for the next": Fault(
        DRAINS, "progress", "is_next_job_ready <= !jobs__ready & ", "is_next_job_ready <= !jobs__ready & jobs__valid & "
    ),
    "drains: a group waits for another": Fault(
        DRAINS,
        "progress",
        "next_group_start = is_group_boundary & ",
        "next_group_start = is_group_boundary & !opens & ",
    ),
}
#: Faults in the first reset of a module, by name: a pattern, and what replaces it.
RESETS = {
    "another value": (r"( {8}if \(rst\) begin\n {12}\w+ <= )(\S+);", r"\1~\2;"),
    "not always": (r"( {8}if \(rst)(\) begin)", r"\1 & !run_reset\2"),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


def test_each_component_emits_its_kinds():
    _, found = engine(SMALL)
    kinds = kinds_of(found)
    assert {path: kinds[path] for path in KINDS} == KINDS
    assert all("reset" in {obligation.kind for obligation in found[path]} for path in KINDS)


def test_each_kind_of_each_component_has_two_faults():
    for path, kinds in KINDS.items():
        for kind in kinds - {"logic"}:  # see test_engine_wires.py
            faults = [name for name, fault in FAULTS.items() if (fault.path, fault.kind) == (path, kind)]
            assert len(faults) >= 2, (path, kind)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(": ", "-").replace(" ", "-"))
def test_faults_are_refuted(name):
    assert "refuted" in FAULTS[name].results()


@pytest.mark.long
@pytest.mark.parametrize("path", KINDS)
def test_a_reset_that_misses_a_register_is_refuted(path):
    verilog, found = engine(SMALL)
    resets = [obligation for obligation in found[path] if obligation.kind == "reset"]
    text = modules_of(verilog)[resets[0].module].text
    faulty = re.sub(r"( {8}if \(rst\) begin\n)( {12}\w+ <= \S+;\n)", r"\1", text, count=1)
    assert faulty != text
    assert {proof.verdict.result for proof in proved(resets, verilog.replace(text, faulty)).values()} == {"refuted"}


@pytest.mark.long
def test_the_core_and_the_check_are_proved():
    verilog, found = engine(SMALL)
    proofs = proved([obligation for path in KINDS for obligation in found[path]], verilog)
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}
