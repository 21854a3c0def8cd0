"""Floors of the packages, folders of the tests, and names of the files in the checkout."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from hwgen.network.ops import KINDS

TESTS = Path(__file__).resolve().parents[1]


def imports(path: Path) -> list[str]:
    """Return the names of the modules that a file imports, at its top or later."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


def imported_tests(folder: Path) -> list[str]:
    """Return a line for each import of a test file in the files of ``folder``."""
    tests = {path.stem for path in folder.rglob("test_*.py")}
    return [
        f"{path.relative_to(folder)} imports {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in imports(path)
        if name.split(".")[-1] in tests
    ]


def test_no_test_imports_another_test():
    assert imported_tests(TESTS) == []


@pytest.mark.parametrize("line", ["from test_b import x", "import test_b", "def f():\n    from emit.test_b import x"])
def test_an_import_of_a_test_is_noticed(line, tmp_path):
    (tmp_path / "test_a.py").write_text(line)
    (tmp_path / "test_b.py").touch()
    assert imported_tests(tmp_path) == [f"test_a.py imports {'emit.' * ('emit' in line)}test_b"]


def test_files_have_names_of_their_own():
    """Tests and helpers are imported by their names alone."""
    names = Counter(path.name for path in TESTS.rglob("*.py"))
    assert [name for name, count in names.items() if count > 1] == []


ROOT = Path(__file__).resolve().parents[2]

#: Each part of the package, and the parts that it may import besides itself. A line names only parts of lines above it.
FLOORS = {
    "printable": "",
    "errors": "printable",
    "options": "errors",
    "installing": "",
    "rendering": "",
    "progress": "errors printable",
    "processes": "errors",
    "work": "errors installing progress processes",
    "digest": "",
    "frozen": "",
    "fields": "errors frozen",
    "cache": "errors processes",
    "devices": "errors frozen",
    "simulators": "errors",
    "boards": "errors devices",
    "arguments": "errors simulators boards",
    "network": "errors options installing printable progress processes arguments",
    "obligations": "errors fields",
    "gateware": "errors devices frozen obligations",
    "blocking": "errors boards network",
    "schedule": "errors progress network gateware",
    "program": "errors fields work network gateware blocking schedule",
    "templates": "errors fields options printable devices boards network gateware schedule program",
    "plan": "errors fields options printable digest cache progress boards network gateware blocking schedule templates",
    "explore": "errors options installing progress work boards network plan templates",
    "report": "errors fields options installing printable boards network gateware blocking schedule program templates "
    "plan explore",
    "verilog": "errors printable progress digest frozen cache devices obligations gateware",
    "prove": "errors fields installing digest cache processes work obligations gateware report",
    "simulate": "errors simulators installing rendering processes digest cache progress work network gateware schedule "
    "program verilog",
    "emit": "errors fields rendering processes devices boards obligations gateware schedule program verilog prove "
    "simulate",
    "tools": "errors fields installing progress processes work devices boards gateware report verilog prove simulate",
    "api": "errors options printable arguments progress work boards network gateware schedule program templates plan "
    "explore report simulate emit",
    "host": "errors network plan api",
    "hwgen": "errors api host",
    "cli": "errors options simulators printable processes cache progress work devices boards network "
    "obligations blocking templates plan explore report prove simulate emit tools api hwgen",
}


def modules() -> dict[str, Path]:
    """Every module's file; a package is its ``__init__.py``."""
    found = {}
    for top, folder in (("hwgen", ROOT / "hwgen"), ("hwgen.boards", ROOT / "boards")):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([top, *(part for part in parts if part != "__init__")])] = path
    return found


def named(tree: ast.AST, known: set[str]) -> set[str]:
    """The modules that a file names in its imports, those in functions and those for type checkers included."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {
                whole if (whole := f"{node.module}.{alias.name}") in known else str(node.module) for alias in node.names
            }
    return names & known


FILES = modules()


@cache
def named_by(name: str) -> set[str]:
    """Return the modules that a module names in its imports."""
    return named(ast.parse(FILES[name].read_text(encoding="utf-8")), set(FILES))


def imports_by_module(name: str) -> set[str]:
    """What a module's imports run: the modules that it names, and the packages around them, but not those around it."""
    around = {name.rsplit(".", count)[0] for count in range(name.count(".") + 1)}
    packages = {found.rsplit(".", count)[0] for found in named_by(name) for count in range(1, found.count("."))}
    return named_by(name) | packages - around


def part(name: str) -> str:
    """The line of the table for a module."""
    return name.split(".")[1] if "." in name else name


def reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Where one or more steps lead."""
    seen: set[str] = set()
    ahead = list(edges[start])
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += edges[name]
    return seen


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules in which each leads to every other one."""
    beyond = {name: reachable(name, edges) for name in edges}
    return {
        frozenset(other for other in beyond[name] if name in beyond[other]) for name in edges if name in beyond[name]
    }


def test_circles_are_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert circles(edges) == {frozenset("bc"), frozenset("e")}


def test_imports_are_found():
    assert named_by("hwgen.cli.plan") >= {
        "hwgen.api",
        "hwgen.cli.options",
    }  # for type checkers and in functions; on top
    assert "hwgen.simulate" in imports_by_module("hwgen.tools.doctor")  # it names hwgen.simulate.verilator alone
    assert not {"hwgen", "hwgen.simulate"} & imports_by_module("hwgen.simulate.runner")
    assert part("hwgen") == "hwgen"
    assert part("hwgen.boards.vc709") == "boards"


