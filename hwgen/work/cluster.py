"""Tasks on a Dask cluster: one that runs somewhere, or one of some workers that is started here."""

from __future__ import annotations

import hashlib
import itertools
import logging
import pickle
import re
import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import resources, util
from typing import Any

from hwgen import installing, processes
from hwgen.errors import InputError, ToolError
from hwgen.work.base import Pool
from hwgen.work.outcome import Outcome, outcome

PATIENCE = 10.0
"""Seconds in which a scheduler must answer, and have a worker."""
MOST_WORKERS = 256
ALONE = 120.0
"""Seconds after which a cluster that has lost all workers is given up."""
_MOST_BYTES = 1 << 26
_MOST_FRAMES = 1 << 12
"""Bytes and frames of what a scheduler says of itself and its workers, at most."""
_LOOP_THREAD = "IO loop"
"""Name of the thread in which Dask's client runs its loop."""
_LOOP_LOGGERS = ("tornado.application", "asyncio")
_LOOK = 0.5
"""Seconds between two looks at whether a task is still wanted."""


@contextmanager
def connected(address: str) -> Iterator[Pool]:
    """The cluster at an address, or with ``local:N`` one of N workers on this machine, for the block.

    Raises
    ------
    InputError
        If this is no address.
    ToolError
        If Dask is missing, nothing answers there, or a worker has no hwgen, or another one; in the block, if the
        scheduler ends.
    """
    workers = check_address(address)
    if util.find_spec("distributed") is None:
        raise ToolError(f"--cluster needs Dask, which is not installed: {installing.command('distributed')}")
    import distributed

    with ExitStack() as stack:
        stack.enter_context(_quiet())
        with _plain(address):
            if workers is not None:
                address = stack.enter_context(_started(workers))
            else:
                _check_speaks(address)
            client = stack.enter_context(distributed.Client(address, timeout=PATIENCE, set_as_default=False))
            client.wait_for_workers(1, timeout=PATIENCE)
        made = OnCluster(client, address)
        try:
            with made.watched():
                _check(client)
                yield made
        except BaseException:
            made.stop()
            raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Dask's client log no tracebacks: what they are about is said in one line.

    Its loop runs in a thread of its own, and logs by tornado and asyncio, too, which others may use here.
    """
    logger = logging.getLogger("distributed.client")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    for name in _LOOP_LOGGERS:
        logging.getLogger(name).addFilter(_is_of_others)
    try:
        yield
    finally:
        logger.setLevel(before)
        for name in _LOOP_LOGGERS:
            logging.getLogger(name).removeFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether a record comes from another thread than that of Dask's loop."""
    return record.threadName != _LOOP_THREAD


def check_address(address: str) -> int | None:
    """N of ``local:N``; ``None`` of another address.

    Raises
    ------
    InputError
        If this is no address.
    """
    if not re.fullmatch(r"local:.*|(?:tcp://)?[^\s:/]+:\d+|(?:tcp://)?\[[0-9a-fA-F:]+\]:\d+", address):
        raise InputError(f"cluster must be the address of a Dask scheduler, as in tcp://host:8786, not {address!r}")
    if not address.startswith("local:"):
        return None
    count = address.removeprefix("local:")
    if not re.fullmatch(r"[1-9]\d{0,3}", count) or int(count) > MOST_WORKERS:
        raise InputError(f"cluster local:N must have 1 to {MOST_WORKERS} workers, not {count!r}")
    return int(count)


