"""Contents of memories out of Verilog, into files: then a compiled simulator is one for all contents.

What ``emit`` writes has the words of small memories in it. Here they go into files of their own, as those of large
ones do, which the simulator reads when it starts; the circuit stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["apart"]

_BLOCK = re.compile(rb"^    initial begin\n((?:        (?:\w+\[\d+\] = \d+'h[0-9a-f]+; ?)+\n)+)    end\n", re.MULTILINE)
_WORD = re.compile(rb"(\w+)\[\d+\] = \d+'h([0-9a-f]+);")
#: Comments, which tell of numbers that may be in memories.
_COMMENT = re.compile(rb"^ *//.*\n", re.MULTILINE)


def apart(files: Mapping[str, bytes], top: str) -> dict[str, bytes]:
    """Emitted files with no word of a memory in ``TOP.v``: those that were there are in further files."""
    contents: dict[str, bytes] = {}

    def moved(block: re.Match[bytes]) -> bytes:
        words = _WORD.findall(block[1])
        name = f"contents-{len(contents)}.mem"
        contents[name] = b"".join(word + b"\n" for _, word in words)
        return b'    initial $readmemh("%s", %s);\n' % (name.encode(), words[0][0])

    verilog = _COMMENT.sub(b"", _BLOCK.sub(moved, files[f"{top}.v"]))
    return {**files, **contents, f"{top}.v": verilog}
