"""Find turns of phrase that native writers of this field seldom use, in code, templates and pages.

`TURNS` names each kind with an expression and what to write instead. prose.py counts their uses and compares the counts
with turns.toml: ``anywhere`` holds the most uses allowed in all texts, and ``read`` the most in what a user of hwgen
reads. The latter are strings that are no docstrings (messages, help, reports, Verilog), templates, drivers and README.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PLACES = ("hwgen", "boards", "docs", "bench", "README.md")
"""Folders and files whose texts are counted."""
READ_PLACES = ("hwgen", "boards", "README.md")
"""Folders and files with texts that a user of hwgen reads: their strings, templates and pages."""
TEMPLATES = frozenset((".c", ".cpp", ".css", ".h", ".j2", ".js", ".mk", ".tcl", ".v", ".vlt"))
"""Suffixes of files that hwgen copies or fills in."""
QUANTITIES = "beats|bytes|cycles|DSPs|frames|LUTs|MACs|microseconds|multiply-adds|slices|words"
WHOLES = "beat|channel|core|cycle|frame|layer|pixel|product|second|slice"
TURNS = {
    name: (re.compile(expression, re.MULTILINE), better)
    for name, expression, better in (
        (
            "in which",
            r"\b(?:at|behind|by|for|from|in|of|on|through|to|with|without) which\b(?! case\b)",
            "that, where, whose; or two sentences",
        ),
        ("behind", r"\bbehind\b", "after, downstream of"),
        ("in front", r"\bin front\b", "before, upstream of"),
        ("is no", r"(?<!\bthere )\b(?:are|is|was|were) no (?!better\b|later\b|less\b|longer\b|more\b)", "is not a"),
        ("that of", r"(?<!\bsuch )\b(?:that|those) of\b", "repeat the noun"),
        ("detached of", r"[:;,] of (?:all|an?|each|its|the|this)\b", "a whole noun phrase; per, in"),
        (
            "the one before",
            r"\b(?:beat|burst|cycle|fold|frame|job|layer|one|row|step|tile) before\b(?! (?:an?|any|each|its?|the)\b)",
            "the previous one",
        ),
        ("is taken", r"\b(?:are|is) (?:offered|taken)\b|\btold\b", "is accepted, is valid, receives"),
        ("alone", r"(?<!leave )(?<!stand )(?<!stands )(?<![\".])\balone\b(?!\")", "only, separately"),
        ("beside", r"\bbeside\b", "next to, with"),
        ("Where", r"(?:^|[.;] )Where\b(?=[^.:?]*,)", "If, When"),
        ("So", r"(?:^|[.;] )So\b(?! (?:far|that)\b)", "Therefore; or one sentence"),
        ("says of", r"\b(?:say|says|tell|tells) of\b", "describes, reports"),
        ("from .. on", r"\bfrom [\w ]{1,25} on\b(?! (?:an?|the)\b)", "starting at"),
        ("present", r"\bpresent (?:burst|job|layer|map|node|part|row|team|value)", "current"),
        ("anew", r"\banew\b", "again"),
        ("a frame", rf"\b(?:{QUANTITIES}) an? (?:{WHOLES})\b", "per frame"),
        ("Of", r"(?:^|[.:;] )Of (?:all|an?|each|its|several|the)\b", "subject first"),
    )
}
"""Kinds of turns: name, expression, and what to write instead."""
Limits = dict[str, dict[str, int]]
"""Most uses allowed of each kind of turn, by scope: anywhere, read."""


@dataclass(frozen=True)
class Passage:
    """One passage of text: its file, first line, the text on one line, and whether a user of hwgen reads it."""

    path: Path
    line: int
    text: str
    is_read: bool


@dataclass(frozen=True)
class Turn:
    """One use of a turn of phrase: its kind, passage, and the words around it."""

    kind: str
    passage: Passage
    around: str

    def __str__(self) -> str:
        return f"{self.passage.path}:{self.passage.line}: {self.kind} ({TURNS[self.kind][1]}): {self.around}"


def turns(passages: Iterable[Passage]) -> Iterator[Turn]:
    """Yield each use of a turn in some passages.

    >>> [turn.kind for turn in turns([Passage(Path("x.md"), 1, "The FIFO behind it is no memory.", True)])]
    ['behind', 'is no']
    """
    for passage in passages:
        for kind, (expression, _) in TURNS.items():
            for match in expression.finditer(passage.text):
                around = passage.text[max(0, match.start() - 40) : match.end() + 30]
                yield Turn(kind, passage, f".. {around} ..")


def passages(places: Iterable[str], root: Path) -> Iterator[Passage]:
    """Yield the passages of all Python files, templates and pages in some folders and files of a checkout."""
    for place in places:
        base = root / place
        for path in sorted(base.rglob("*")) if base.is_dir() else [base]:
            relative = path.relative_to(root)
            is_place_read = place in READ_PLACES
            if path.suffix == ".py":
                yield from python_passages(relative, path.read_text(encoding="utf-8"), is_place_read)
            elif path.suffix == ".md":
                yield from page_passages(relative, path.read_text(encoding="utf-8"), is_place_read)
            elif path.suffix in TEMPLATES and not path.name.endswith(".min.js"):
                yield from template_passages(relative, path.read_text(encoding="utf-8"), is_place_read)


def python_passages(path: Path, source: str, is_place_read: bool) -> Iterator[Passage]:
    """Yield docstrings and comments, which a user does not read, and all other strings with a space."""
    seen: set[ast.AST] = set()
    in_strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):  # outer nodes first
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            seen.add(node.value)
            in_strings.update(lines_of(node))
            for line, paragraph in paragraphs(node.value.value):
                yield Passage(path, node.lineno + line - 1, paragraph, False)
        elif node in seen:
            pass
        elif isinstance(node, ast.JoinedStr):
            seen.update(node.values)
            in_strings.update(lines_of(node))
            parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values]
            yield Passage(path, node.lineno, one_line("".join(parts)), is_place_read)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            in_strings.update(lines_of(node))
            yield Passage(path, node.lineno, one_line(node.value), is_place_read)
    for line, comment in comments(source, in_strings):
        yield Passage(path, line, one_line(comment), False)


def lines_of(node: ast.stmt | ast.expr) -> range:
    """Return the numbers of a node's lines if it spans several."""
    end = node.end_lineno or node.lineno
    return range(node.lineno, end + 1 if end > node.lineno else node.lineno)


