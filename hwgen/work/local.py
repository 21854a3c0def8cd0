"""Pools of tasks on this machine: in processes, or in threads that wait for programs."""

from __future__ import annotations

import contextvars
import itertools
import pickle
import subprocess
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwgen import processes
from hwgen.work.base import LostError, TaskPool
from hwgen.work.outcome import Outcome

START = "import sys; sys.path[:] = {path!r}; from hwgen.work.worker import main; main()"


class _OnThisMachine(TaskPool):
    """Base class of pools whose tasks run in threads of this process, or in processes that the threads wait for."""

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
        """Run a task in this thread or in a worker process, and return its result."""

    @abstractmethod
    def _end(self) -> None:
        """Kill the programs or worker processes that the pool's threads wait for."""

    def stop(self) -> None:
        self._stopped = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        while wait(list(self._futures), timeout=0.05).not_done:  # a task can be about to start
            self._end()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)


class InThreads(_OnThisMachine):
    """Pool of tasks in threads, for tasks that only wait for external programs.

    The programs run in parallel; the tasks share this process's memory.
    """

    def share(self, value: Any) -> Any:
        return value

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return function(*arguments, **named)

    def _end(self) -> None:
        processes.end()


@dataclass(frozen=True, eq=False)
class SharedArgument:
    """Argument that many tasks share: a worker receives the value once, and with later tasks only its index."""

    value: Any
    index: int = field(default_factory=itertools.count().__next__)


class InProcesses(_OnThisMachine):
    """Pool of tasks in Python processes, one process per thread of the pool.

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

    def _end(self) -> None:
        for worker in list(self._workers):
            worker.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
        for worker in list(self._workers):
            worker.close()
        self._workers.clear()
        self._stack.close()


class _Worker:
    """Handle of a Python process that runs tasks for this process, one at a time."""

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
                self.kill()  # the process lives, but its answer is no outcome
            status = self._process.wait()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise LostError(f"its process ended with {how}, as when memory runs out") from error
        self._known.update(shared)
        return outcome.get()

    def kill(self) -> None:
        processes.kill(self._process)

    def close(self) -> None:
        """Close the input of the process, which ends it, and wait for its end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._stack.close()
