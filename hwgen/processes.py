"""External programs and temporary folders of hwgen, which are always ended and removed with the work that uses them.

Each program has its own process group and writes its temporary files into a folder of hwgen. If an exception leaves the
call that waits for a program, hwgen kills the whole group. `watch` turns SIGINT, SIGTERM and SIGHUP into such
exceptions. If the work does not end within two seconds after a signal, hwgen exits anyway.

A process killed by SIGKILL can't clean anything up. Therefore each program has a guardian process, which ends the
program when hwgen is gone. Each folder is locked as long as its process lives, and the next process removes all
unlocked folders.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from hwgen.errors import ToolError

try:
    import fcntl
except ImportError:  # not on Windows, where folders of killed processes remain
    fcntl = None

SIGNALS = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
PATIENCE = 2.0
"""Seconds after a signal within which the work must end; then hwgen kills its programs and exits."""

_GUARDIAN = "read -r _; kill -KILL 0"
"""Shell script that waits until its input is closed, and kills its own process group."""

_DIGITS = 24
"""Number of hexadecimal digits at the end of a temporary folder's name; versions of hwgen without locks used 16."""
_programs: dict[subprocess.Popen[Any], _Program] = {}
"""Dictionary of running external programs, by process: the waiting thread and the process group of each
(`_Program`)."""
_folders: set[Path] = set()


class _Program(NamedTuple):
    """Description of a running external program: id of the thread that waits for it, and its process group."""

    thread: int
    group: int | None


class Stopped(BaseException):
    """Exception raised in the main thread's work by a signal to end hwgen (SIGINT, SIGTERM, SIGHUP)."""

    def __init__(self, signal_number: int):
        super().__init__(signal_number)
        self.signal_number = signal_number

    @property
    def status(self) -> int:
        """Exit status (integer) of a command that the signal ends: 128 plus the signal's number."""
        return 128 + self.signal_number

    def __str__(self) -> str:
        return (
            "interrupted"
            if self.signal_number == signal.SIGINT
            else f"ended by {signal.Signals(self.signal_number).name}"
        )


# Programs


