"""Pool of parallel tasks on a Dask cluster, which exists already or is started on this machine."""

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
from hwgen.work.base import Outcome, TaskPool, outcome

PATIENCE = 10.0
"""Maximum seconds for a Dask scheduler to answer, and then again for it to have a worker."""
MAX_WORKERS = 256
ALONE = 120.0
"""Maximum seconds that a cluster may be without any worker before all its tasks fail."""
_MAX_BYTES = 1 << 26
"""Maximum size in bytes of each of a Dask scheduler's first messages."""
_MAX_FRAMES = 1 << 12
"""Maximum number of frames (byte blocks) in each of a Dask scheduler's first messages."""
_LOOP_THREAD = "IO loop"
"""Name of the thread that runs the event loop of Dask's client."""
_LOOP_LOGGERS = ("tornado.application", "asyncio")
_LOOK = 0.5
"""Interval, in seconds, between checks whether a running task was cancelled."""


@contextmanager
def connected(address: str) -> Iterator[TaskPool]:
    """Context manager that yields a `TaskPool` of the workers of the Dask cluster at an address.

    The address ``local:N`` starts a cluster with N workers on this machine.

    Raises
    ------
    InputError
        If the address is malformed.
    ToolError
        If Dask is missing, no scheduler answers, or a worker has no hwgen or another version. In the block: if the
        scheduler ends.
    """
    workers = check_address(address)
    if util.find_spec("distributed") is None:
        raise ToolError(f"--cluster needs Dask, which is not installed: {installing.command('distributed')}")
    import distributed

    with ExitStack() as stack:
        stack.enter_context(_silence_client())
        with _replace_connection_errors(address):
            if workers is not None:
                address = stack.enter_context(_start_cluster(workers))
            else:
                _check_speaks(address)
            client = stack.enter_context(distributed.Client(address, timeout=PATIENCE, set_as_default=False))
            client.wait_for_workers(1, timeout=PATIENCE)
        cluster_pool = OnCluster(client, address)
        try:
            with cluster_pool.watched():
                _check(client)
                yield cluster_pool
        except BaseException:
            cluster_pool.stop()
            raise


@contextmanager
def _silence_client() -> Iterator[None]:
    """Context manager that silences the log of Dask's client, as hwgen reports its errors in one line instead.

    The client's event loop runs in its own thread. It also logs through tornado and asyncio, whose records from other
    threads are kept.
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
    """Return whether a log record comes from another thread than Dask's event loop."""
    return record.threadName != _LOOP_THREAD


def check_address(address: str) -> int | None:
    """Return the number of workers N in the cluster address ``local:N``, or ``None`` for a valid scheduler address.

    Raises
    ------
    InputError
        If the address is malformed.
    """
    if not re.fullmatch(r"local:.*|(?:tcp://)?[^\s:/]+:\d+|(?:tcp://)?\[[0-9a-fA-F:]+\]:\d+", address):
        raise InputError(f"cluster must be the address of a Dask scheduler, as in tcp://host:8786, not {address!r}")
    if not address.startswith("local:"):
        return None
    count = address.removeprefix("local:")
    if not re.fullmatch(r"[1-9]\d{0,3}", count) or int(count) > MAX_WORKERS:
        raise InputError(f"cluster local:N must have 1 to {MAX_WORKERS} workers, not {count!r}")
    return int(count)


def _check_speaks(address: str) -> None:
    """Raise OSError if no Dask scheduler listens at an address.

    Dask's client would wait for some answers without end, and allocate memory for any announced size. Therefore this
    function checks the address first: it receives the scheduler's first message, and asks for its identity.

    Raises
    ------
    OSError
        If no scheduler listens at the address.
    """
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    if not 0 < int(port) < 1 << 16:
        raise OSError(f"{port} is not a port number")
    end = time.monotonic() + PATIENCE
    # A name can have two addresses, which are tried one after the other.
    with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE / 2) as connection:
        try:
            _send_message(
                connection, {**_receive_message(connection, end), "compression": None}
            )  # the same versions as the scheduler's own
            _send_message(connection, {"op": "identity", "reply": True})
            server_type = _receive_message(connection, end)["type"]
            _send_message(connection, {"op": "close", "reply": False})
        except Exception as error:  # the answer can be anything
            raise OSError("it is not a Dask scheduler") from error
    if server_type != "Scheduler":
        raise OSError(f"what listens there is Dask's {str(server_type)[:40]}, not its scheduler")