def comments(source: str, in_strings: Container[int]) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each comment; those on lines that follow each other are one.

    >>> list(comments(chr(10).join(("x = 1  # one", "#: two", "", "# three")), ()))
    [(1, 'one two'), (4, 'three')]
    """
    start, texts = 0, []
    for line, row in enumerate([*source.splitlines(), ""], 1):
        comment = re.search(r"(?:^ *|  )#[:!]? ?(.*)", row) if line not in in_strings else None
        if comment:
            start = start if texts else line
            texts.append(comment[1])
        elif texts:
            yield start, " ".join(texts)
            texts = []


def page_passages(path: Path, text: str, is_read: bool) -> Iterator[Passage]:
    """Yield the paragraphs, list entries and rows of tables of a Markdown page, without blocks of code."""
    for line, paragraph in paragraphs(re.sub(r"^ *```.*?^ *```$", blank_lines, text, flags=re.MULTILINE | re.DOTALL)):
        yield Passage(path, line, paragraph, is_read)


def template_passages(path: Path, text: str, is_read: bool) -> Iterator[Passage]:
    """Yield the passages between blank lines of a template, without what fills it in and marks of comments."""
    filled = re.sub(
        r"\{\{.*?\}\}", "x", re.sub(r"\{[%#].*?[%#]\}", blank_lines, text, flags=re.DOTALL), flags=re.DOTALL
    )
    for line, paragraph in paragraphs(re.sub(r"^[ \t]*(?://+|/?\*+/?|#+)", "", filled, flags=re.MULTILINE)):
        yield Passage(path, line, paragraph, is_read)


def blank_lines(match: re.Match[str]) -> str:
    """Return as many ends of lines as a match has."""
    return "\n" * match[0].count("\n")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each paragraph, list entry and row of a table, without what is code.

    >>> list(paragraphs("One" + chr(10) + "and two." + chr(10) * 2 + "- Three ``x == y``." + chr(10) + "- Four."))
    [(1, 'One and two.'), (4, '- Three x.'), (5, '- Four.')]
    """
    start, rows = 1, []
    for line, row in enumerate([*text.split("\n"), ""], 1):
        if rows and re.match(r"\s*(?:$|[-*|#] ?|\d+\. )", row):
            yield start, one_line(" ".join(rows))
            rows = []
        if row.strip():
            start = start if rows else line
            rows.append(row)


def one_line(text: str) -> str:
    """Return a text on one line, with ``x`` for everything between backticks."""
    return " ".join(re.sub(r"(`+)[^`]+\1", "x", text).split())


def count(root: Path) -> dict[str, Counter[str]]:
    """Return the uses of each kind: anywhere in a checkout, and in what a user of hwgen reads."""
    listed = list(turns(passages(PLACES, root)))
    return {
        "anywhere": Counter(turn.kind for turn in listed),
        "read": Counter(turn.kind for turn in listed if turn.passage.is_read),
    }


def over_limits(counts: dict[str, Counter[str]], limits: Limits) -> Iterator[str]:
    """Yield a line for each kind of turn that has more uses than its limit.

    >>> list(over_limits({"read": Counter({"behind": 3, "anew": 1})}, {"read": {"behind": 2, "anew": 1}}))
    ["read: 3 uses of 'behind', not the 2 allowed (write: after, downstream of)"]
    """
    for scope, uses in counts.items():
        for kind, (_, better) in TURNS.items():
            allowed = limits[scope].get(kind, 0)
            if uses[kind] > allowed:
                yield f"{scope}: {uses[kind]} uses of '{kind}', not the {allowed} allowed (write: {better})"


def lowered(counts: dict[str, Counter[str]], limits: Limits) -> Limits:
    """Return limits that are as low as the counts allow, and nowhere higher than before; those of 0 are left out."""
    lower = {scope: {kind: min(most, counts[scope][kind]) for kind, most in limits[scope].items()} for scope in limits}
    return {scope: {kind: most for kind, most in kinds.items() if most} for scope, kinds in lower.items()}


def read_limits(path: Path) -> Limits:
    """Return the limits in a file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def write_limits(limits: Limits, path: Path) -> None:
    """Write limits into a file, after the comment at its head."""
    head = path.read_text(encoding="utf-8").partition("[")[0]
    tables = ("".join(f'"{kind}" = {most}\n' for kind, most in kinds.items()) for kinds in limits.values())
    sections = (f"[{scope}]\n{table}" for scope, table in zip(limits, tables, strict=True))
    path.write_text(head + "\n".join(sections), encoding="utf-8")
