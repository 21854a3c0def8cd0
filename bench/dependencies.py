"""Graph of the sources that a test depends on, read from their text: nothing is imported, and nothing runs.

A node is one definition of a module (a function, a class, or a constant), what a module does when it is imported, or a
file. An edge leads from a node to whatever its text names: by imports, at the top of a file and in functions, by
strings that name a module, a file or the tool itself, and by paths that begin at ``__file__``. A class is one node with
all its methods, and a module that is used as a value stands for all its definitions. There are too many edges rather
than too few; `_WITHOUT_EFFECT` lists the only ones that are left out.

A test depends on its function, on the fixtures whose names it takes, on rtl_tests/conftest.py and pytest's settings,
and on all that these reach. A digest does not cover comments and layout of Python files. It does not cover the versions
of Python packages and of other programs either: after such a change, ``bench/long.py --all`` runs all long tests again.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

#: Folders of modules, and the package of each; modules of a folder without a package are imported by their own names.
PACKAGES = {"hwgen": "hwgen", "boards": "hwgen.boards", "bench": "", "rtl_tests/support": "", "examples": "examples"}
#: Folders whose files a test may read.
FOLDERS = ("hwgen", "boards", "bench", "rtl_tests", "examples", "docs", ".ci")
CONFTEST = "rtl_tests/conftest.py"
#: Folder of the ledger of long tests. No test depends on it.
LEDGER = "rtl_tests/ledger"
#: Node of pytest's settings in pyproject.toml.
PROJECT = "pyproject.toml"
SETTINGS = f"{PROJECT}:pytest"
#: Nodes whose paths are left out, with the reason.
_WITHOUT_EFFECT = {
    "hwgen.digest:source": "reads all sources, but only to name entries of the cache",
    f"{CONFTEST}:": "names helpers, which are nodes of the graph",
    f"{CONFTEST}:pytest_configure": "the same",
    f"{CONFTEST}:TopIsNoPackage": "the same",
}
#: Module where the command line begins.
_TOOL = "hwgen.cli.main"
#: Names of methods that a decorator calls to enter a function into a table.
_ENTERS = frozenset({"register", "append", "add", "update", "setdefault", "insert"})
_IMPORTS_TOOL = re.compile(r"\b(?:from|import) (hwgen(?:\.\w+)*)")
_RUNS_TOOL = re.compile(r"(^|/|-m )hwgen($|\s)")
_MODULE_NAME = re.compile(r"\bhwgen(?:\.\w+)+")


@dataclass
class Facts:
    """Names that the text of a node contains.

    Parameters
    ----------
    text : str
        Text without comments and layout.
    names : set of tuple of str
        Names with their attributes, for example ``("fifo", "FifoConfig")``.
    strings : set of str
        String constants.
    paths : list of ast.expr
        Expressions that may be paths.
    imports : list of tuple
        Imports inside: the bound name, the module, and the imported name or None.
    packages : set of str
        Packages whose data are read.
    """

    text: str = ""
    names: set[tuple[str, ...]] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    paths: list[ast.expr] = field(default_factory=list)
    imports: list[tuple[str, str, str | None]] = field(default_factory=list)
    packages: set[str] = field(default_factory=set)


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield the bound name, the module and the imported name of each part of an import."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name, None if alias.asname is None else ""
    else:
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*above, *filter(None, [node.module])])
        for alias in node.names:
            yield alias.asname or alias.name, module, alias.name


def _chain(node: ast.AST) -> tuple[str, ...]:
    """Return a name with its attributes; empty for any other expression."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, *reversed(attributes)) if isinstance(node, ast.Name) else ()


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and _chain(node.test)[-1:] == ("TYPE_CHECKING",)


def _is_main(statement: ast.stmt) -> bool:
    """Return whether a statement is for a file that is run, whose definitions all count."""
    return isinstance(statement, ast.If) and "'__main__'" in ast.dump(statement.test)


