"""Turns of phrase that bench/turns.py finds, right uses that it leaves, and limits that only fall."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import turns

FOUND = {
    "in which": ("cycles in which nothing moves", "layers of which one is slow", "the table from which rows are read"),
    "behind": ("the FIFO behind a layer",),
    "in front": ("a Relu in front of it",),
    "is no": ("b is no folder of an engine", "these are no ports"),
    "that of": ("the width is that of the input", "addresses are those of rows"),
    "detached of": ("cycles: of a frame", "options, of the engine"),
    "the one before": ("after the frame before", "a burst begins where the one before ended"),
    "is taken": ("a beat is taken", "words are offered", "the guard is told the size"),
    "alone": ("proved alone",),
    "beside": ("slices beside LUTs",),
    "Where": ("Where it fits, it is used.", "It waits. Where none comes, it ends."),
    "So": ("So is the engine.", "It waits. So does the FIFO."),
    "says of": ("what it says of itself",),
    "from .. on": ("each row from the second on",),
    "present": ("the present part",),
    "anew": ("it is made anew",),
    "a frame": ("12 cycles a frame", "two multiply-adds a slice"),
    "Of": ("Of its finish, the scale is proved.", "It is proved. Of each lane, one bit."),
}
RIGHT = (
    "in which case it waits",
    "there is no file x",
    "it is no longer valid, and there are no more frames",
    "weights such that those exceed",
    "the cycle before the reset",
    "modules that stand alone",
    'group.alone is a name, as "alone" is a key',
    "The page says where it stands, and Where is an operator.",
    "So far, none.",
    "the text from x on the page",
    "12 cycles per frame",
    "Often it is a matter of taste.",
)


def kinds(*passages: turns.Passage) -> Counter[str]:
    return Counter(turn.kind for turn in turns.turns(passages))


def test_examples_are_of_all_kinds():
    assert FOUND.keys() == turns.TURNS.keys()


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_a_turn_is_found(kind: str, text: str):
    assert kinds(turns.Passage(Path("x.md"), 1, text, True)) == {kind: 1}


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_use_is_left(text: str):
    assert not kinds(turns.Passage(Path("x.md"), 1, text, True))


@pytest.mark.parametrize(
    ("name", "text", "anywhere", "read"),
    [
        ("hwgen/a.py", '"""It is\nmade anew."""\n', {"anew": 1}, {}),
        ("hwgen/a.py", "x = 1  # made\n# anew\n", {"anew": 1}, {}),
        ("hwgen/a.py", 'raise ValueError("made " f"{x} anew")\n', {"anew": 1}, {"anew": 1}),
        ("hwgen/a.py", 'x = "alone"\n', {}, {}),
        ("hwgen/a.py", 'x = """\n# made alone\n"""\n', {"alone": 1}, {"alone": 1}),
        ("bench/a.py", 'x = "made anew"\n', {"anew": 1}, {}),
        ("hwgen/a.c", "/* made\n * anew */\n", {"anew": 1}, {"anew": 1}),
        ("hwgen/a.j2", "{# anew #}{{ anew }} made\nanew", {"anew": 1}, {"anew": 1}),
        ("hwgen/a.min.js", "made anew", {}, {}),
        ("docs/a.md", "made\nanew `anew`\n\n```\nanew\n```\n", {"anew": 1}, {}),
        ("docs/a.md", "- one\n- from two\n- on\n", {}, {}),
        ("README.md", "made anew", {"anew": 1}, {"anew": 1}),
    ],
)
def test_texts_of_each_kind_of_file_are_counted(name: str, text: str, anywhere, read, tmp_path: Path):
    (tmp_path / "README.md").touch()
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert turns.count(tmp_path) == {"anywhere": anywhere, "read": read}


def test_a_turn_has_its_line(tmp_path: Path):
    (tmp_path / "a.py").write_text('"""One.\n\nMade anew."""\n\nx = "two"  # made anew\n')
    assert [turn.passage.line for turn in turns.turns(turns.passages(["a.py"], tmp_path))] == [3, 5]


def test_more_uses_than_allowed_are_reported_and_fewer_lower_the_limits(tmp_path: Path):
    path = tmp_path / "limits.toml"
    path.write_text('# Why.\n[anywhere]\n"is no" = 2\nanew = 1\nSo = 4\n[read]\n')
    counts = {"anywhere": Counter({"is no": 1, "anew": 3, "behind": 1}), "read": Counter({"anew": 1})}
    limits = turns.read_limits(path)
    assert [line.partition(",")[0] for line in turns.over_limits(counts, limits)] == [
        "anywhere: 1 uses of 'behind'",
        "anywhere: 3 uses of 'anew'",
        "read: 1 uses of 'anew'",
    ]
    turns.write_limits(turns.lowered(counts, limits), path)
    assert path.read_text().startswith("# Why.\n[anywhere]\n")
    assert turns.read_limits(path) == {"anywhere": {"is no": 1, "anew": 1}, "read": {}}
