"""Check the language of the code: openings of docstrings, names, and docstrings that are missing.

Usage: python bench/prose.py [--list N] [FOLDER ...]     (default: hwgen and boards)
       python bench/prose.py --draw N [--seed S] [FOLDER ...]     N random docstrings: names and first sentences
       python bench/prose.py --turns FOLDER ...     turns of phrase in folders and files, and what to write instead
       python bench/prose.py --lower     set the limits in turns.toml to today's counts where these are lower

Findings, each with its file and line:

- fragment: a docstring, a string below an attribute or a ``#:`` comment whose first word continues another sentence;
- bare name: a public name, a parameter of a public function, or a local that is used more than `SPAN` lines below its
  binding, which says nothing about its value;
- same class: a public class of a floor (a folder of hwgen/ with its subfolders) that another file of the floor defines
  under the same name. An op and its component may share theirs;
- same file: a module of a floor whose name another module of the floor has;
- no docstring: a public method, that overrides none, without a docstring.

The number of findings of each kind is printed. Without FOLDER, the turns of phrase of turns.py are counted as well, and
compared with the limits in turns.toml. Exit status 1 if there is a finding, or more uses of a turn than its limit.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import sys
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from turns import count, lowered, over_limits, passages, read_limits, turns, write_limits

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("hwgen", "boards")
LIMITS = ROOT / "bench" / "turns.toml"
SPAN = 10
"""Number of lines over which a local can keep a bare name."""
OPENERS = frozenset(
    (
        "Of",
        "That",
        "Those",
        "These",
        "This",
        "They",
        "It",
        "Its",
        "Their",
        "By",
        "With",
        "Without",
        "Where",
        "When",
        "From",
        "In",
        "For",
        "As",
        "At",
        "On",
        "To",
        "Beyond",
        "Between",
        "What",
        "How",
        "Which",
        "Why",
        "So",
        "And",
        "Or",
        "But",
        "..",
    )
)
"""First words of a docstring that is a fragment, or whose subject is a pronoun."""
BARE = frozenset(
    (
        "found",
        "place",
        "each",
        "kind",
        "number",
        "way",
        "ways",
        "most",
        "least",
        "late",
        "apart",
        "turns",
        "parts",
        "serial",
        "asked",
        "given",
        "there",
        "such",
    )
)
"""Names that say nothing about their value."""
OWNED = frozenset({"kind"})
"""Bare names that are a public contract: ``kind`` is a layer's operator in plan.json, and an array's type in NumPy."""
SHARED_FOLDERS = frozenset({("network/ops", "gateware"), ("network/ops", "network/onnx")})
"""Folders in which an op and its component, or its importer, share a name."""


@dataclass(frozen=True)
class Finding:
    """One finding: its rule, file, line and text."""

    rule: str
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


Function = ast.FunctionDef | ast.AsyncFunctionDef


def first_words(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring, string below an attribute, and ``#:`` comment.

    >>> list(first_words('"Text."' + chr(10) + 'x = 1' + chr(10) + '"Of x."'))
    [(1, 'Text.'), (3, 'Of x.')]
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()
    previous = -1
    if "#:" not in source:
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.startswith("#:"):
            if token.start[0] != previous + 1:  # not the next line of the same comment
                yield token.start[0], token.string[2:].strip()
            previous = token.start[0]


def fragments(path: Path, source: str) -> Iterator[Finding]:
    """Yield texts of a file that open with a fragment."""
    for line, text in first_words(source):
        words = text.split()
        if words and words[0] in OPENERS:
            yield Finding("fragment", path, line, " ".join(words[:9]))


def is_public(name: str) -> bool:
    """Whether a name is part of an interface."""
    return not name.startswith("_")


def parameters(function: Function) -> list[ast.arg]:
    """Return all parameters of a function."""
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def interface_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield lines and names of module attributes, public functions, their parameters, and members of public classes."""
    bodies: list[list[ast.stmt]] = [tree.body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ClassDef) and is_public(node.name):
                bodies.append(node.body)
            elif isinstance(node, Function) and is_public(node.name):
                yield node.lineno, node.name
                yield from ((argument.lineno, argument.arg) for argument in parameters(node))
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from ((node.lineno, target.id) for target in targets if isinstance(target, ast.Name))