class _Reader(ast.NodeVisitor):
    """Visitor that collects the facts of one node."""

    def __init__(self, package: str) -> None:
        self.facts = Facts()
        self._package = package

    def read(self, nodes: list[ast.stmt]) -> Facts:
        self.facts.text = "\n".join(ast.dump(node) for node in nodes)
        for node in nodes:
            self.visit(node)
        return self.facts

    def visit(self, node: ast.AST) -> None:
        if _is_for_types(node):
            for part in node.orelse:  # type: ignore[attr-defined]
                self.visit(part)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.facts.imports += _imported(node, self._package)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._visit_function(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            self._visit_name(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.facts.strings.add(node.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            self.facts.paths.append(node)
            self.visit(node.right)
            self._visit_start(node.left)
        elif isinstance(node, ast.Call):
            self._visit_call(node)
        else:
            self.generic_visit(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit a function without its annotations, which nothing evaluates. Arguments of tests are fixtures."""
        arguments = node.args
        for part in [*node.decorator_list, *arguments.defaults, *filter(None, arguments.kw_defaults), *node.body]:
            self.visit(part)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.facts.names |= {(argument.arg,) for argument in every}

    def _visit_name(self, node: ast.Name | ast.Attribute) -> None:
        self.facts.paths.append(node)
        if chain := _chain(node):
            self.facts.names.add(chain)
        else:
            self._visit_start(node)

    def _visit_start(self, node: ast.AST) -> None:
        """Visit the beginning of a longer path, which is not a path of its own."""
        count = len(self.facts.paths)
        if isinstance(node, ast.Attribute) and not _chain(node):
            self.visit(node.value)
        else:
            self.visit(node)
        del self.facts.paths[count:]

    def _visit_call(self, node: ast.Call) -> None:
        name = _chain(node.func)
        if name[-2:] == ("resources", "files") or name[-1:] == ("PackageLoader",):
            first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            self.facts.packages.add(first if isinstance(first, str) else self._package)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("relative_to", "is_relative_to"):
            self.visit(node.func.value)
        else:
            self.facts.paths.append(node)
            is_path = isinstance(node.func, ast.Attribute) or name[-1:] in (("Path",), ("str",))
            self._visit_start(node.func)
            for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
                self._visit_start(part) if is_path and name[-1:] in (("Path",), ("str",)) else self.visit(part)


@dataclass
class Module:
    """A Python file: its definitions by name, what it imports at its top, and what it does when it is imported."""

    name: str
    path: str
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: list[tuple[str, str, str | None]] = field(default_factory=list)
    actions: list[ast.stmt] = field(default_factory=list)
    decorated: list[tuple[ast.stmt, tuple[str, ...]]] = field(default_factory=list)

    @property
    def package(self) -> str:
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]

    @classmethod
    def read(cls, name: str, path: str, source: str) -> Module:
        module = cls(name, path)
        for statement in ast.parse(source).body:
            module._add(statement)
        return module

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self.imports += _imported(statement, self.package)
        elif _is_for_types(statement):
            for part in statement.orelse:  # type: ignore[attr-defined]
                self._add(part)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.definitions.setdefault(statement.name, []).append(statement)
            self._add_decorators(statement)
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)) and not _is_main(
            statement
        ):
            names = self._bound(statement)
            for name in names:
                self.definitions.setdefault(name, []).append(statement)
            if not names or "pytestmark" in names or not _only_binds(statement):
                self.actions.append(statement)

    def _add_decorators(self, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for decorator in statement.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            if call and any(keyword.arg == "autouse" for keyword in call.keywords):
                self.actions.append(statement)
            self.decorated.append((statement, _chain(call.func if call else decorator)))

    def _bound(self, statement: ast.stmt) -> set[str]:
        """Return the names that a statement at the top of the file binds, and keep the imports in it."""
        names = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imports += _imported(node, self.package)
        return names


def _only_binds(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing but give values to names."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    is_assignment = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
    return is_assignment and all(isinstance(target, ast.Name | ast.Tuple) for target in targets)


class Graph:
    """The sources of a checkout as a graph.

    Parameters
    ----------
    root : Path
        Top of the checkout, or of a copy of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.files = dict(self._files())
        self.modules: dict[str, Module] = {}
        self._module_of: dict[str, str] = {}
        for path in self.files:
            if path.endswith(".py"):
                self._add_module(path)
        self._by_name: dict[str, list[str]] = {}
        for path in self.files:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)
        self._facts: dict[str, Facts] = {}
        self._edges: dict[str, frozenset[str]] = {}
        self._digests: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        self._path_values: dict[tuple[str, str], frozenset[str] | None] = {}

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Yield all files that a test may read, by their path from the top."""
        yield from ((path.name, path) for path in sorted(self.root.glob("*")) if path.is_file())
        for folder in FOLDERS:
            for path in sorted((self.root / folder).rglob("*")):
                name = path.relative_to(self.root).as_posix()
                parts = name.split("/")[1:]
                is_hidden = any(part.startswith(".") or part == "__pycache__" or ".egg-info" in part for part in parts)
                if path.is_file() and not is_hidden and not name.startswith(f"{LEDGER}/"):
                    yield name, path

    def _add_module(self, path: str) -> None:
        name = path
        for folder, package in PACKAGES.items():
            if path.startswith(f"{folder}/"):
                inner = path.removeprefix(f"{folder}/").removesuffix(".py").removesuffix("__init__").strip("/")
                name = ".".join(filter(None, [package, *inner.split("/")])) or folder
        self.modules[name] = Module.read(name, path, self.files[path].read_text(encoding="utf-8"))
        self._module_of[path] = name

    # Nodes

    @cached_property
    def tests(self) -> dict[str, list[str]]:
        """The functions of tests and classes of tests in each file of tests, by its path."""
        files = {path: self.modules[path] for path in self.files if re.match(r"rtl_tests/(.*/)?test_\w+\.py$", path)}
        return {
            path: [name for name in module.definitions if name.startswith(("test", "Test"))]
            for path, module in files.items()
        }

    def module_at(self, path: str) -> Module | None:
        """Return the module of a Python file; None for any other file."""
        return self.modules[self._module_of[path]] if path in self._module_of else None

    def texts(self, module: Module) -> dict[str, str]:
        """Return the text of each definition of a module, which may be one of another commit, and of its actions."""
        nodes = {**module.definitions, "": self._actions(module)}
        return {name: _Reader(module.package).read(statements).text for name, statements in nodes.items()}

    def roots(self, path: str, function: str) -> set[str]:
        """Return the nodes where the dependencies of a test begin."""
        roots = {f"{path}:", f"{path}:{function}", SETTINGS}
        return roots | ({f"{CONFTEST}:", f"{CONFTEST}:*"} if CONFTEST in self.modules else set())

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """Return all nodes that depend on the nodes ``changed``, each with its distance from them."""
        distances = dict.fromkeys(changed, 0)
        ahead = deque(distances)
        while ahead:
            node = ahead.popleft()
            for found in self._users.get(node, ()):
                if found not in distances:
                    distances[found] = distances[node] + 1
                    ahead.append(found)
        return distances

    @cached_property
    def _users(self) -> dict[str, list[str]]:
        """Nodes that name each node, among the nodes that tests reach."""
        users: dict[str, list[str]] = {}
        known = {root for path, names in self.tests.items() for name in names for root in self.roots(path, name)}
        ahead = list(known)
        while ahead:
            node = ahead.pop()
            for found in self.edges(node):
                users.setdefault(found, []).append(node)
                if found not in known:
                    known.add(found)
                    ahead.append(found)
        return users

    def digest(self, path: str, function: str) -> str:
        """Return the digest of all sources that a test depends on, as 16 hexadecimal digits."""
        return _hash(sorted(map(self._whole_digest, self.roots(path, function))))[:16]

    def _whole_digest(self, start: str) -> str:
        """Return the digest of a node and of all nodes that it reaches.

        Nodes that reach each other have the same one. They are found by Tarjan's algorithm.
        """
        if start in self._whole:
            return self._whole[start]
        order: dict[str, int] = {start: 0}
        lowest = {start: 0}
        open_nodes = [start]
        path = [(start, iter(self.edges(start)))]
        while path:
            node, ahead = path[-1]
            found = next(ahead, None)
            if found is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    self._close(open_nodes, node)
            elif found in order:
                if found not in self._whole:
                    lowest[node] = min(lowest[node], order[found])
            elif found not in self._whole:
                order[found] = lowest[found] = len(order)
                open_nodes.append(found)
                path.append((found, iter(self.edges(found))))
        return self._whole[start]

    def _close(self, open_nodes: list[str], first: str) -> None:
        """Give their digest to nodes that reach each other: the last ones that are open, from ``first`` on."""
        start = open_nodes.index(first)
        group = set(open_nodes[start:])
        del open_nodes[start:]
        beyond = {found for node in group for found in self.edges(node)} - group
        own = sorted(f"{node} {self._digest(node)}" for node in group)
        self._whole.update(dict.fromkeys(group, _hash([*own, *sorted({self._whole[node] for node in beyond})])))

    def _digest(self, node: str) -> str:
        if node not in self._digests:
            self._digests[node] = hashlib.sha256(self._content(node)).hexdigest()
        return self._digests[node]

    def _content(self, node: str) -> bytes:
        if node == SETTINGS:
            return settings_of(self._project).encode()
        if node in self.files:
            return self.files[node].read_bytes()
        return self.facts(node).text.encode()

    @cached_property
    def _project(self) -> str:
        path = self.root / PROJECT
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def facts(self, node: str) -> Facts:
        """Return what the text of a node names."""
        if node not in self._facts:
            module, _, name = node.partition(":")
            found = self.modules[module]
            statements = found.definitions.get(name, []) if name else self._actions(found)
            self._facts[node] = _Reader(found.package).read(statements)
        return self._facts[node]

    def _actions(self, module: Module) -> list[ast.stmt]:
        """Return the statements of a module that may do something elsewhere when it is imported."""
        entered = [statement for statement, name in module.decorated if self._enters(module, name)]
        return module.actions + [statement for statement in entered if statement not in module.actions]

    def _enters(self, module: Module, decorator: tuple[str, ...]) -> bool:
        """Return whether a decorator may enter what it decorates into a table."""
        if decorator[-1:] == ("register",):
            return True
        nodes = [node for node in self._named(module, decorator) if not node.endswith((":", ":*"))]
        trees = [
            tree for node in nodes for tree in self.modules[node.partition(":")[0]].definitions[node.partition(":")[2]]
        ]
        return any(
            (isinstance(part, ast.Attribute) and part.attr in _ENTERS)
            or (isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store))
            for tree in trees
            for part in ast.walk(tree)
        )

    # Edges

    def edges(self, node: str) -> frozenset[str]:
        """Return the nodes that a node names."""
        if node not in self._edges:
            self._edges[node] = frozenset(self._edges_of(node) - {node})
        return self._edges[node]

    def _edges_of(self, node: str) -> set[str]:
        if node == SETTINGS:
            return set()
        if node in self.files:
            return self._file_edges(node)
        name, _, definition = node.partition(":")
        module = self.modules[name]
        if definition == "*":
            found = {f"{name}:{each}" for each in module.definitions} | {f"{name}:"}
            if module.path.endswith("__init__.py"):
                found |= {target for bound, *_ in module.imports for target in self._named(module, (bound,))}
            return found
        facts = self.facts(node)
        found = {f"{name}:"} if definition else self._import_edges(module.imports) | self._around(name)
        found |= self._import_edges(facts.imports)
        for chain in facts.names:
            found |= self._named(module, chain)
            for bound, target, imported in facts.imports:
                if bound == chain[0]:
                    found |= self._of_import(bound, target, imported, chain[1:])
        for text in facts.strings:
            found |= self._of_string(module, text)
        for package in facts.packages:
            found |= self._data_of(package)
        return found | self._of_paths(node, module, facts)

    def _file_edges(self, path: str) -> set[str]:
        """A Python file that is used as a file may be run; other files may name modules."""
        if path in self._module_of:
            return {f"{self._module_of[path]}:*"}
        if not path.endswith((".toml", ".j2")) or not path.startswith(("hwgen/", "boards/", "rtl_tests/")):
            return set()
        text = self.files[path].read_text(encoding="utf-8", errors="replace")
        return {f"{name}:*" for name in _MODULE_NAME.findall(text) if name in self.modules}

    def _import_edges(self, imports: Iterable[tuple[str, str, str | None]]) -> set[str]:
        """Return what imports run: the modules and the packages around them."""
        found: set[str] = set()
        for _, target, imported in imports:
            name = self._known(f"{target}.{imported}" if imported else target) or self._known(target)
            if name:
                found |= {f"{name}:"} | self._around(name)
        return found

    def _around(self, name: str) -> set[str]:
        parts = name.split(".")
        packages = [".".join(parts[:count]) for count in range(1, len(parts))]
        return {f"{package}:" for package in packages if package in self.modules}

    def _known(self, name: str) -> str | None:
        """Return the module of a dotted name; bench/ is also a package of its own."""
        names = [name, name.removeprefix("bench.")]
        return next((each for each in names if each in self.modules), None)

    def _named(self, module: Module, chain: tuple[str, ...]) -> set[str]:
        """Return the nodes of a name with attributes that a module uses."""
        found = {f"{module.name}:{chain[0]}"} if chain[0] in module.definitions else set()
        for bound, target, imported in module.imports:
            if bound == chain[0]:
                found |= self._of_import(bound, target, imported, chain[1:])
        return found

    def _of_import(self, bound: str, target: str, imported: str | None, rest: tuple[str, ...]) -> set[str]:
        """Return the nodes of an imported name and its attributes."""
        if imported is None:  # import a.b binds a
            name = self._known(target)
            found = {f"{name}:"} | self._around(name) if name else set()
            top = self._known(bound)
            return found | (self._of_module(top, rest) if top and rest else set())
        if imported == "":  # import a.b as c
            name = self._known(target)
            return (
                {f"{name}:"} | self._around(name) | (self._of_module(name, rest) if rest else {f"{name}:*"})
                if name
                else set()
            )
        name = self._known(target)
        inner = self._known(f"{target}.{imported}")
        found = set()
        if inner:
            found |= self._of_module(inner, rest) | self._around(inner)
        if name:
            found |= {f"{name}:"} | self._around(name)
            if imported == "*":
                found.add(f"{name}:*")
            elif not inner or imported in self.modules[name].definitions:
                found |= self._of_module(name, (imported, *rest))
        return found

    def _of_module(self, name: str, rest: tuple[str, ...]) -> set[str]:
        """Return the nodes of attributes of a module; all of it, if it is used as a value."""
        found = {f"{name}:"}
        if not rest:
            return found | {f"{name}:*"}
        if rest[0].startswith("__") and rest[0] not in self.modules[name].definitions:
            return found
        inner = self._known(f"{name}.{rest[0]}")
        if inner:
            found |= self._of_module(inner, rest[1:])
        direct = self._named(self.modules[name], rest)
        if not direct and not inner:
            has_getter = "__getattr__" in self.modules[name].definitions
            direct = {f"{name}:__getattr__" if has_getter else f"{name}:*"}
        return found | direct

    def _of_string(self, module: Module, text: str) -> set[str]:
        """Return what a string names: modules, files, or the tool, which it may call."""
        if not text or text == "__init__.py" or len(text) > 20_000:
            return set()
        found: set[str] = set()
        is_inside = module.name.partition(".")[0] == "hwgen"
        if name := self._known(text):
            if "." in text or (not is_inside and "_" in text):  # other words are hardly meant as modules
                found |= {f"{name}:", f"{name}:*"}
        elif re.fullmatch(r"[a-z_]+(\.\w+)+", text):
            parts = text.split(".")
            for count in range(len(parts) - 1, 0, -1):
                if name := self._known(".".join(parts[:count])):
                    found |= self._of_module(name, tuple(parts[count:]))
                    break
        if not is_inside:
            found |= {f"{name}:*" for name in _IMPORTS_TOOL.findall(text) if name in self.modules}
            if _RUNS_TOOL.search(text) and _TOOL in self.modules:
                found.add(f"{_TOOL}:*")
        words = text.split() if len(text) < 400 else ()
        for word in words:
            for path in self._by_name.get(word.rpartition("/")[2], ()):
                if f"/{path}".endswith(f"/{word.removeprefix('./')}") and (
                    not is_inside or path.startswith(("hwgen/", "boards/"))
                ):
                    found.add(path)
        return found

    def _data_of(self, package: str) -> set[str]:
        """Return the data files of a package, and its Python files that a string in the package names."""
        if package not in self.modules:
            return set()
        folder = self.modules[package].path.rpartition("/")[0]
        return {path for path in self.files if path.rpartition("/")[0] == folder and not path.endswith(".py")}

    # Paths

    def _of_paths(self, node: str, module: Module, facts: Facts) -> set[str]:
        if node in _WITHOUT_EFFECT or self._is_path(node):
            return set()
        found: set[str] = set()
        for expression in facts.paths:
            for path in self._paths(module, expression) or ():
                found |= self._at(path)
        return found

    def _is_path(self, node: str) -> bool:
        """Return whether a node is a constant with a path. Its users depend on the path, and not the constant."""
        module, _, name = node.partition(":")
        return bool(name) and self._constant(self.modules[module], name) is not None

    def _at(self, path: str) -> set[str]:
        """Return the file at a path, or all files in the folder there; ``*`` stands for an unknown name."""
        if path in self.files:
            return {path}
        start, _, end = path.partition("*")
        start = (
            f"{start.rstrip('/')}/".lstrip("/") if not start or start.endswith("/") or path in ("", start) else start
        )
        return {name for name in self.files if name.startswith(start) and name.endswith(end)}

    def _constant(self, module: Module, name: str) -> frozenset[str] | None:
        key = (module.name, name)
        if key not in self._path_values:
            self._path_values[key] = None
            statements = module.definitions.get(name, [])
            values = [each.value for each in statements if isinstance(each, ast.Assign | ast.AnnAssign) and each.value]
            if len(values) == len(statements) == 1:
                self._path_values[key] = self._paths(module, values[0])
        return self._path_values[key]

    def _paths(self, module: Module, node: ast.AST) -> frozenset[str] | None:
        """Return the paths from the top that an expression may have; None if it is not a path in the checkout."""
        if isinstance(node, ast.Name | ast.Attribute) and (chain := _chain(node)):
            return self._named_path(module, chain) or self._parent(module, node)
        if isinstance(node, ast.Attribute):
            return self._parent(module, node)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            count = node.slice.value + 1 if isinstance(node.slice, ast.Constant) else 0
            return self._up(self._paths(module, node.value.value), count)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined(self._paths(module, node.left), [node.right])
        if isinstance(node, ast.Call):
            return self._called(module, node)
        return None

    def _called(self, module: Module, node: ast.Call) -> frozenset[str] | None:
        if _chain(node.func)[-1:] in (("Path",), ("str",)) and len(node.args) == 1:
            return self._paths(module, node.args[0])
        if not isinstance(node.func, ast.Attribute):
            return None
        inner = self._paths(module, node.func.value)
        if node.func.attr in ("joinpath", "glob", "rglob"):
            return self._joined(inner, node.args)
        return self._joined(self._up(inner, 1), node.args) if node.func.attr == "with_name" else inner

    def _named_path(self, module: Module, chain: tuple[str, ...]) -> frozenset[str] | None:
        if chain == ("__file__",):
            return frozenset({module.path})
        if chain[-1] == "__file__":
            names = {node.partition(":")[0] for node in self._named(module, chain)}
            inner = {each for each in names if each.rpartition(".")[2] == chain[-2]} or {
                name for name in names if chain[:-1] and name
            }
            return frozenset(self.modules[each].path for each in inner) or None
        for node in self._named(module, chain):
            name, _, definition = node.partition(":")
            if definition not in ("", "*") and (value := self._constant(self.modules[name], definition)) is not None:
                return value
        return None

    def _parent(self, module: Module, node: ast.AST) -> frozenset[str] | None:
        if isinstance(node, ast.Attribute):
            inner = self._paths(module, node.value)
            return (
                self._up(inner, 1) if node.attr == "parent" else inner if node.attr in ("read_text", "exists") else None
            )
        return None

    @staticmethod
    def _up(paths: frozenset[str] | None, count: int) -> frozenset[str] | None:
        return paths and frozenset("/".join(path.split("/")[: max(len(path.split("/")) - count, 0)]) for path in paths)

    @staticmethod
    def _joined(paths: frozenset[str] | None, parts: list[ast.expr]) -> frozenset[str] | None:
        if paths is None:
            return None
        for part in parts:
            text = part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else _pattern(part)
            paths = frozenset(f"{path}/{text}".strip("/") for path in paths)
        return paths


def settings_of(project: str) -> str:
    """Return pytest's settings in the text of a pyproject.toml."""
    return repr(tomllib.loads(project).get("tool", {}).get("pytest", {}))


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _pattern(node: ast.expr) -> str:
    """Return ``*`` for an unknown part of a path, with the known end of an f-string."""
    if isinstance(node, ast.JoinedStr) and isinstance(last := node.values[-1], ast.Constant):
        return f"*{last.value}"
    return "*"