@contextmanager
def program(command: Sequence[str], directory: str | Path, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Context manager that runs a program in a folder and yields its process, killed if the block raises.

    The program writes its temporary files into the same folder. ``options`` are options of ``subprocess.Popen``. By
    default the program has no input.
    """
    options = {"stdin": subprocess.DEVNULL, "cwd": directory, **options}
    environment = {**(options.pop("env", None) or os.environ), "TMPDIR": str(directory)}
    with _guardian() as group:  # the guardian starts first, so that the program always has one
        process = subprocess.Popen(command, env=environment, process_group=group, **options)
        _programs[process] = _Program(threading.get_ident(), group)
        try:
            with process:
                try:
                    yield process
                except BaseException:
                    kill(process)
                    raise
        finally:
            _programs.pop(process, None)


@contextmanager
def _guardian() -> Iterator[int | None]:
    """Context manager that starts a shell which kills its process group when this process is gone.

    Yields the guardian's process group, which the guarded program joins when it starts. On systems without process
    groups, it yields None.
    """
    if os.name != "posix":
        yield None
        return
    command = ["/bin/sh", "-c", _GUARDIAN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0) as guardian:
        try:
            yield guardian.pid
        finally:
            guardian.kill()


def call(
    command: Sequence[str], directory: str | Path, *, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Return a program's completed process: standard output, error output and exit status.

    Raises
    ------
    subprocess.TimeoutExpired
        If the program takes longer than ``timeout`` seconds; it is then killed.
    """
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with program(command, directory, **pipes, **options) as process:
        out, complaint = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, out, complaint)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a program that `program` runs, its guardian, and all processes in their process group."""
    running = _programs.get(process)
    if running is None:  # it ended, and its guardian with it; or this process was forked since
        return
    with suppress(ProcessLookupError, PermissionError):
        if running.group is None:
            process.kill()
        else:
            os.killpg(running.group, signal.SIGKILL)


def end(thread: int | None = None) -> None:
    """Kill all running programs, or only those that the thread with id ``thread`` waits for."""
    for process, running in list(_programs.items()):
        if thread in (None, running.thread):
            kill(process)


def _end_others() -> None:
    """Kill the child processes that libraries started, such as Amaranth's Yosys and Dask's workers.

    The children are those that Linux lists in ``/proc``; on other systems nothing happens. A child can also be a
    program that is not registered yet, because the signal arrived during its start. A child that leads a process group
    is killed with its group. One child is spared: multiprocessing's resource tracker ends by itself with this process,
    and would be started again.
    """
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    spared = getattr(tracker, "_pid", None)
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if child != spared:
                    _kill_whole(child)


def _kill_whole(child: int) -> None:
    """Kill a child process and, if it leads a process group, the whole group."""
    with suppress(ProcessLookupError, PermissionError):
        (os.killpg if os.getpgid(child) == child else os.kill)(child, signal.SIGKILL)


# Folders


@contextmanager
def folder(prefix: str = "hwgen-", dir: str | Path | None = None) -> Iterator[Path]:
    """Context manager that creates a folder, in ``dir`` or among temporary files, and removes it afterwards.

    The folder is registered before it is created, so that no signal can arrive in between. Folders with this prefix
    that killed processes left in the same directory are removed first.

    Raises
    ------
    OSError
        If the folder can't be created.
    """
    parent = Path(dir or tempfile.gettempdir()).absolute()
    remove_abandoned(parent, prefix)
    directory = parent / f"{prefix}{random.SystemRandom().getrandbits(4 * _DIGITS):0{_DIGITS}x}"
    _folders.add(directory)
    lock = None
    try:
        while not directory.exists():  # another process can remove the folder until it is locked
            directory.mkdir(mode=0o700)
            lock = _lock(directory)
        yield directory
    finally:
        if directory in _folders:  # not in a child that was forked since
            shutil.rmtree(directory, ignore_errors=True)
            _folders.discard(directory)
        if lock is not None:
            os.close(lock)


def remove_abandoned(parent: Path, *prefixes: str) -> None:
    """Remove folders in ``parent`` with one of the prefixes that `folder` made in processes that were killed."""
    names = re.compile(f"({'|'.join(map(re.escape, prefixes))})[0-9a-f]{{{_DIGITS}}}")
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if names.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                directory = parent / entry.name
                lock = _lock(directory, wait=False)
                if lock is not None:
                    with suppress(FileNotFoundError):
                        if os.path.samestat(
                            os.fstat(lock), directory.stat()
                        ):  # not a folder that was created again since
                            shutil.rmtree(directory, ignore_errors=True)
                    os.close(lock)


def _lock(directory: Path, *, wait: bool = True) -> int | None:
    """Lock a folder, and return the file descriptor that holds the lock; ``None`` if the folder can't be locked.

    The lock ends when the descriptor is closed or this process ends. A folder can't be locked if it is gone, belongs to
    another user, its file system has no locks, or, without ``wait``, another process holds the lock.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


@contextmanager
def workplace(dir: str | Path | None = None, remedy: str = "set TMPDIR to a folder with room") -> Iterator[Path]:
    """Context manager that yields a temporary folder for programs; errors name a full disk as their cause.

    If an error occurs in the block while the folder can't be written, the message names this reason.

    Raises
    ------
    ToolError
        If the folder can't be created or is full. The message ends with ``remedy``.
    """
    where = f"{'temporary ' * (dir is None)}folder {dir or tempfile.gettempdir()}"
    try:
        with folder(prefix=".build-" if dir else "hwgen-", dir=dir) as directory:
            try:
                yield directory
            except Exception as error:
                # A program can delete its files before it ends; then only its own message contains the reason.
                no_space = os.strerror(errno.ENOSPC)
                if cause := full(directory) or (no_space if no_space in str(error) else None):
                    raise ToolError(f"the {where} can't be written: {cause}; {remedy}") from error
                raise
    except OSError as error:
        raise ToolError(f"the {where} can't be written: {error.strerror or error}; {remedy}") from error


