"""Pools of parallel tasks on this machine, the choice of a pool, and the functions that run tasks in it."""

from __future__ import annotations

import contextvars
import itertools
import os
import pickle
import subprocess
import sys
import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from hwgen import processes
from hwgen.errors import InputError, ToolError
from hwgen.progress import tell
from hwgen.work.base import LostError, Outcome, TaskPool

START = "import sys; sys.path[:] = {path!r}; from hwgen.work.worker import main; main()"


class _OnThisMachine(TaskPool):
    """Base class of pools on this machine: tasks run in threads, or in worker processes that the threads wait for."""

    local = True

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count)
        self._futures: set[Future[Any]] = set()
        self._stopped = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        # The task runs in the submitter's context, so that it reports progress to the submitter's listener.
        future = self._threads.submit(contextvars.copy_context().run, self._call, fn, args, kwargs)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    @abstractmethod
    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the result of a task, run in the calling thread or in a worker process by subclasses."""

    @abstractmethod
    def _kill_workers(self) -> None:
        """Kill the programs or worker processes that the pool's threads wait for."""

    def stop(self) -> None:
        self._stopped = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        while wait(list(self._futures), timeout=0.05).not_done:  # a task can be about to start
            self._kill_workers()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)


class InThreads(_OnThisMachine):
    """Pool that runs tasks in threads, for tasks that mostly wait for external programs.

    The programs run in parallel; the tasks share this process's memory.
    """

    def share(self, value: Any) -> Any:
        return value

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return function(*arguments, **named)

    def _kill_workers(self) -> None:
        processes.end()


@dataclass(frozen=True, eq=False)
class SharedArgument:
    """Reference to an argument that many tasks share: a worker receives the value once, then only its index."""

    value: Any
    index: int = field(default_factory=itertools.count().__next__)


class InProcesses(_OnThisMachine):
    """Pool that runs tasks in Python worker processes, one per thread of the pool.

    A process starts with its thread's first task, and ends with the pool. It is started as a program, because
    ``multiprocessing`` would run the caller's script again in each process, and fails all tasks when one process is
    lost.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._here = threading.local()
        self._workers: set[_Worker] = set()
        self._stack = ExitStack()
        self._directory = self._stack.enter_context(processes.folder("hwgen-work-"))

    def share(self, value: Any) -> Any:
        return SharedArgument(value)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        worker: _Worker | None = getattr(self._here, "worker", None)
        if worker is None:
            if self._stopped:
                raise LostError("the work was stopped")
            self._here.worker = worker = _Worker(self._directory)
            self._workers.add(worker)
        try:
            return worker.call(function, arguments, named)
        except LostError:
            self._here.worker = None
            self._workers.discard(worker)
            worker.close()
            raise

    def _kill_workers(self) -> None:
        for worker in list(self._workers):
            worker.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
        for worker in list(self._workers):
            worker.close()
        self._workers.clear()
        self._stack.close()


class _Worker:
    """Handle of a Python worker process that runs tasks for this process, one at a time."""

    def __init__(self, directory: Path) -> None:
        self._known: set[SharedArgument] = set()
        self._stack = ExitStack()
        command = [sys.executable, "-c", START.format(path=sys.path)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": Path.cwd()}
        self._process = self._stack.enter_context(processes.program(command, directory, **pipes))

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a function in the worker process, and return its result or raise its exception.

        Raises
        ------
        LostError
            If the process ends before it answers, or answers something else than an outcome.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        shared = [argument for argument in arguments if isinstance(argument, SharedArgument)]
        values = {argument.index: argument.value for argument in shared if argument not in self._known}
        sent = [
            (True, argument.index) if isinstance(argument, SharedArgument) else (False, argument)
            for argument in arguments
        ]
        question = pickle.dumps((values, function, sent, named))
        try:
            self._process.stdin.write(question)
            self._process.stdin.flush()
            outcome: Outcome = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
            if not isinstance(error, OSError | EOFError):
                self.kill()  # the process lives, but its answer is not an outcome
            status = self._process.wait()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise LostError(f"its process ended with {how}, as when memory runs out") from error
        self._known.update(shared)
        return outcome.get()

    def kill(self) -> None:
        processes.kill(self._process)

    def close(self) -> None:
        """Close the worker process's input, which ends it, and wait for its end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._stack.close()


T = TypeVar("T")

SHARES = 2
"""Number of parts that divisible work is cut into, per task that a cluster can run at once."""

