"""Emitted Verilog as a compiled simulator takes it: without contents of memories, and in components.

What ``emit`` writes has the words of small memories in it. Here they go into files of their own, as those of large
ones do, which the simulator reads when it starts; the circuit stays as it is. So one simulator serves all contents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["apart", "components"]

LARGE = 40_000
"""Bytes of Verilog of a component that is compiled by itself."""

#: The head of a module, or the contents of a memory.
_BLOCK = re.compile(
    rb"^module (\w+)|^    initial begin\n((?:        (?:\w+\[\d+\] = \d+'h[0-9a-f]+; ?)+\n)+)    end\n", re.MULTILINE
)
_MODULE = re.compile(rb"^module (\w+)(.*?)^endmodule", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(rb"^    (\w+) (?:#\(.*\) )?\w+ \($", re.MULTILINE)
_WORD = re.compile(rb"(\w+)\[\d+\] = \d+'h([0-9a-f]+);")
#: Comments, which tell of numbers that may be in memories.
_COMMENT = re.compile(rb"^ *//.*\n", re.MULTILINE)


def apart(files: Mapping[str, bytes], top: str) -> dict[str, bytes]:
    """Emitted files with no word of a memory in ``TOP.v``: those that were there are in further files."""
    contents: dict[str, bytes] = {}
    module = b""

    def moved(found: re.Match[bytes]) -> bytes:
        nonlocal module
        if found[1]:
            module = found[1]
            return found[0]
        words = _WORD.findall(found[2])
        name = b"%s-%s.mem" % (module, words[0][0])
        contents[name.decode()] = b"".join(word + b"\n" for _, word in words)
        return b'    initial $readmemh("%s", %s);\n' % (name, words[0][0])

    verilog = _COMMENT.sub(b"", _BLOCK.sub(moved, files[f"{top}.v"]))
    return {**files, **contents, f"{top}.v": verilog}


def components(verilog: bytes, top: str) -> list[str]:
    """The modules that are worth being compiled by themselves: large ones in the top module, or in most of it.

    What lies in smaller ones is compiled with the module around it.
    """
    texts = {name.decode(): text for name, text in _MODULE.findall(verilog)}
    inside = {name: [kind.decode() for kind in _INSTANCE.findall(text)] for name, text in texts.items()}
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            sizes[name] = len(texts[name]) + sum(size(kind) for kind in inside[name] if kind in texts)
        return sizes[name]

    found, around = [], [top]
    while around:
        name = around.pop()
        for kind in dict.fromkeys(inside[name]):
            if kind in texts and size(kind) >= LARGE:
                found.append(kind)
                if 2 * size(kind) > size(top):
                    around.append(kind)
    return sorted(found)
