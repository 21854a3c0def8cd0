"""Proofs of all obligations of a folder: each distinct one once, side by side, with results from the cache."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hwgen import cache, digest, processes, work
from hwgen.errors import InputError, ToolError
from hwgen.prove import obligation as documents
from hwgen.prove import tools
from hwgen.prove.deadline import Deadline
from hwgen.prove.methods import structure
from hwgen.prove.methods.registry import METHODS
from hwgen.prove.modules import SYNTHESIS, VerilogModule, modules_of
from hwgen.prove.obligation import Obligation
from hwgen.prove.verdict import Verdict
from hwgen.prove.wrapper import Wrapped, wrapped

__all__ = ["Proof", "check_traces", "discharge", "discharged", "obligations_of", "selected", "write_traces"]

_ENTRY = "verdict.json"


@dataclass(frozen=True)
class Proof:
    """Result of the proof of one obligation.

    Parameters
    ----------
    obligation : Obligation
        Obligation that was to be proved.
    verdict : Verdict
        Verdict of the method that decided, or of the last one.
    seconds : float
        Seconds that the methods took.
    is_cached : bool
        Whether the verdict comes from the cache.
    """

    obligation: Obligation
    verdict: Verdict
    seconds: float
    is_cached: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the proof as a JSON object."""
        return {
            "kind": self.obligation.kind,
            "path": self.obligation.path,
            "module": self.obligation.module,
            "statement": self.obligation.statement,
            "result": self.verdict.result,
            "engine": self.verdict.engine,
            "detail": self.verdict.detail,
            "seconds": round(self.seconds, 2),
            "cached": self.is_cached,
        }


def obligations_of(folder: Path) -> list[tuple[Obligation, Wrapped]]:
    """Return the obligations of a folder that ``hwgen build`` wrote, each with its wrapper.

    Raises
    ------
    InputError
        If the folder has no obligations, or its Verilog does not fit them.
    """
    lists = sorted([*folder.glob(f"*{documents.SUFFIX}"), *folder.glob(f"*/*{documents.SUFFIX}")])
    if not lists:
        raise InputError(f"folder {folder} has no obligations (*{documents.SUFFIX}): give one that 'hwgen build' wrote")
    documents_of = {path: documents.read(_content(path), str(path)) for path in lists}
    verilog = {path: modules_of(_text(path.parent, name)) for path, (name, _) in documents_of.items()}
    pairs = []
    for path, (name, obligations) in documents_of.items():
        # A bus wrapper instantiates a module of another file of its folder.
        beside = [verilog[other] for other in lists if other.parent == path.parent]
        modules = {name: module for more in (*beside, verilog[path]) for name, module in more.items()}
        for obligation in obligations:
            _check(obligation, path)
            _check_path(obligation, path, Path(name).stem, modules)
            try:
                pairs.append((obligation, wrapped(obligation, modules, partial(_text, path.parent))))
            except InputError as error:
                raise InputError(f"{_where(obligation, path)}: {error}") from error
    return pairs


def _where(obligation: Obligation, path: Path) -> str:
    """Return the name of an obligation of the file ``path``, for a message."""
    return f"{path}, obligation {obligation.kind} of {obligation.path or 'top'}"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror or error}): build the design again") from error


def _text(folder: Path, name: str) -> str:
    try:
        return _content(folder / name).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{folder / name} is no UTF-8 text ({error.reason}): build the design again") from error


def _check(obligation: Obligation, path: Path) -> None:
    """Refuse an obligation of the file ``path`` that no method can read, such as one of a newer version of hwgen.

    Raises
    ------
    InputError
        If a method is unknown, or has not its parameters.
    """
    wrong = [f"method {name!r} is unknown" for name in obligation.methods if name not in METHODS]
    wrong += [
        f"structure {name!r} is unknown"
        for name in obligation.structure
        if name not in {"cycles", "held", *structure.CHECKS}
    ]
    wrong += [
        f"structure {name!r} has a wrong form"
        for name, fits in structure.FORMS.items()
        if name in obligation.structure and not fits(obligation.structure[name])
    ]
    cycles, held = obligation.structure.get("cycles"), obligation.structure.get("held", {})
    if not (isinstance(held, dict) and all(type(count) is int and count >= 0 for count in held.values())):
        wrong.append("structure 'held' has a wrong form")
    for method in ("exhaustive", "algebra"):
        if method in obligation.methods and not (type(cycles) is int and cycles >= 0):
            wrong.append(f"{method!r} needs a number of cycles")
    if "induction" in obligation.methods and not (cycles is None or (type(cycles) is int and cycles >= 1)):
        wrong.append(f"'induction' needs one cycle or more, not {cycles!r}")
    if not obligation.methods:
        wrong.append("it has no method")
    if wrong:
        raise InputError(f"{_where(obligation, path)}: {wrong[0]}: build the design again with this version of hwgen")