def locals_far(function: Function) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each bare local that a function uses more than `SPAN` lines below a binding."""
    lines: dict[str, list[int]] = defaultdict(list)
    bound: dict[str, int] = {}
    for argument in parameters(function):
        bound[argument.arg] = argument.lineno
        lines[argument.arg].append(argument.lineno)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            lines[node.id].append(node.lineno)
            if isinstance(node.ctx, ast.Store):
                bound[node.id] = min(node.lineno, bound.get(node.id, node.lineno))
    for name in sorted(BARE & bound.keys()):
        if max(lines[name]) - bound[name] > SPAN:
            yield bound[name], name


def bare_names(path: Path, source: str) -> Iterator[Finding]:
    """Yield bare names of a file's interface, and bare locals that are used far from their binding."""
    tree = ast.parse(source)
    for line, name in interface_names(tree):
        if name in BARE - OWNED:
            yield Finding("bare name", path, line, name)
    for function in ast.walk(tree):
        if isinstance(function, Function):
            for line, name in locals_far(function):
                yield Finding("bare name", path, line, f"{name} in {function.name}, used over more than {SPAN} lines")


def floor_of(path: Path) -> str:
    """Return the floor of a file: the first folder below hwgen/."""
    parts = path.parts
    return parts[1] if len(parts) > 2 else parts[0]


def share_names(one: Path, other: Path) -> bool:
    """Whether two files belong to folders that can share names."""
    return any(
        {first, second} == {folder, other_folder}
        for first, second in SHARED_FOLDERS
        for folder, other_folder in [("/".join(one.parts[1:-1]), "/".join(other.parts[1:-1]))]
    )


def repeated(rule: str, named: Iterable[tuple[str, Path, int]]) -> Iterator[Finding]:
    """Yield names that several files of one floor define; ``named`` holds the name, file and line of each."""
    seen: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for name, path, line in named:
        earlier = seen[floor_of(path), name]
        others = [other for other in earlier if other != path and not share_names(path, other)]
        if others:
            yield Finding(rule, path, line, f"{name}, also in {others[0]}")
        earlier.append(path)


def public_classes(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, Path, int]]:
    """Yield the name, file and line of every public class of a module."""
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and is_public(node.name):
                yield node.name, path, node.lineno


def base_names(node: ast.ClassDef) -> list[str]:
    """Return the names of a class's bases, without module and type arguments.

    >>> base_names(ast.parse("class A(x.B[int], C): ...").body[0])
    ['B', 'C']
    """
    names = []
    for base in node.bases:
        expression = base.value if isinstance(base, ast.Subscript) else base
        names.append(expression.attr if isinstance(expression, ast.Attribute) else ast.unparse(expression))
    return names


