"""Preparation of emitted Verilog for a compiled simulator: memory contents in files, and choice of components.

``emit`` writes the words of small memories into the Verilog, and the words of large memories into files. Here all words
move into files, which the simulator reads when it starts. The circuit stays the same. So one compiled simulator serves
designs that differ only in memory contents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LARGE = 40_000
"""Smallest size, in bytes of Verilog with all instances inside, of a module that is compiled by itself."""

#: Pattern of a Verilog module's first line, or of the ``initial`` block with a memory's contents.
_BLOCK = re.compile(
    rb"^module (\w+)|^    initial begin\n((?:        (?:\w+\[\d+\] = \d+'h[0-9a-f]+; ?)+\n)+)    end\n", re.MULTILINE
)
_MODULE = re.compile(rb"^module (\w+)(.*?)^endmodule", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(rb"^    (\w+) (?:#\(.*\) )?\w+ \($", re.MULTILINE)
_WORD = re.compile(rb"(\w+)\[\d+\] = \d+'h([0-9a-f]+);")
#: Pattern of Verilog comment lines, which can state numbers that are in memories, and are therefore removed.
_COMMENT = re.compile(rb"^ *//.*\n", re.MULTILINE)


def without_contents(files: Mapping[str, bytes], top: str) -> dict[str, bytes]:
    """Return emitted files by name, with all words of memories moved from ``TOP.v`` to files of their own.

    Comments are removed from ``TOP.v`` as well.
    """
    contents: dict[str, bytes] = {}
    module = b""

    def moved(block: re.Match[bytes]) -> bytes:
        nonlocal module
        if block[1]:
            module = block[1]
            return block[0]
        words = _WORD.findall(block[2])
        name = b"%s-%s.mem" % (module, words[0][0])
        contents[name.decode()] = b"".join(word + b"\n" for _, word in words)
        return b'    initial $readmemh("%s", %s);\n' % (name, words[0][0])

    verilog = _COMMENT.sub(b"", _BLOCK.sub(moved, files[f"{top}.v"]))
    return {**files, **contents, f"{top}.v": verilog}


def components(verilog: bytes, top: str) -> list[str]:
    """Choose the Verilog modules that are compiled by themselves, not as a part of another; return sorted names.

    These are modules of at least `LARGE` bytes, with all instances in them, that are instances of the top module or of
    a module that is more than half of the design. Smaller modules are compiled with the module around them.
    """
    texts = {name.decode(): text for name, text in _MODULE.findall(verilog)}
    inside = {name: [module.decode() for module in _INSTANCE.findall(text)] for name, text in texts.items()}
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            sizes[name] = len(texts[name]) + sum(size(module) for module in inside[name] if module in texts)
        return sizes[name]

    large_modules, around = [], [top]
    while around:
        name = around.pop()
        for module in dict.fromkeys(inside[name]):
            if module in texts and size(module) >= LARGE:
                large_modules.append(module)
                if 2 * size(module) > size(top):
                    around.append(module)
    return sorted(large_modules)