def _check_path(obligation: Obligation, path: Path, top: str, modules: Mapping[str, VerilogModule]) -> None:
    """Refuse an obligation of the file ``path`` whose instance is of another module than the one that is proved.

    ``top`` is the module whose instances the obligation's path begins with.

    Raises
    ------
    InputError
        If there is no such instance, or its module is another one.
    """
    kind = top if obligation.path else obligation.module
    for instance in filter(None, obligation.path.split(".")):
        kind = modules[kind].instances.get(instance, "") if kind in modules else ""
    if kind != obligation.module.removesuffix(SYNTHESIS):
        state = f"is of module {kind}" if kind else "is not in the Verilog"
        raise InputError(
            f"{_where(obligation, path)}: the instance {state}, and module {obligation.module} would be proved: build "
            "the design again"
        )


def discharge(
    pairs: Sequence[tuple[Obligation, Wrapped]],
    *,
    seconds: float,
    pool: work.Pool | None = None,
    ended: Callable[[Sequence[Proof]], None] = lambda proofs: None,
) -> list[Proof]:
    """Prove obligations, each within ``seconds``, and return the results in their order.

    Equal obligations of equal modules are proved once. If an exception ends the work, such as that of a signal,
    ``ended`` first receives the results that are known.
    """
    keys = [_key(obligation, wrapper) for obligation, wrapper in pairs]
    first = {key: index for index, key in reversed(list(enumerate(keys)))}
    distinct = sorted(first.values(), key=lambda index: (-len(pairs[index][1].modules), index))
    proofs: dict[str, Proof] = {}

    def have(position: int, proof: Proof) -> None:
        proofs[keys[distinct[position]]] = proof

    def results() -> list[Proof | None]:
        known = [(proofs.get(key), obligation) for key, (obligation, _) in zip(keys, pairs, strict=True)]
        own = [proof and replace(proof, obligation=obligation) for proof, obligation in known]
        return _resting([obligation for obligation, _ in pairs], own)

    tasks = [(keys[index], *pairs[index]) for index in distinct]
    work.run(
        pool,
        discharged,
        tasks,
        shared=(seconds,),
        what="proving",
        unit="obligation",
        done=have,
        ended=lambda: ended([proof for proof in results() if proof is not None]),
    )
    return [proof for proof in results() if proof is not None]


def _resting(obligations: Sequence[Obligation], proofs: Sequence[Proof | None]) -> list[Proof | None]:
    """Return the proofs of obligations; a proof is undecided if the obligation whose facts it assumes is not proved.

    A proof that is not known yet is ``None``.
    """
    unproved = {
        (obligation.module, obligation.path, obligation.kind): "not decided yet" if proof is None else result
        for obligation, proof in zip(obligations, proofs, strict=True)
        if (result := None if proof is None else proof.verdict.result) != "proved"
    }

    def rested(proof: Proof | None) -> Proof | None:
        if proof is None or proof.verdict.result != "proved":
            return proof
        own = proof.obligation
        if (result := unproved.get((own.module, own.path, own.rests_on))) is None:
            return proof
        detail = f"it assumes the facts of {own.rests_on!r}, which is {result}"
        return replace(proof, verdict=replace(proof.verdict, result="undecided", detail=detail))

    return [rested(proof) for proof in proofs]


def selected(pairs: Sequence[tuple[Obligation, Wrapped]], kinds: Sequence[str]) -> list[tuple[Obligation, Wrapped]]:
    """Return the obligations of some kinds, and those whose facts they assume."""
    bases = {
        (obligation.module, obligation.path, obligation.rests_on) for obligation, _ in pairs if obligation.kind in kinds
    }
    return [
        (obligation, wrapper)
        for obligation, wrapper in pairs
        if obligation.kind in kinds or (obligation.module, obligation.path, obligation.kind) in bases
    ]


