"""Names of a model as names in hardware: what modules, instances and the files of both are called."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from itertools import count

__all__ = ["LONGEST", "file_name", "identifier", "identifiers", "unique"]

LONGEST = 64
"""Characters of an identifier at most: file names are made of several, and have 255 bytes."""


def identifier(name: str, default: str = "top") -> str:
    """``name`` as an identifier that Verilog, SystemVerilog and the simulators take without an escape.

    Every run of other characters than ASCII letters and digits becomes one underscore; a leading digit gets an ``n``
    before it, a reserved word an underscore behind it. Longer names than ``LONGEST`` are cut, and end in eight digits
    of their own digest. ``default`` is for names of which nothing is left.
    """
    word = re.sub(r"_{2,}", "_", re.sub(r"\W+", "_", name, flags=re.ASCII)).strip("_") or default
    if word[0].isdigit():
        word = f"n{word}"
    if len(word) > LONGEST:
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        word = f"{word[: LONGEST - 9].rstrip('_')}_{digest}"
    return f"{word}_" if word in reserved() else word


def identifiers(names: Iterable[str], default: str = "layer") -> list[str]:
    """An identifier for each name, all different even where case does not count (as in some file systems)."""
    return unique(identifier(name, default) for name in names)


def file_name(name: str) -> str:
    """``name`` as one part of a path: other characters than letters, digits and ``.@:,+=-`` become underscores, and
    what is longer than 200 bytes is cut and ends in eight digits of its digest."""
    name = re.sub(r"[^\w.@:,+=-]+", "_", name)
    raw = name.encode()
    if len(raw) > 200:
        name = f"{raw[:191].decode(errors='ignore')}_{hashlib.sha256(raw).hexdigest()[:8]}"
    return name


def unique(words: Iterable[str]) -> list[str]:
    """The words, those that were there before with the least number from 2 on that makes them new: ``a``, ``a_2``.

    A word that is nobody else's stays as it is, wherever it stands.
    """
    words = list(words)
    taken = {word.lower() for word in words}
    seen: set[str] = set()
    result = []
    for word in words:
        if word.lower() in seen:
            numbered = (f"{word.rstrip('_')}_{number}" for number in count(2))
            word = next(new for new in numbered if new.lower() not in taken)
            taken.add(word.lower())
        seen.add(word.lower())
        result.append(word)
    return result


@cache
def reserved() -> frozenset[str]:
    """Words that mean something already; ``reserved.toml`` says where."""
    text = resources.files("hwgen.gateware").joinpath("reserved.toml").read_text(encoding="utf-8")
    return frozenset(word for words in tomllib.loads(text).values() for word in words.split())