MAX_LOSSES = 3
"""Number of losses of one task (its worker ended) that make the whole work fail."""


def cores() -> int:
    """Return the number of processor cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_count(count: int | None, what: str = "jobs") -> None:
    """Raise InputError if a count is not a positive integer; ``None`` (option not given) is accepted.

    Raises
    ------
    InputError
        If the count is not a positive integer.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InputError(f"{what} must be a positive integer, not {count!r}")


@contextmanager
def pool(cluster: str | None = None, count: int | None = None, *, programs: bool = False) -> Iterator[TaskPool]:
    """Context manager that yields a `TaskPool` of workers on this machine or on a Dask cluster.

    Parameters
    ----------
    cluster : str, optional
        Address of a Dask scheduler (``tcp://host:8786``), or ``local:N``, which starts a cluster with N workers on this
        machine. By default the tasks run on this machine, in processes.
    count : int, optional
        Number of parallel tasks on this machine; the number of cores by default. A cluster has its own number.
    programs : bool
        Whether the tasks only wait for external programs. On this machine they then run in threads.

    Raises
    ------
    InputError
        If ``count`` is not a positive integer, or ``cluster`` is not an address.
    ToolError
        If no cluster answers, or its workers can't run this hwgen.
    """
    check_count(count, "tasks at a time")
    if cluster is not None:
        from hwgen.work.cluster import connected

        with connected(cluster) as cluster_pool:
            yield cluster_pool
        return

    local_pool = (InThreads if programs else InProcesses)(count or cores())
    try:
        yield local_pool
    except BaseException:
        local_pool.stop()
        raise
    finally:
        local_pool.shutdown()


def run(
    pool: TaskPool | None,
    function: Callable[..., T],
    tasks: Sequence[Any],
    *,
    shared: Sequence[Any] = (),
    what: str = "",
    unit: str = "task",
    done: Callable[[int, Any], None] = lambda index, result: None,
    ended: Callable[[], None] = lambda: None,
) -> list[T]:
    """Return a list of the results of ``function(*shared, task)`` for each task in order, computed in a pool.

    Parameters
    ----------
    pool : TaskPool or None
        Pool that runs the tasks; ``None`` runs them here, one after the other.
    function : callable
        Function of a module, so that a worker can import it.
    tasks : sequence
        Last argument of each call.
    shared : sequence
        First arguments of all calls.
    what, unit : str
        Description of the work and of one task, for `hwgen.progress`; without ``what`` no progress is reported.
    done : callable, optional
        Function that is called with the index and the result of each task, as soon as it is done.
    ended : callable, optional
        Function that is called if an exception ends the work, before the running tasks are ended.

    Raises
    ------
    ToolError
        If a task is lost `MAX_LOSSES` times with its worker.
    Exception
        Any exception of a task; the other tasks are then ended.
    """
    results: dict[int, T] = {}

    def have(index: int, result: T) -> None:
        results[index] = result
        done(index, result)
        if what:
            tell(what, len(results), len(tasks), unit)

    if what:
        tell(what, 0, len(tasks), unit)
    try:
        if pool is None:
            for index, task in enumerate(tasks):
                have(index, function(*shared, task))
        else:
            _run_tasks(pool, function, tasks, shared, have)
    except BaseException:
        try:
            ended()
        finally:
            if pool is not None:
                pool.stop()
        raise
    return [results[index] for index in range(len(tasks))]


def _run_tasks(
    pool: TaskPool,
    function: Callable[..., T],
    tasks: Sequence[Any],
    shared: Sequence[Any],
    have: Callable[[int, T], None],
) -> None:
    """Run tasks in a pool, repeat lost ones, and call ``have(index, result)`` for each finished task."""
    sent = [pool.share(value) for value in shared]
    running: dict[Future[T], int] = {}
    ended: SimpleQueue[Future[T]] = SimpleQueue()  # it is too slow to check all running tasks each time that one ends
    losses = Counter[int]()

    def begin(index: int) -> None:
        future = pool.submit(function, *sent, tasks[index])
        running[future] = index
        future.add_done_callback(ended.put)

    for index in range(len(tasks)):
        begin(index)
    while running:
        future = ended.get()
        index = running.pop(future)
        try:
            result = future.result()
        except LostError as error:
            losses[index] += 1
            if losses[index] == MAX_LOSSES:
                raise ToolError(f"a task was lost {MAX_LOSSES} times with its worker: {error}") from error
            begin(index)
        else:
            have(index, result)