def _send_message(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a message to a Dask scheduler in its format: total length, number of frames, their lengths, frames."""
    from distributed.protocol.core import dumps

    frames = [bytes(frame) for frame in dumps(message)]
    head = struct.pack(f"={len(frames) + 1}Q", len(frames), *map(len, frames))
    connection.sendall(struct.pack("=Q", len(head) + sum(map(len, frames))) + head + b"".join(frames))


def _receive_message(connection: socket.socket, end: float) -> Any:
    """Receive and return the next message of a Dask scheduler, without unpickling any part of it.

    Raises
    ------
    ValueError
        If the data is not a message, or too long.
    OSError
        If the message does not arrive before the time ``end`` (``time.monotonic``).
    """
    from distributed.protocol.core import loads

    (size,) = struct.unpack("=Q", _receive_bytes(connection, 8, end))
    message = _receive_bytes(connection, size, end)
    (count,) = struct.unpack_from("=Q", message)
    if not 0 < count <= _MAX_FRAMES:
        raise ValueError
    lengths = struct.unpack_from(f"={count}Q", message, 8)
    begin = 8 * (count + 1)
    # Long frames follow separately, and don't count in the first length.
    data = message + _receive_bytes(connection, max(0, begin + sum(lengths) - size), end)
    offsets = itertools.accumulate(lengths, initial=begin)
    frames = [memoryview(data)[offset : offset + length] for offset, length in zip(offsets, lengths, strict=False)]
    return loads(frames, deserialize=False)


def _receive_bytes(connection: socket.socket, count: int, end: float) -> bytes:
    """Receive and return the next ``count`` bytes of a connection, before the time ``end``."""
    if count > _MAX_BYTES:
        raise ValueError
    received = bytearray()
    while len(received) < count:
        connection.settimeout(max(end - time.monotonic(), 1e-3))
        chunk = connection.recv(min(count - len(received), 1 << 16))
        if not chunk:
            raise ValueError
        received += chunk
    return bytes(received)


@contextmanager
def _start_cluster(workers: int) -> Iterator[str]:
    """Context manager that starts a Dask cluster on this machine and yields its address.

    The cluster's temporary files are removed at the end.
    """
    import dask.config
    import distributed

    with processes.folder("hwgen-work-") as directory, dask.config.set(temporary_directory=str(directory)):
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,  # type: ignore[arg-type]  # no dashboard of its own
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any free port
            local_directory=str(directory),
            env={"TMPDIR": str(directory)},
            silence_logs=logging.CRITICAL,
        )
        with cluster:
            yield cluster.scheduler_address


@contextmanager
def _replace_connection_errors(address: str) -> Iterator[None]:
    """Context manager that turns connection errors into a ToolError, one line with the cluster's address."""
    try:
        yield
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ToolError(f"no cluster answers at {address}: {reason}; start one with 'dask scheduler'") from error


def _check(client: Any) -> None:
    """Raise ToolError if a worker of the cluster lacks hwgen, or has other hwgen sources than this machine.

    Raises
    ------
    ToolError
        If a worker has no hwgen, or other sources of hwgen than this machine.
    """
    here, digests = sources(), client.run(sources, on_error="return")
    for worker, digest in sorted(digests.items()):
        if isinstance(digest, BaseException):
            reason = " ".join(str(digest).split())[:200]
            raise ToolError(f"worker {worker} can't run hwgen ({reason}): install the same hwgen there")
        if digest != here:
            raise ToolError(f"worker {worker} has another hwgen than this machine: install the same one there")


@cache
def sources() -> str:
    """Return the SHA-256 digest of hwgen's own source files, to check that machines have the same hwgen."""
    digest = hashlib.sha256()
    waiting = [resources.files("hwgen")]
    while waiting:
        for entry in sorted(waiting.pop().iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                waiting.append(entry)
            elif entry.name.endswith((".py", ".cpp", ".vlt")):
                digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return digest.hexdigest()


class OnCluster(TaskPool):
    """Pool that runs tasks on the workers of a Dask scheduler.

    Dask runs the tasks of a lost worker again on another worker.
    """

    local = False

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._executor = client.get_executor(pure=False)
        self._waiting: set[Future[Any]] = set()

    @property
    def count(self) -> int:  # type: ignore[override]  # the number of workers changes
        return max(1, sum(self._client.nthreads().values()))

    def share(self, value: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Dask advises to scatter large values, but a scattered value is lost with its worker
            return self._client.submit(pickle.loads, pickle.dumps(value), pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        result: Future[Any] = Future()
        self._waiting.add(result)

        def pass_on(future: Future[Outcome]) -> None:
            if not self._claim(result):
                return
            try:
                result.set_result(future.result().get())
            except BaseException as error:
                result.set_exception(self._plain_loss(error))

        self._executor.submit(attempt, fn, *args, **kwargs).add_done_callback(pass_on)
        return result

    def _claim(self, result: Future[Any]) -> bool:
        """Mark an awaited task as running, and return True; return False if it is no longer awaited or is cancelled."""
        try:
            self._waiting.remove(result)
        except KeyError:
            return False
        return result.set_running_or_notify_cancel()

    def _count_workers(self, over: threading.Event) -> None:
        """Monitor the number of workers until ``over`` is set; fail all tasks if there are none for `ALONE` seconds.

        Dask would wait without end. The method runs in a thread of its own.
        """
        since = time.monotonic()
        while not over.wait(ALONE / 20):
            with suppress(Exception):  # the tasks themselves report a lost scheduler
                if self._client.nthreads():
                    since = time.monotonic()
            if time.monotonic() - since > ALONE:
                for result in list(self._waiting):
                    if self._claim(result):
                        result.set_exception(ToolError(f"the cluster lost all its workers, {ALONE:g} seconds ago"))

    def stop(self) -> None:
        with suppress(Exception):  # the scheduler can be gone
            self._executor.shutdown(wait=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait and not cancel_futures)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Monitor the cluster's workers in the ``with`` block; replace errors of a lost scheduler by a ToolError."""
        from distributed.client import ClosedClientError
        from distributed.comm.core import CommClosedError

        over = threading.Event()
        threading.Thread(target=self._count_workers, args=(over,), name="workers", daemon=True).start()
        try:
            yield
        except (ClosedClientError, CommClosedError) as error:
            raise self._lost_scheduler_error() from error
        finally:
            over.set()

    def _plain_loss(self, error: BaseException) -> BaseException:
        """Return a one-line ToolError for a killed worker or a lost scheduler; return other task errors unchanged."""
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        if isinstance(error, KilledWorker):
            return ToolError(f"the cluster gave up a task: each worker that took it ended ({error.last_worker})")
        if isinstance(error, CancelledError | CommClosedError):  # no other code cancels tasks that the pool waits for
            return self._lost_scheduler_error()
        return error

    def _lost_scheduler_error(self) -> ToolError:
        return ToolError(
            f"the scheduler at {self._address} ended or restarted and lost all tasks: start it and run this again"
        )


def attempt(function: Callable[..., Any], *arguments: Any, **named: Any) -> Outcome:
    """Run a task in a Dask worker, and return its `Outcome`; kill the task's programs if it is cancelled."""
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
