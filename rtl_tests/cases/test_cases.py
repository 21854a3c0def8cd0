"""The cases of this folder: what each command prints is what its case says, character by character."""

from __future__ import annotations

import pytest
from transcripts import CASES, case_today


@pytest.mark.parametrize("name", sorted(path.parent.name for path in CASES.glob("*/case.md")))
def test_case(name, tmp_path):
    assert case_today(CASES / name, tmp_path) == (CASES / name / "case.md").read_text(encoding="utf-8")