def undocumented(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield public methods of public classes that have no docstring, and that no base of hwgen declares.

    Methods that a library calls (``elaborate``, and any of a class with a base outside of hwgen) override as well, and
    so do methods that a protocol declares.
    """
    classes = {node.name: node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    protocols = [name for name, node in classes.items() if "Protocol" in base_names(node)]

    def declares(name: str, method: str) -> bool:
        node = classes.get(name)
        if node is None:
            return name not in ("ABC", "Generic", "Protocol", "NamedTuple")
        members = {member.name for member in node.body if isinstance(member, Function)}
        members |= {ast.unparse(member.target) for member in node.body if isinstance(member, ast.AnnAssign)}
        return method in members or any(declares(base, method) for base in base_names(node))

    for path, tree in trees.items():
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or not is_public(node.name):
                continue
            for member in node.body:
                if not isinstance(member, Function) or not is_public(member.name) or ast.get_docstring(member):
                    continue
                if not any(declares(base, member.name) for base in [*base_names(node), *protocols]):
                    yield Finding("no docstring", path, member.lineno, f"{node.name}.{member.name}")


def findings(folders: Iterable[str], root: Path = ROOT) -> Iterator[Finding]:
    """Yield all findings in the Python files of some folders."""
    sources = {
        path.relative_to(root): path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
    }
    trees = {path: ast.parse(source) for path, source in sources.items()}
    for path, source in sources.items():
        yield from fragments(path, source)
        yield from bare_names(path, source)
    yield from repeated("same class", public_classes(trees))
    yield from repeated("same file", ((path.stem, path, 1) for path in trees if not path.stem.startswith("__")))
    yield from undocumented(trees)


def documented(folders: Iterable[str], root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield the qualified name and the first sentence of every docstring, strings below attributes included."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            yield from _documented(module, ast.parse(path.read_text(encoding="utf-8")))


def _documented(name: str, node: ast.Module | ast.ClassDef | Function) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield name, first_sentence(text)
    for before, statement in zip([None, *node.body], node.body, strict=False):
        if isinstance(statement, ast.ClassDef | Function):
            yield from _documented(f"{name}.{statement.name}", statement)
        elif (
            isinstance(before, ast.Assign | ast.AnnAssign)
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        ):
            target = before.targets[0] if isinstance(before, ast.Assign) else before.target
            yield f"{name}.{ast.unparse(target)}", first_sentence(statement.value.value)


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring on one line.

    >>> first_sentence("Return the" + chr(10) + "number. It is positive.")
    'Return the number.'
    """
    line = " ".join(text.strip().split(chr(10) * 2)[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", line)[0]


def draw(folders: Iterable[str], count: int, seed: int) -> None:
    """Print ``count`` random docstrings: names with first sentences, and the seed."""
    print(f"seed {seed}")
    everything = list(documented(folders))
    for name, sentence in random.Random(seed).sample(everything, min(count, len(everything))):
        print(f"{name}: {sentence}")


def check_turns(lower: bool) -> bool:
    """Print the turns of phrase that are used more often than their limits, and return whether there are none.

    With ``lower``, limits that are higher than the counts are lowered in turns.toml; otherwise, they are only noted.
    """
    counts, limits = count(ROOT), read_limits(LIMITS)
    for scope, uses in counts.items():
        print(f"{uses.total():6,}  turns, {scope}")
    lines = list(over_limits(counts, limits))
    for line in lines:
        print(line)
    if lines:
        print("python bench/prose.py --turns FILE .. lists the uses in the files that you have changed")
    if lower:
        write_limits(lowered(counts, limits), LIMITS)
    elif lowered(counts, limits) != limits:
        print("limits in bench/turns.toml can be lowered: python bench/prose.py --lower")
    return not lines


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", type=int, default=60, metavar="N", help="findings to print (default: %(default)s)")
    parser.add_argument("--draw", type=int, metavar="N", help="print N random docstrings instead")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 32), help="seed of the draw")
    parser.add_argument("--turns", action="store_true", help="print the turns of phrase in the folders instead")
    parser.add_argument("--lower", action="store_true", help="lower the limits in turns.toml to today's counts")
    parser.add_argument("folders", nargs="*", help="folders to read (default: hwgen boards)")
    arguments = parser.parse_args()
    folders = arguments.folders or FOLDERS
    if arguments.draw is not None:
        draw(folders, arguments.draw, arguments.seed)
        return 0
    if arguments.turns:
        print(*turns(passages(folders, ROOT)), sep="\n")
        return 0
    listed = list(findings(folders))
    for finding in listed[: arguments.list]:
        print(finding)
    counts = Counter(finding.rule for finding in listed)
    for rule in ("fragment", "bare name", "same class", "same file", "no docstring"):
        print(f"{counts[rule]:6,}  {rule}")
    is_within_limits = bool(arguments.folders) or check_turns(arguments.lower)
    return 0 if is_within_limits and not listed else 1


if __name__ == "__main__":
    sys.exit(main())
