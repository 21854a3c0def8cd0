"""`bench/prose.py`: what it reports, on sources written for it, and that the code base has no finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from prose import findings

FAR = "    x = 1\n" * 12


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('"""Of a frame."""\n', "fragment"),
        ('class A:\n    """Text."""\n\n    b: int = 1\n    """By channel."""\n', "fragment"),
        ("#: Those of a layer.\nx = 1\n", "fragment"),
        ('def f(most):\n    """Return it."""\n', "bare name"),
        ("place = 3\n", "bare name"),
        (f"def _f():\n    found = 1\n{FAR}    return found\n", "bare name"),
        ('class A:\n    """Text."""\n\n    def f(self): ...\n', "no docstring"),
    ],
)
def test_finding(tmp_path: Path, source: str, rule: str):
    (tmp_path / "hwgen").mkdir()
    (tmp_path / "hwgen" / "one.py").write_text(source)
    assert [finding.rule for finding in findings(["hwgen"], tmp_path)] == [rule]


@pytest.mark.parametrize(
    "source",
    [
        '"""Words of a frame."""\n',
        "#: A comment\n#: of two lines.\nx = 1\n",
        "def _f(most):\n    found = most\n    return found\n",
        'class A:\n    """Text."""\n\n    def f(self):\n        """Return nothing."""\n\n\n'
        'class B(A):\n    """Text."""\n\n    def f(self): ...\n',
        'class A(wiring.Component):\n    """Text."""\n\n    def elaborate(self, platform): ...\n',
    ],
)
def test_no_finding(tmp_path: Path, source: str):
    (tmp_path / "hwgen").mkdir()
    (tmp_path / "hwgen" / "one.py").write_text(source)
    assert not list(findings(["hwgen"], tmp_path))


@pytest.mark.parametrize(
    ("files", "rules"),
    [
        ({"a/x.py": "class A: ...\n", "a/b/y.py": "class A: ...\n"}, ["same class"]),
        ({"a/x.py": "class A: ...\n", "b/y.py": "class A: ...\n"}, []),
        ({"a/x.py": "", "a/b/x.py": ""}, ["same file"]),
        ({"network/ops/x.py": "class A: ...\n", "network/onnx/x.py": "class A: ...\n"}, []),
    ],
)
def test_same_names(tmp_path: Path, files: dict[str, str], rules: list[str]):
    for name, source in files.items():
        path = tmp_path / "hwgen" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert [finding.rule for finding in findings(["hwgen"], tmp_path)] == rules
