"""What a build takes away in a result folder: what an earlier one wrote, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from hwgen.emit import folder as emit_folder
from hwgen.emit import manifest
from hwgen.emit.folder import replace_folder
from hwgen.errors import InputError

FIRST = {"Makefile": b"one", "net.v": b"module", "net.a.mem": b"0", "net-conv/net.v": b"x", "net-conv/deep/y.mem": b"y"}
SECOND = {"Makefile": b"two", "net.v": b"module", "other/net.v": b"z"}


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def digest(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def result(tmp_path):
    replace_folder(FIRST, tmp_path / "result")
    return tmp_path / "result"


def test_the_manifest_lists_every_file(result):
    given = json.loads((result / "manifest.json").read_text())
    assert given["files"] == {name: digest(content) for name, content in FIRST.items()}
    assert set(tree(result)) == {*FIRST, "manifest.json"}


def test_what_is_not_written_any_more_goes(result):
    (result / "notes.txt").write_text("mine")
    (result / "net.b.mem").write_text("looks like one of ours")
    (result / "net-conv" / "obj_dir").mkdir()
    (result / "net-conv" / "obj_dir" / "log").write_text("of make")
    replace_folder(SECOND, result)
    left = {"notes.txt", "net.b.mem", "net-conv/obj_dir/log"}
    assert set(tree(result)) == {*SECOND, "manifest.json", *left}
    assert not (result / "net-conv" / "deep").exists()
    replace_folder(FIRST, result)
    assert set(tree(result)) == {*FIRST, "manifest.json", *left}
    assert not (result / "other").exists()


def test_what_was_changed_stays_and_is_told(result):
    (result / "net.a.mem").write_text("changed")
    (result / "net-conv" / "net.v").unlink()
    (result / "net-conv" / "net.v").mkdir()
    said = []
    replace_folder(SECOND, result, said.append)
    assert said == [f"kept {result / 'net.a.mem'}: an earlier build wrote it, and it was changed since"]
    assert (result / "net.a.mem").read_text() == "changed"
    assert (result / "net-conv" / "net.v").is_dir()
    said.clear()
    replace_folder(FIRST | SECOND, result / "again", said.append)
    assert said == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        '"x"',
        '{"files": 3}',
        '{"written_by": "hwgen", "files": [1]}',
        "[" * 100_000,
        "\0",
        "\udcff",
    ],
)
def test_a_manifest_that_is_none(result, text):
    """Nothing is known of the files then: unchanged ones don't count, and the others are refused."""
    (result / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    before = tree(result)
    with pytest.raises(InputError, match=r"did not write, or .*: Makefile, manifest\.json; give another"):
        replace_folder(SECOND, result)
    assert tree(result) == before
    replace_folder(SECOND, result, force=True)
    assert set(tree(result)) == {*FIRST, *SECOND, "manifest.json"}


def test_files_of_others_are_not_overwritten(result):
    """Neither those that were there before the first build, nor those that were changed after it."""
    (result / "other").mkdir()
    (result / "other" / "net.v").write_bytes(b"mine")
    (result / "Makefile").write_bytes(b"mine, too")
    (result / "net.v").write_bytes(b"changed, but not by a build that writes it as it was")
    before = tree(result)
    with pytest.raises(InputError) as refusal:
        replace_folder(FIRST | SECOND, result)
    assert str(refusal.value) == (
        f"output folder {result} has files that hwgen did not write, or that were changed since: Makefile, net.v, "
        "other/net.v; give another folder, or --force (in Python force=True), which overwrites them"
    )
    assert tree(result) == before
    replace_folder(FIRST | SECOND, result, force=True)
    assert {name: (result / name).read_bytes() for name in SECOND} == SECOND
    replace_folder(FIRST, result)  # all of it is hwgen's now


def test_a_folder_of_the_users(tmp_path):
    (tmp_path / "Makefile").write_bytes(b"mine")
    with pytest.raises(InputError, match="since: Makefile; give"):
        replace_folder(FIRST, tmp_path)
    assert tree(tmp_path) == {"Makefile": b"mine"}
    many = {f"file{number:02}": b"" for number in range(30)}
    for name in many:
        (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(InputError, match="file18, file19 and 10 more; give"):
        replace_folder(many, tmp_path)
    os.mkfifo(tmp_path / "net.v")
    with pytest.raises(InputError, match=r"since: Makefile, net\.v; give"):
        replace_folder(FIRST, tmp_path)


def test_links_are_written_through_or_refused(result, tmp_path):
    (tmp_path / "link").symlink_to(result)
    (tmp_path / "dangling").symlink_to(tmp_path / "made")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, target in (("link", result), ("dangling", tmp_path / "made")):
        replace_folder(SECOND, tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert (target / "other" / "net.v").read_bytes() == b"z"
    with pytest.raises(InputError, match="loop of symbolic links"):
        emit_folder.check_folder(tmp_path / "loop")
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (result / "Makefile").unlink()
    (result / "Makefile").symlink_to(tmp_path / "elsewhere")
    for force in (False, True):
        with pytest.raises(InputError, match="has symbolic links where files would be written: Makefile; remove them"):
            replace_folder(FIRST, result, force=force)
    assert (result / "Makefile").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_what_other_verbs_write_is_noted(result, tmp_path):
    """A build overwrites it, but does not take it away; nothing is noted where there is no manifest."""
    for name in ("Makefile", "more.program"):
        (result / name).write_bytes(b"by another verb")
        manifest.note(result / name)
    assert manifest.read(result, "others") == {"more.program": digest(b"by another verb")}
    replace_folder(SECOND, result)
    assert (result / "more.program").read_bytes() == b"by another verb"
    replace_folder(SECOND | {"more.program": b"by a build"}, result)
    assert manifest.read(result, "others") == {}
    (tmp_path / "file").write_bytes(b"")
    manifest.note(tmp_path / "file")
    assert not (tmp_path / "manifest.json").exists()


def test_a_hostile_manifest_deletes_nothing_outside(result, tmp_path):
    outside = tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    (outside / "file").write_bytes(b"mine")
    (result / "link").symlink_to(outside)
    (result / "direct").symlink_to(outside / "file")
    (result / "folder").mkdir()
    os.mkfifo(result / "pipe")
    names = [
        str(outside / "file"),
        "../outside/file",
        "../outside/empty/x",
        "net-conv/../../outside/file",
        "./../outside/file",
        "link/file",
        "link/empty/x",
        "link",
        "direct",
        "folder",
        "pipe",
        "",
        ".",
        "..",
        "/",
        "x\0y",
        "\ud800",
        "x" * 5000,
        "manifest.json",
    ]
    files = dict.fromkeys(names, digest(b"mine")) | {"Makefile": 3, "net.v": "x", "net.a.mem": None}
    (result / "manifest.json").write_text(json.dumps({"written_by": "hwgen", "files": files}))
    replace_folder({"Makefile": b"two"}, result, force=True)
    assert (outside / "file").read_bytes() == b"mine"
    assert (outside / "empty").is_dir()
    assert (result / "direct").is_symlink()
    assert (result / "link").is_symlink()
    assert {"net.v", "net.a.mem", "net-conv/net.v", "manifest.json"} < set(tree(result))


def test_a_manifest_that_is_a_link_or_a_pipe(result, tmp_path):
    (tmp_path / "theirs.json").write_bytes((result / "manifest.json").read_bytes())
    (result / "manifest.json").unlink()
    (result / "manifest.json").symlink_to(tmp_path / "theirs.json")
    assert manifest.read(result) == {}
    (result / "manifest.json").unlink()
    os.mkfifo(result / "manifest.json")
    assert manifest.read(result) == {}


def test_nothing_goes_when_nothing_is_written(result, monkeypatch):
    before = tree(result)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(emit_folder.Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        replace_folder(SECOND, result)
    assert tree(result) == before