def check_traces(folder: Path) -> None:
    """Refuse a folder for traces into which no trace can be written. The folder is not made: most runs need none.

    Raises
    ------
    InputError
        If it, or the nearest folder above it that exists, is a file or is not writable.
    """
    nearest = folder.absolute()
    while not (nearest.exists() or nearest.is_symlink()):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise InputError(f"traces can't be written into {folder}: {nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"traces can't be written into {folder}: {nearest} is not writable")


def write_traces(proofs: Sequence[Proof], folder: Path) -> list[Path]:
    """Write the files of refuted properties, each property's into a folder of its own, and return these folders.

    A folder is called ``INSTANCE.KIND``. If an instance has several properties of a kind, such as one per lane, the
    property's index among them follows, from 0.

    Raises
    ------
    InputError
        If the files can't be written.
    """
    folders = []
    names = [f"{proof.obligation.path or 'top'}.{proof.obligation.kind}" for proof in proofs]
    try:
        for position, (name, proof) in enumerate(zip(names, proofs, strict=True)):
            if proof.verdict.files:
                index = f".{names[:position].count(name)}" if names.count(name) > 1 else ""
                folders.append(folder / f"{name}{index}")
                folders[-1].mkdir(parents=True, exist_ok=True)
                for file, content in proof.verdict.files.items():
                    (folders[-1] / file).write_bytes(content)
    except OSError as error:
        raise InputError(f"traces can't be written into {folder}: {error.strerror or error}") from error
    return folders


def _key(obligation: Obligation, wrapper: Wrapped) -> str:
    """Return the key of an obligation in the cache: a digest of all that its verdict depends on."""
    neutral = replace(obligation, module="", path="", statement="")
    return digest.of(digest.source(), json.dumps(neutral.to_json()), wrapper.modules, wrapper.wrappers)


def discharged(seconds: float, task: tuple[str, Obligation, Wrapped]) -> Proof:
    """Prove one obligation within ``seconds``, or take its verdict from the cache.

    ``task`` is the obligation's key, the obligation and its wrapper. A method that others follow has an equal part of
    the time that is left. A verdict is cached only if it is ``proved``.
    """
    key, obligation, wrapper = task
    key = digest.of(key, tools.versions())
    if (entry := cache.find("proofs", key)) is not None:
        kept = json.loads((entry / _ENTRY).read_text(encoding="utf-8"))
        return Proof(obligation, Verdict(kept["result"], kept["engine"], is_covered=True), kept["seconds"], True)
    begin = time.perf_counter()
    verdict = Verdict("undecided", "", "no method")
    if wrapper.foreign_clock:
        foreign = f"a register is on another clock: {wrapper.foreign_clock}"
        return Proof(obligation, Verdict("undecided", "", foreign), time.perf_counter() - begin)
    deadline = Deadline.after(seconds)
    for index, method in enumerate(obligation.methods):
        verdict = _verdict(method, obligation, wrapper, deadline.part(len(obligation.methods) - index))
        if verdict.result in ("proved", "refuted"):
            break
    if verdict.result == "undecided" and not deadline.left:
        verdict = replace(verdict, detail=f"not decided within {seconds:g} s")
    if verdict.result == "proved" and not verdict.is_covered:
        verdict = replace(verdict, result="vacuous", detail="no run that reaches the cover was found")
    proof = Proof(obligation, verdict, time.perf_counter() - begin)
    if verdict.result == "proved":
        kept = {"result": verdict.result, "engine": verdict.engine, "seconds": proof.seconds}
        cache.keep_files("proofs", key, {_ENTRY: json.dumps(kept).encode()})
    return proof


def _verdict(method: str, obligation: Obligation, wrapper: Wrapped, deadline: Deadline) -> Verdict:
    """Return the verdict of one method; undecided if the deadline ends it, or a program fails."""
    with processes.workplace() as folder:
        try:
            return METHODS[method](obligation, wrapper, Path(folder), deadline)
        except subprocess.TimeoutExpired:
            return Verdict("undecided", method, "the time is over")
        except ToolError as error:
            return Verdict("undecided", method, str(error))