def _check_speaks(address: str) -> None:
    """Refuse what is no scheduler: Dask's client waits for ever for some answers, and allocates what others announce.

    A Dask scheduler speaks first; then it is asked who it is.

    Raises
    ------
    OSError
    """
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    if not 0 < int(port) < 1 << 16:
        raise OSError(f"{port} is no port")
    end = time.monotonic() + PATIENCE
    # A name can have two addresses, which are tried one after the other.
    with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE / 2) as connection:
        try:
            _send(connection, {**_received(connection, end), "compression": None})  # the same versions as its own
            _send(connection, {"op": "identity", "reply": True})
            kind = _received(connection, end)["type"]
            _send(connection, {"op": "close", "reply": False})
        except Exception as error:  # what comes can be anything
            raise OSError("what listens there is no Dask scheduler") from error
    if kind != "Scheduler":
        raise OSError(f"what listens there is Dask's {str(kind)[:40]}, not its scheduler")


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a message as Dask does: its length, the number of frames and their lengths, the frames."""
    from distributed.protocol.core import dumps

    frames = [bytes(frame) for frame in dumps(message)]
    head = struct.pack(f"={len(frames) + 1}Q", len(frames), *map(len, frames))
    connection.sendall(struct.pack("=Q", len(head) + sum(map(len, frames))) + head + b"".join(frames))


def _received(connection: socket.socket, end: float) -> Any:
    """Return the next message, of which nothing is unpickled.

    Raises
    ------
    ValueError
        If it is none, or too long.
    OSError
        If it is not there in time.
    """
    from distributed.protocol.core import loads

    (size,) = struct.unpack("=Q", _bytes(connection, 8, end))
    part = _bytes(connection, size, end)
    (count,) = struct.unpack_from("=Q", part)
    if not 0 < count <= _MOST_FRAMES:
        raise ValueError
    lengths = struct.unpack_from(f"={count}Q", part, 8)
    begin = 8 * (count + 1)
    # Long frames follow by themselves, and don't count in the first length.
    data = part + _bytes(connection, max(0, begin + sum(lengths) - size), end)
    places = itertools.accumulate(lengths, initial=begin)
    frames = [memoryview(data)[place : place + length] for place, length in zip(places, lengths, strict=False)]
    return loads(frames, deserialize=False)


def _bytes(connection: socket.socket, count: int, end: float) -> bytes:
    """Return so many bytes of what is received before ``end``; errors as of `_received`."""
    if count > _MOST_BYTES:
        raise ValueError
    found = bytearray()
    while len(found) < count:
        connection.settimeout(max(end - time.monotonic(), 1e-3))
        part = connection.recv(min(count - len(found), 1 << 16))
        if not part:
            raise ValueError
        found += part
    return bytes(found)


@contextmanager
def _started(workers: int) -> Iterator[str]:
    """A cluster on this machine; its address. What its workers leave behind goes with it."""
    import dask.config
    import distributed

    with processes.folder("hwgen-work-") as place, dask.config.set(temporary_directory=str(place)):
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,  # type: ignore[arg-type]  # no page of its own
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # nor a port that others may have
            local_directory=str(place),
            env={"TMPDIR": str(place)},
            silence_logs=logging.CRITICAL,
        )
        with cluster:
            yield cluster.scheduler_address


@contextmanager
def _plain(address: str) -> Iterator[None]:
    """Say in one line that nothing can be reached at an address."""
    try:
        yield
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ToolError(f"no cluster answers at {address}: {reason}; start one with 'dask scheduler'") from error


def _check(client: Any) -> None:
    """Refuse workers that would compute something else than this machine.

    Raises
    ------
    ToolError
    """
    here, found = sources(), client.run(sources, on_error="return")
    for worker, seen in sorted(found.items()):
        if isinstance(seen, BaseException):
            reason = " ".join(str(seen).split())[:200]
            raise ToolError(f"worker {worker} can't run hwgen ({reason}): install the same hwgen there")
        if seen != here:
            raise ToolError(f"worker {worker} has another hwgen than this machine: install the same one there")


@cache
def sources() -> str:
    """A digest of hwgen's own files: two machines with the same one compute the same."""
    digest = hashlib.sha256()
    waiting = [resources.files("hwgen")]
    while waiting:
        for entry in sorted(waiting.pop().iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                waiting.append(entry)
            elif entry.name.endswith((".py", ".cpp", ".vlt")):
                digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return digest.hexdigest()


class OnCluster(Pool):
    """The workers of a Dask scheduler. Dask runs the tasks of a lost worker on another one."""

    local = False

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._executor = client.get_executor(pure=False)
        self._waiting: set[Future[Any]] = set()

    @property
    def count(self) -> int:  # type: ignore[override]  # workers come and go
        return max(1, sum(self._client.nthreads().values()))

    def share(self, value: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Dask's advice to scatter what is large: that would be lost with its worker
            return self._client.submit(pickle.loads, pickle.dumps(value), pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        found: Future[Any] = Future()
        self._waiting.add(found)

        def pass_on(future: Future[Outcome]) -> None:
            if not self._taken(found):
                return
            try:
                found.set_result(future.result().get())
            except BaseException as error:
                found.set_exception(self._plain_loss(error))

        self._executor.submit(attempt, fn, *args, **kwargs).add_done_callback(pass_on)
        return found

    def _taken(self, found: Future[Any]) -> bool:
        """Whether somebody waits for a task, of which nothing was known before; it is known now."""
        try:
            self._waiting.remove(found)
        except KeyError:
            return False
        return found.set_running_or_notify_cancel()

    def _count_workers(self, over: threading.Event) -> None:
        """Give up all tasks when there has been no worker for a while: Dask waits for one without an end."""
        since = time.monotonic()
        while not over.wait(ALONE / 20):
            with suppress(Exception):  # whether the scheduler is there is told by the tasks
                if self._client.nthreads():
                    since = time.monotonic()
            if time.monotonic() - since > ALONE:
                for found in list(self._waiting):
                    if self._taken(found):
                        found.set_exception(ToolError(f"the cluster lost all its workers, {ALONE:g} seconds ago"))

    def stop(self) -> None:
        with suppress(Exception):  # the scheduler may be gone
            self._executor.shutdown(wait=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait and not cancel_futures)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Say in one line, if what is asked in the block fails, that the scheduler or all workers are gone."""
        from distributed.client import ClosedClientError
        from distributed.comm.core import CommClosedError

        over = threading.Event()
        threading.Thread(target=self._count_workers, args=(over,), name="workers", daemon=True).start()
        try:
            yield
        except (ClosedClientError, CommClosedError) as error:
            raise self._gone() from error
        finally:
            over.set()

    def _plain_loss(self, error: BaseException) -> BaseException:
        """What a task raised; one that killed its workers, or a scheduler that is gone, in one line."""
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        if isinstance(error, KilledWorker):
            return ToolError(f"the cluster gave up a task: each worker that took it ended ({error.last_worker})")
        if isinstance(error, CancelledError | CommClosedError):  # nobody else takes tasks back while one waits for them
            return self._gone()
        return error

    def _gone(self) -> ToolError:
        return ToolError(
            f"the scheduler at {self._address} ended, or started anew, and all tasks with it: start it, then this again"
        )


def attempt(function: Callable[..., Any], *arguments: Any, **named: Any) -> Outcome:
    """Run a task in a worker. When it is no longer wanted there, the programs that it waits for end."""
    from distributed import get_worker

    worker, over = get_worker(), threading.Event()
    key, thread = worker.get_current_task(), threading.get_ident()

    def look() -> None:
        while not over.wait(_LOOK):
            state = worker.state.tasks.get(key)
            if state is None or state.state == "cancelled":
                processes.end(thread)
                return

    threading.Thread(target=look, daemon=True).start()
    try:
        return outcome(function, *arguments, **named)
    finally:
        over.set()
