"""Proofs of an engine's map memory, and of bursts that are dealt to several cores, and faults that they must refute."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from programs import SMALL
from proofs import Fault, engine, kinds_of, proved

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

#: Engines with two banks of a map memory, and with four cores.
KEPT, CORES = replace(SMALL, kept_words=4096), replace(SMALL, cores=4)
#: Engine with two blocks of maps and two pixels a beat.
WIDE = replace(SMALL, maps=16, requantisers=16)
KEPT_MAPS, LOAD = "memory_side.map_memory", "memory_side.load"
FAULTS = {
    "maps: flags are late": Fault(
        KEPT_MAPS, "contract", "read_flags_2 <= read_flags_1", "read_flags_2 <= read_flags_3", engine=KEPT
    ),
    "maps: a burst waits": Fault(
        KEPT_MAPS, "contract", "load__ready = (reads_left == 9'd0)", "load__ready = (reads_left == 9'd2)", engine=KEPT
    ),
    "maps: a row is left out": Fault(KEPT_MAPS, "tokens", "write_index + 12'd1", "write_index + 12'd2", engine=KEPT),
    "maps: words are in one place": Fault(
        KEPT_MAPS, "tokens", "is_first_write <= written__payload[64]", "is_first_write <= 1'b1", engine=KEPT
    ),
    "maps: a bank is chosen early": Fault(
        KEPT_MAPS, "tokens", "read_bank_2 <= read_bank_1", "read_bank_2 <= read_row[10]", engine=KEPT
    ),
    "core: a group ends late": Fault(
        "core",
        "tokens",
        "has_one_word ? 2'd3 : 2'd1}",
        "has_one_word ? 2'd3 : 2'd2}",
        module="engine_core_drains",
        engine=WIDE,
    ),
    "core: a job has beats of another size": Fault(
        "core", "tokens", "has_one_word <= any", "has_one_word <= !any", module="engine_core_drains", engine=WIDE
    ),
    "deal: a team is left out": Fault(
        LOAD, "tokens", "team_after <= team + 2'd1", "team_after <= team + 2'd2", engine=CORES
    ),
    "deal: the first member is left out": Fault(
        LOAD, "tokens", "member_after <= is_last_member ? 2'd0", "member_after <= is_last_member ? 2'd1", engine=CORES
    ),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


@pytest.mark.long
def test_each_component_emits_its_kinds():
    kept, dealt = (kinds_of(engine(config)[1]) for config in (KEPT, CORES))
    assert kept[KEPT_MAPS] == {"contract", "tokens", "wires"}
    assert kept[f"{KEPT_MAPS}.bursts"] == {"tokens"}
    assert kept["memory_side.load_kept"] == {"stream", "path", "bus", "contract"}
    assert dealt[LOAD] == {"stream", "path", "bus", "contract", "tokens"}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(": ", "-").replace(" ", "-"))
def test_faults_are_refuted(name):
    assert "refuted" in FAULTS[name].results()


@pytest.mark.long
@pytest.mark.parametrize("config", [WIDE, CORES, replace(SMALL, maps=32, requantisers=32)])
def test_beats_of_wide_cores_are_proved(config):
    verilog, found = engine(config)
    beats = [obligation for obligation in found["core"] if obligation.kind == "tokens"]
    assert {proof.verdict.result for proof in proved(beats, verilog).values()} == {"proved"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "paths"), [(KEPT, (KEPT_MAPS, "memory_side.load_kept")), (CORES, (LOAD,))], ids=["map memory", "cores"]
)
def test_variants_are_proved(config, paths):
    verilog, found = engine(config)
    obligations = [obligation for path in found if path.startswith(paths) for obligation in found[path]]
    proofs = proved(obligations, verilog)
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}
