"""Write the Verilog of designs, with all local variables of hwgen's gateware renamed if that is asked for.

Usage: python renamed_locals.py FOLDER (as-it-is | renamed) CASE ...      (cases: see `CASES`)
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Sequence
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "hwgen.gateware"
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "stream": ("decoilfnet-example", "zedboard", {}),
    "runtime": ("decoilfnet-example", "zedboard", {"weights": "runtime"}),
    "pyramid": ("decoilfnet-example", "zedboard", {"template": "pyramid", "tile": (1, 2), "overlap": "reuse"}),
    "graph": ("resnet8", "zedboard", {}),
    "engine": ("decoilfnet-example", "zedboard", {"template": "engine", "cores": 1, "array": (8, 5)}),
}


class LocalsRenamed(ast.NodeTransformer):
    """Transformer that renames the local variables of functions, but not their parameters, and counts them.

    ``lines`` are the lines of the source, in which the variables are renamed as well.
    """

    def __init__(self, source: str) -> None:
        self.count = 0
        self.lines = source.splitlines(keepends=True)
        self._uses: dict[tuple[int, int], str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        names = locals_of(node)
        self.count += len(names)
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and name.id in names:
                self._uses[name.lineno, name.col_offset] = name.id
                name.id += "_renamed"
        return node

    def renamed_lines(self) -> list[str]:
        """Return the lines of the source with its variables renamed. Names inside of formatted strings stay."""
        lines = [line.encode() for line in self.lines]
        for (line, column), name in sorted(self._uses.items(), reverse=True):
            text, end = lines[line - 1], column + len(name)
            if text[column:end] == name.encode():
                lines[line - 1] = text[:end] + b"_renamed" + text[end:]
        return [line.decode() for line in lines]


def locals_of(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function and those inside it bind, without what is more than a variable."""
    bound: set[str] = set()
    kept: set[str | None] = set()
    for node in ast.walk(function):
        match node:
            case ast.Name(ctx=ast.Store(), id=name):
                bound.add(name)
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                kept.add(name)
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                kept.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                kept.update(names)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                kept.update(alias.asname or alias.name for alias in names)
    return bound - kept


class Loader(SourceFileLoader):
    """Loader of a module of the gateware with its locals renamed."""

    count = 0

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        source = Path(path).read_text(encoding="utf-8")
        renaming = LocalsRenamed(source)
        tree = ast.fix_missing_locations(renaming.visit(ast.parse(source)))
        Loader.count += renaming.count
        # Whoever reads the module's source reads the renamed one.
        linecache.cache[path] = len(source), None, renaming.renamed_lines(), path
        return compile(tree, path, "exec")


class Finder:
    """Finder of the gateware's modules for `Loader`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not (name == PACKAGE or name.startswith(f"{PACKAGE}.")):
            return None
        folder = Path(next(iter(path))) / name.rpartition(".")[2]
        if folder.is_dir():
            file, within = folder / "__init__.py", [str(folder)]
        else:
            file, within = folder.with_suffix(".py"), None
        loader: SourceLoader = Loader(name, str(file))
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=within)


def main(folder: Path, mode: str, cases: Sequence[str]) -> None:
    if mode == "renamed":
        sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    import hwgen

    for case in cases:
        source, board, options = CASES[case]
        hwgen.load(source).plan(board, **options).build(folder / case)
    print(Loader.count)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