#: Classes of the drivers that a build writes for users: a driver is called like the hardware that it drives.
DRIVERS = {"Accelerator", "Engine"}


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur several times."""
    return [name for name, count in Counter(names).items() if count > 1]


def public_classes(source: str) -> list[str]:
    """Return the names of a module's classes that don't begin with an underscore."""
    classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return [name for name in classes if not name.startswith("_")]


def test_no_two_modules_of_a_floor_share_a_name():
    modules = [name for name, path in FILES.items() if path.name != "__init__.py"]
    assert repeated(f"{part(name)}: {name.split('.')[-1]}" for name in modules) == []


def test_no_two_public_classes_share_a_name():
    classes = [name for path in FILES.values() for name in public_classes(path.read_text(encoding="utf-8"))]
    assert set(repeated(classes)) == DRIVERS


def test_a_shared_name_is_noticed():
    assert public_classes("class A: ...\nclass _B: ...\ndef c(): ...") == ["A"]
    assert repeated(["A", "B", "A"]) == ["A"]


#: Modules about convolutions, which find these among a network's layers.
OF_CONVOLUTIONS = {"hwgen.network.onnx.layers", "hwgen.program.compile", "hwgen.program.unfold"}


def asked_kinds(source: str, kinds: set[str]) -> set[str]:
    """Return the kinds of layers for which a module tests with `isinstance`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    asked = [node.args[1] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "isinstance"]
    return {name.id for tested in asked for name in ast.walk(tested) if isinstance(name, ast.Name)} & kinds


def test_no_module_asks_a_layer_for_its_kind():
    """A layer answers what others must know (`hwgen.network.ops.Op`), or a table by class has what differs."""
    kinds = {kind.__name__ for kind in KINDS.values()}
    others = {name: path for name, path in FILES.items() if not name.startswith("hwgen.network.ops")}
    asking = {name for name, path in others.items() if asked_kinds(path.read_text(encoding="utf-8"), kinds)}
    assert asking == OF_CONVOLUTIONS


def test_a_question_for_a_kind_is_noticed():
    assert asked_kinds("isinstance(layer, Conv | Text)", {"Conv", "Pool"}) == {"Conv"}


def test_no_circles():
    assert circles({name: imports_by_module(name) for name in FILES}) == set()


def test_the_table_has_no_circle():
    above: list[str] = []
    for name, below in FLOORS.items():
        assert set(below.split()) <= set(above), f"{name} may import only what stands above it in the table"
        above.append(name)


def test_planning_loads_no_proof():
    edges = {name: imports_by_module(name) for name in FILES}
    loaded = set().union(*(reachable(name, edges) for name in FILES if part(name) == "plan"))
    assert "hwgen.gateware.fifo" in loaded
    assert [name for name in loaded if name.endswith("_proof") or part(name) in ("obligations", "prove")] == []


def test_no_family_of_devices_is_named_outside_its_floor():
    """What differs by family is asked of a `Device`, so that a new one changes no module that exists."""
    families = {f"hwgen.devices.{path.name}" for path in (ROOT / "hwgen" / "devices").iterdir() if path.is_dir()}
    families -= {"hwgen.devices.__pycache__"}
    assert "hwgen.devices.ecp5" in families
    named = {
        (name, found)
        for name in FILES
        for found in named_by(name)
        if part(name) != "devices" and any(found == family or found.startswith(f"{family}.") for family in families)
    }
    assert named == set()


def test_every_module_has_a_floor():
    assert {part(name) for name in FILES} == set(FLOORS)


def test_every_floor_stands_on_those_below():
    forbidden = {
        (name, found)
        for name in FILES
        for found in named_by(name)
        if part(found) not in (part(name), *FLOORS[part(name)].split())
    }
    assert forbidden == set()


@pytest.mark.parametrize("name", FLOORS)
def test_the_table_allows_no_more_than_there_is(name):
    used = {part(found) for module in FILES if part(module) == name for found in named_by(module)} - {name}
    assert used >= set(FLOORS[name].split())


#: What lies at the top: files that git, pip, mkdocs and readers look for there, and the folders.
TOP = {
    *(".ci", ".gitattributes", ".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "__init__.py"),
    *("mkdocs.yml", "pyproject.toml"),
    *("bench", "boards", "build", "changes", "docs", "examples", "hwgen", "rtl_tests"),
}
#: Device names of Windows, which no file there can have, whatever its ending.
_DEVICES = {"aux", "con", "nul", "prn", *(f"{name}{number}" for name in ("com", "lpt") for number in range(1, 10))}
_PORTABLE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?<!\.)")


def files() -> list[str]:
    """Return the paths of the files that the checkout holds, or skip the test where git doesn't know them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:  # a copy without git
        ignored = {".venv", "__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis"}
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
        return [
            path.as_posix()
            for path in paths
            if not ignored & {*path.parts}
            and not any(part.endswith(".egg-info") for part in path.parts)
            and (path.parts[0] != "build" or path.name == "README.md")
        ]
    return [name for name in listed.stdout.decode().split("\0") if name]


def not_portable(names: list[str]) -> list[str]:
    """Return the paths that Windows or macOS cannot hold beside the others."""
    wrong = {
        name
        for name in names
        for part in name.split("/")
        if not _PORTABLE.fullmatch(part) or part.split(".")[0].lower() in _DEVICES
    }
    by_folded: dict[str, str] = {}
    wrong |= {name for name in names if by_folded.setdefault(name.lower(), name) != name}
    return sorted(wrong)


def test_the_top_holds_what_it_is_known_to_hold():
    assert {name.split("/")[0] for name in files()} <= TOP


def test_every_system_can_write_all_files():
    assert not_portable(files()) == []


@pytest.mark.parametrize("name", ['a"b.py', "a\\b", "a|b", "a b", "b/aux.v", "b/con", "end.", "-rf", "ä.py", "A/x.py"])
def test_a_name_that_some_system_cannot_write_is_noticed(name):
    assert not_portable(["a/x.py", name]) == [name]
