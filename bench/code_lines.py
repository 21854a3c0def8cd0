"""Count the lines of code of hwgen: without blank lines, comments and docstrings.

Usage: python bench/code_lines.py [--most N] [FOLDER ...]     (default: hwgen)

Prints the lines of each folder and their sum. Exit status 1 if there are more than N. A line of a string that spans
several lines counts, unless the string is a docstring: the first statement of a module, a class or a function, or a
string behind a field.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Tokens without code.
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def documented(source: str) -> set[int]:
    """Return the numbers of the lines that strings standing alone take.

    >>> sorted(documented('"Text."' + chr(10) + 'x = "value"'))
    [1]
    """
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def code_lines(source: str) -> int:
    """Return the number of lines of code of a Python file's text.

    >>> code_lines('"A module."' + chr(10) * 2 + 'x = (1,  # one' + chr(10) + '     2)' + chr(10))
    2
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented(source))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER", default=["hwgen"])
    parser.add_argument("--most", type=int, metavar="N", help="budget of lines")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for folder in arguments.folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            counts[str(path.parent.relative_to(ROOT))] += code_lines(path.read_text(encoding="utf-8"))
    for folder, count in sorted(counts.items()):
        print(f"{count:7,}  {folder}")
    print(f"{counts.total():7,}  in all")
    if arguments.most is None or counts.total() <= arguments.most:
        return 0
    print(f"{counts.total() - arguments.most:,} lines of code more than the budget of {arguments.most:,}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
