"""Proofs of all obligations of a folder, in parallel: equal ones once, and known results from the cache."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwgen import cache, digest, processes, work
from hwgen.errors import InputError, ToolError
from hwgen.fields import written
from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools
from hwgen.prove.methods.registry import METHODS
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import Wrapped

_ENTRY = "verdict.json"


@dataclass(frozen=True)
class Proof:
    """Result of trying to prove one obligation: verdict, time in seconds, and whether it is from the cache.

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
        """Return a proof's result as a dictionary for JSON, with its obligation's kind, path and statement."""
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


def discharge(
    pairs: Sequence[tuple[Obligation, Wrapped]],
    *,
    seconds: float,
    pool: work.TaskPool | None = None,
    ended: Callable[[Sequence[Proof]], None] = lambda proofs: None,
) -> list[Proof]:
    """Return a list of a `Proof` per obligation, proved in parallel, each within ``seconds``, in the same order.

    Equal obligations of equal modules are proved once. If an exception ends the work, such as on a signal, ``ended``
    first receives the results that are known.
    """
    keys = [_cache_key(obligation, wrapper) for obligation, wrapper in pairs]
    first = {key: index for index, key in reversed(list(enumerate(keys)))}
    distinct = sorted(first.values(), key=lambda index: (-len(pairs[index][1].modules), index))
    proofs: dict[str, Proof] = {}

    def have(position: int, proof: Proof) -> None:
        proofs[keys[distinct[position]]] = proof

    def results() -> list[Proof | None]:
        known = [(proofs.get(key), obligation) for key, (obligation, _) in zip(keys, pairs, strict=True)]
        own = [proof and replace(proof, obligation=obligation) for proof, obligation in known]
        return _apply_assumptions([obligation for obligation, _ in pairs], own)

    tasks = [(keys[index], *pairs[index]) for index in distinct]
    work.run(
        pool,
        discharge_one,
        tasks,
        shared=(seconds,),
        what="proving",
        unit="obligation",
        done=have,
        ended=lambda: ended([proof for proof in results() if proof is not None]),
    )
    return [proof for proof in results() if proof is not None]


def _apply_assumptions(obligations: Sequence[Obligation], proofs: Sequence[Proof | None]) -> list[Proof | None]:
    """Return the list ``proofs``, but with those undecided that assume an obligation that is not proved.

    An obligation whose proof is not known yet has ``None``.
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
    """Return a list of the (obligation, wrapper) pairs whose kind is in ``kinds``, and the ones that they rest on."""
    bases = {
        (obligation.module, obligation.path, obligation.rests_on) for obligation, _ in pairs if obligation.kind in kinds
    }
    return [
        (obligation, wrapper)
        for obligation, wrapper in pairs
        if obligation.kind in kinds or (obligation.module, obligation.path, obligation.kind) in bases
    ]


def check_traces(folder: Path) -> None:
    """Raise InputError if traces can't be written into a folder; the folder is not created, as most runs need none.

    Raises
    ------
    InputError
        If it, or the nearest folder above it that exists, is a file or is not writable.
    """
    nearest = folder.absolute()
    while not (nearest.exists() or nearest.is_symlink()):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise InputError(f"traces can't be written into {folder}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"traces can't be written into {folder}: {nearest} is not writable")


def write_traces(proofs: Sequence[Proof], folder: Path) -> list[Path]:
    """Write the trace files of each refuted obligation into a folder of its own, and return a list of these folders.

    A folder is called ``INSTANCE.KIND``. If an instance has several properties of a kind, such as one per lane, the
    property's index among them follows, starting at 0.

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


def _cache_key(obligation: Obligation, wrapper: Wrapped) -> str:
    """Return an obligation's cache key: a digest of all that its verdict depends on."""
    neutral = replace(obligation, module="", path="", statement="")
    return digest.of(digest.source(), json.dumps(written(neutral)), wrapper.modules, wrapper.wrappers)


def discharge_one(seconds: float, task: tuple[str, Obligation, Wrapped]) -> Proof:
    """Return a `Proof`: the result of proving one obligation within ``seconds``, or its result from the cache.

    ``task`` is the obligation's key, the obligation and its wrapper. A method that others follow gets an equal share of
    the time that is left. A verdict is cached only if it is ``proved``.
    """
    key, obligation, wrapper = task
    key = digest.of(key, tools.versions())
    if (entry := cache.find("proofs", key)) is not None:
        kept = json.loads((entry / _ENTRY).read_text(encoding="utf-8"))
        return Proof(obligation, Verdict(kept["result"], kept["engine"], is_covered=True), kept["seconds"], True)
    begin = time.perf_counter()
    verdict = Verdict("undecided", "", "no method")
    # With registers on several clocks, only wrong wires can be decided.
    methods = obligation.methods if obligation.kind == "wires" or not wrapper.foreign_clock else ()
    deadline = Deadline.after(seconds)
    for index, method in enumerate(methods):
        verdict = _verdict(method, obligation, wrapper, deadline.part(len(methods) - index))
        if verdict.result in ("proved", "refuted"):
            break
    if wrapper.foreign_clock and verdict.result != "refuted":
        verdict = Verdict("undecided", "", f"a register is on another clock: {wrapper.foreign_clock}")
    elif verdict.result == "undecided" and not deadline.left:
        verdict = replace(verdict, detail=f"not decided within {seconds:g} s")
    if verdict.result == "proved" and not verdict.is_covered:
        verdict = replace(verdict, result="vacuous", detail="would hold vacuously: no run reaches the cover")
    proof = Proof(obligation, verdict, time.perf_counter() - begin)
    if verdict.result == "proved":
        kept = {"result": verdict.result, "engine": verdict.engine, "seconds": proof.seconds}
        cache.keep_files("proofs", key, {_ENTRY: json.dumps(kept).encode()})
    return proof


def _verdict(method: str, obligation: Obligation, wrapper: Wrapped, deadline: Deadline) -> Verdict:
    """Return one method's `Verdict` on an obligation: undecided after the deadline, or if a program fails."""
    with processes.workplace() as folder:
        try:
            return METHODS[method](obligation, wrapper, Path(folder), deadline)
        except subprocess.TimeoutExpired:
            return Verdict("undecided", method, "the time limit is reached")
        except ToolError as error:
            return Verdict("undecided", method, str(error))
