"""Who imports whom: no circles, and every floor stands on those below it (docs/explanation/architecture.md)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

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
    "network": "errors options printable progress processes arguments",
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


def imports(name: str) -> set[str]:
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
    assert "hwgen.simulate" in imports("hwgen.tools.doctor")  # it names hwgen.simulate.verilator alone
    assert not {"hwgen", "hwgen.simulate"} & imports("hwgen.simulate.groups")
    assert part("hwgen") == "hwgen"
    assert part("hwgen.boards.vc709") == "boards"


def test_no_circles():
    assert circles({name: imports(name) for name in FILES}) == set()


def test_the_table_has_no_circle():
    above: list[str] = []
    for name, below in FLOORS.items():
        assert set(below.split()) <= set(above), f"{name} may import only what stands above it in the table"
        above.append(name)


def test_planning_loads_no_proof():
    edges = {name: imports(name) for name in FILES}
    loaded = set().union(*(reachable(name, edges) for name in FILES if part(name) == "plan"))
    assert "hwgen.gateware.fifo" in loaded
    assert [name for name in loaded if name.endswith("_proof") or part(name) in ("obligations", "prove")] == []


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
