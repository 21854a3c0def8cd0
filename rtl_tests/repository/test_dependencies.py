"""``bench/dependencies.py`` on small trees: which tests a change of a source touches, and which it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import touched
from dependencies import Graph
from ledger import digests
from texts import files_in

FILES = files_in("dependencies_tree.txt")
#: A change of a file, and the tests that it touches; ``all`` and ``a`` stand for all tests and for those of test_a.
CHANGES = [
    ("hwgen/gateware/fifo.py", "return 1", "return 2", "fifo loaded tool script"),
    ("hwgen/gateware/memory.py", "pass", "x = 1", "fifo loaded tool script"),
    ("hwgen/gateware/fifo.py", "class Other: pass", "class Other: x = 1", ""),
    ("hwgen/gateware/fifo.py", "class Other", "# a comment\nclass Other", ""),
    ("hwgen/plan.py", "DEPTH = 4", "DEPTH = 5", "loaded tool script"),
    ("hwgen/plan.py", "return 2", "return 3", "script patched"),
    ("hwgen/report.py", "pass", "x = 1", ""),
    ("hwgen/api/__init__.py", "import load", "import load, load as again", ""),
    ("hwgen/api/load.py", "return make()", "return make() or None", "loaded tool"),
    ("hwgen/registry.py", "KINDS[name]", "KINDS.get(name)", "kind"),
    ("hwgen/kinds.py", "def conv(): return 1", "def conv(): return 2", "a"),
    ("hwgen/kinds.py", "def helper(): return 1", "def helper(): return 2", ""),
    ("hwgen/emit/page.j2", "page", "sheet", "text"),
    ("boards/large.toml", "platform", "other", "board"),
    ("boards/large_platform.py", "3", "4", "board"),
    ("hwgen/cli/main.py", "load()", "load() or 1", "tool"),
    ("examples/digits/digits.onnx", "model", "other", "model any_file"),
    ("examples/digits/images.npy", "images", "others", "any_file"),
    ("rtl_tests/support/helper.py", "return 3", "return 4", "fixture"),
    ("rtl_tests/support/cocotb_bench.py", "pass", "x = 1", "module_by_name"),
    ("rtl_tests/support/base.py", "def start(): pass", "def start(): x = 1", "all"),
    ("rtl_tests/support/base.py", "def unused(): pass", "def unused(): x = 1", ""),
    ("rtl_tests/conftest.py", "base.start()", "base.start() or 1", "all"),
    ("pyproject.toml", "error", "ignore", "all"),
    ("pyproject.toml", "made-up", "other", ""),
    ("bench/draw.py", "return 1", "return 2", "draw"),
    ("rtl_tests/a/test_a.py", "Fifo()", "Fifo(1)", "fifo"),
    ("LICENSE", "Free", "Dear", ""),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def known(tree: Path) -> dict[str, str]:
    """Return the digest of each test, by its name without ``test_``."""
    return {name.partition("::test_")[2]: digest for name, digest in digests(Graph(tree)).items()}


@pytest.mark.parametrize(("path", "old", "new", "expected"), CHANGES)
def test_digests_that_a_change_alters(path: str, old: str, new: str, expected: str, tree: Path):
    before = known(tree)
    assert old in FILES[path]
    (tree / path).write_text(FILES[path].replace(old, new))
    after = known(tree)
    everything = {"all": set(before), "a": set(before) - {"draw"}}
    assert {name for name in before if before[name] != after[name]} == everything.get(expected, set(expected.split()))


@pytest.mark.parametrize(("path", "old", "new", "expected"), CHANGES)
def test_tests_that_are_touched_by_a_change(path: str, old: str, new: str, expected: str, tree: Path):
    (tree / path).write_text(FILES[path].replace(old, new))
    graph = Graph(tree)
    nodes = touched.changed_nodes(graph, path, FILES[path] if path.endswith((".py", "project.toml")) else None)
    ranks = touched.ranks(graph, nodes, [path], {})
    found = {name.partition("::test_")[2] for name in ranks}
    names = {name.partition("::test_")[2] for name in digests(graph)}
    everything = {"all": names, "a": names - {"draw"}}
    assert found == everything.get(expected, set(expected.split()))


def test_the_same_text_elsewhere_has_the_same_digests(tree: Path, tmp_path_factory: pytest.TempPathFactory):
    other = tmp_path_factory.mktemp("other") / "deep"
    other.mkdir()
    for name, text in FILES.items():
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text(text)
    assert known(other) == known(tree)


def test_a_file_that_comes_is_a_change(tree: Path):
    before = known(tree)
    (tree / "examples" / "digits" / "more.npy").write_text("more\n")
    (tree / "hwgen" / "emit" / "more.j2").write_text("more\n")
    after = known(tree)
    assert {name for name in before if before[name] != after[name]} == {"any_file", "text"}


def test_definitions_that_name_each_other(tree: Path):
    path = tree / "bench" / "draw.py"
    path.write_text("def draw(): return other()\ndef other(): return draw()\ndef far(): return draw()\n")
    before = known(tree)["draw"]
    path.write_text("def draw(): return other()\ndef other(): return 1 + draw()\ndef far(): return draw()\n")
    assert known(tree)["draw"] != before
    path.write_text("def draw(): return other()\ndef other(): return draw()\ndef far(): return 1 + draw()\n")
    assert known(tree)["draw"] == before


def test_the_nearest_come_first(tree: Path):
    graph = Graph(tree)
    path = "hwgen/gateware/memory.py"
    ranks = touched.ranks(graph, touched.changed_nodes(graph, path), [path], {"rtl_tests/a/test_a.py": {"memory"}})
    assert ranks["rtl_tests/a/test_a.py::test_fifo"] < ranks["rtl_tests/a/test_a.py::test_loaded"]
    others = touched.ranks(graph, touched.changed_nodes(graph, path), [path], {})
    assert all(touched.OWN < ranks[name] < others[name] for name in others)
    own = "rtl_tests/a/test_a.py"
    assert set(touched.ranks(graph, touched.changed_nodes(graph, own), [own], {}).values()) == {touched.OWN}


def test_a_definition_that_goes_is_a_change(tree: Path):
    path = "hwgen/plan.py"
    (tree / path).write_text(FILES[path].replace("def other(): return 2\n", ""))
    graph = Graph(tree)
    ranks = touched.ranks(graph, touched.changed_nodes(graph, path, FILES[path]), [path], {})
    assert "rtl_tests/a/test_a.py::test_patched" in ranks