def full(directory: str | Path) -> str | None:
    """Return why a folder has no room (disk full, quota), found by writing a test file; ``None`` if it has room.

    Programs that fail for this reason often do not report it.
    """
    probe = Path(directory) / f".hwgen-{random.SystemRandom().getrandbits(64):016x}"
    try:
        probe.write_bytes(bytes(4096))
    except OSError as error:
        return error.strerror if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
    finally:
        with suppress(OSError):
            probe.unlink()
    return None


# Signals

_watched: _Watch | None = None


@contextmanager
def watch() -> Iterator[None]:
    """Context manager: SIGINT, SIGTERM or SIGHUP raise `Stopped` in its block, or exit after `PATIENCE`.

    Ignored signals (as under nohup) stay ignored. When `Stopped` leaves the block, all programs have ended and all
    folders are removed. Outside the main thread the block changes nothing.
    """
    global _watched
    if threading.current_thread() is not threading.main_thread() or _watched is not None:
        yield
        return
    _watched = this = _Watch()
    try:
        yield
        if this.signal_number is not None:  # the exception was lost in code that ignores exceptions
            raise Stopped(this.signal_number)
    except BaseException as error:
        if this.signal_number is None:
            raise
        clean()
        raise Stopped(this.signal_number) from error
    finally:
        if _watched is this:  # not in a child that was forked since
            this.close()
            _watched = None


@contextmanager
def held() -> Iterator[None]:
    """Context manager that delays the exception `watch` raises for a signal until its block ends."""
    this = _watched
    if this is None:
        yield
        return
    this.holds += 1
    try:
        yield
    finally:
        this.holds -= 1
    if this.signal_number is not None and not this.holds:
        raise Stopped(this.signal_number)


def clean() -> None:
    """Kill all programs and child processes of this process, and remove all its temporary folders."""
    end()
    _end_others()
    for directory in list(_folders):
        shutil.rmtree(directory, ignore_errors=True)


def _leave_to_parent() -> None:
    """Forget programs, folders and signal handlers in a forked child, because its parent cleans them up."""
    global _watched
    _programs.clear()
    _folders.clear()
    if _watched is not None:
        _watched.restore()
        _watched = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class _Watch:
    """Signal handlers of `watch`, with a thread that ends the process if the main thread does not end in time."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self.holds = 0
        self._closed = threading.Event()
        self._end, wake = os.pipe()
        os.set_blocking(wake, False)
        self._wake = wake
        self._before = {
            signal_number: signal.signal(signal_number, self._handle)
            for signal_number in SIGNALS
            if signal.getsignal(signal_number) not in (signal.SIG_IGN, None)
        }
        self._wake_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        threading.Thread(target=self._insist, name="signals", daemon=True).start()

    def _handle(self, signal_number: int, frame: object) -> None:
        if self.signal_number is None:  # one signal is enough; the next must not disturb the clean-up
            self.signal_number = signal_number
            if not self.holds:
                raise Stopped(signal_number)

    def _insist(self) -> None:
        while (received := os.read(self._end, 1)) not in (b"", b"\0"):
            if (signal_number := received[0]) in self._before:
                if not self._closed.wait(PATIENCE):
                    clean()
                    with suppress(OSError):
                        print(f"hwgen: {Stopped(signal_number)}", file=sys.stderr, flush=True)
                    os._exit(Stopped(signal_number).status)
                break
        os.close(self._end)

    def restore(self) -> None:
        """Restore the signal handlers that were set before `watch` replaced them."""
        signal.set_wakeup_fd(self._wake_before)
        for signal_number, handler in self._before.items():
            signal.signal(signal_number, handler)

    def close(self) -> None:
        self._closed.set()
        self.restore()
        with suppress(OSError):
            os.write(self._wake, b"\0")
        os.close(self._wake)
