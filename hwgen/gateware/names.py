"""Hardware and file names made from names in a CNN model: Verilog identifiers of modules and instances, file names."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from itertools import count

_WRAPPER_NAMES = re.compile(
    "axi|axi_shell(_.*)?|link|link_(check|checksum|input_repack|output_repack|receiver|transmitter)(_.*)?|loading|"
    "serial|tb",
    re.IGNORECASE,
)
"""Pattern of layer names that clash with modules around an accelerator: bus wrapper, loader, serial link, test bench.

They are `hwgen.emit.wrapper`, `hwgen.simulate.loading`, `hwgen.emit.serial` and `hwgen.simulate.testbench`.
"""
MAX_IDENTIFIER_LENGTH = 64
"""Maximum number of characters of a Verilog identifier that is made from a model's name.

File names contain several identifiers, and have at most 255 bytes.
"""


def identifier(name: str, default: str = "top") -> str:
    """Return ``name`` as an identifier that Verilog, SystemVerilog and the simulators accept without an escape.

    Every sequence of characters other than ASCII letters and digits becomes one underscore. A leading digit is preceded
    by ``n``. A reserved word is followed by an underscore. A name longer than `MAX_IDENTIFIER_LENGTH` is cut, and ends
    with eight digits of its digest. ``default`` replaces a name without valid characters.
    """
    word = re.sub(r"_{2,}", "_", re.sub(r"\W+", "_", name, flags=re.ASCII)).strip("_") or default
    if word[0].isdigit():
        word = f"n{word}"
    if len(word) > MAX_IDENTIFIER_LENGTH:
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        word = f"{word[: MAX_IDENTIFIER_LENGTH - 9].rstrip('_')}_{digest}"
    return f"{word}_" if word in reserved() else word


def identifiers(names: Iterable[str], default: str = "layer") -> list[str]:
    """Return a list of names as Verilog identifiers, in order, all of them different even without regard to case.

    Some file systems ignore case.
    """
    return unique(identifier(name, default) for name in names)


def instance_names(layers: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """Return a list of unique Verilog instance names for an accelerator's layers, in order, and then for ``others``.

    The Verilog module of an instance is called ``TOP_INSTANCE``. Modules around the accelerator, such as the bus
    wrapper, are named likewise. A layer whose module would have the same name becomes ``NAME_layer``.
    """
    words = [identifier(layer, "layer") for layer in layers]
    words = [f"{word}_layer" if _WRAPPER_NAMES.fullmatch(word) else word for word in words]
    return unique([*words, *(identifier(other) for other in others)])


def file_name(name: str) -> str:
    """Return ``name`` as a file name: one path component without special characters, at most 200 bytes long.

    Characters other than letters, digits and ``.@:,+=-`` become underscores. A name longer than 200 bytes is cut, and
    ends with eight digits of its digest.
    """
    name = re.sub(r"[^\w.@:,+=-]+", "_", name)
    raw = name.encode()
    if len(raw) > 200:
        name = f"{raw[:191].decode(errors='ignore')}_{hashlib.sha256(raw).hexdigest()[:8]}"
    return name


def unique(words: Iterable[str]) -> list[str]:
    """Return a list of ``words`` with a number after each repeated word, as in ``a``, ``a_2``, whatever the case.

    The suffix is the smallest free number, at least 2. A word that occurs once does not change.
    """
    words = list(words)
    taken = {word.lower() for word in words}
    seen: set[str] = set()
    result = []
    for word in words:
        if word.lower() in seen:
            numbered = (f"{word.rstrip('_')}_{suffix}" for suffix in count(2))
            word = next(new for new in numbered if new.lower() not in taken)
            taken.add(word.lower())
        seen.add(word.lower())
        result.append(word)
    return result


@cache
def reserved() -> frozenset[str]:
    """Return a set of the words that must not be Verilog identifiers, such as keywords, as listed in ``reserved.toml``.

    The file states the language or tool of each word.
    """
    text = resources.files("hwgen.gateware").joinpath("reserved.toml").read_text(encoding="utf-8")
    return frozenset(word for words in tomllib.loads(text).values() for word in words.split())
