"""`bench/unchanged.py`: two measurements differ where they should, and nowhere else."""

from __future__ import annotations

import json

import unchanged
from unchanged import canonical, differences


def test_names_and_build_hash_are_no_differences():
    before = "assign sum = left + 8'h0f; // both\nhash = 32'h1a; hash = 32'hdeadbeef;"
    after = "assign a  = b + 8'h0f;\nh = 32'h2b; h = 32'h77;"
    assert canonical(before, 0x1A_DEAD_BEEF) == canonical(after, 0x2B_0000_0077)
    assert canonical(before, 0x1A_DEAD_BEEF) != canonical(after, 0x2B_0000_0078)
    assert canonical("a = b + c;") != canonical("a = b + b;")


def test_only_luts_and_flip_flops_are_tolerated():
    before = {"resources": {"lut": 1000, "dsp": 4}, "cycles": [5, 6]}
    after = {"resources": {"lut": 1005, "dsp": 5}, "cycles": [5, 7]}
    assert [*differences(before, after, 0.005)] == [
        "resources.dsp: 4 before, 5 after",
        "cycles[1]: 6 before, 7 after",
    ]
    assert "resources.lut: 1000 before, 1005 after" in [*differences(before, after, 0.004)]


def test_renamed_keys_are_no_differences(monkeypatch, capsys):
    monkeypatch.setattr(unchanged, "RENAMED_KEYS", {"kind": "type"})
    before = {"case": {"layers": [{"kind": "conv"}]}}
    assert unchanged.compare(before, {"case": {"layers": [{"type": "conv"}]}}, plans=False, tolerance=0) == 0
    assert unchanged.compare(before, {"case": {"layers": [{"type": "pool"}]}}, plans=False, tolerance=0) == 1
    assert "case: layers[0].type: conv before, pool after" in capsys.readouterr().out


def test_renamed_values_are_no_differences():
    plan = {"groups": [{"template": "tile", "layers": [{"tile": "tile"}]}]}
    assert unchanged.renamed(plan) == {"groups": [{"template": "engine", "layers": [{"tile": "tile"}]}]}


def test_case_without_an_end_is_a_difference(capsys):
    before = json.loads('{"one": {"dsp": 1}, "two": {"dsp": 2}}')
    assert unchanged.compare(before, {"one": {"dsp": 1}}, plans=False, tolerance=0) == 1
    assert capsys.readouterr().out.endswith("2 cases, 1 differences\n")
