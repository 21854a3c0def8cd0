"""Programs that hwgen runs and folders that it works in: neither outlives the work, however that ends.

A program gets a process group of its own, which is killed whole when the call that waits for it is left by an
exception, and leaves its own temporary files in a folder of ours. ``watch`` makes the signals that end a program such
exceptions; whatever does not come to an end by them within two seconds is ended all the same.

A process that is killed (SIGKILL) can clean nothing up. So a guardian beside each program ends it when this process is
gone, and a folder is locked for as long as its process lives: the next one removes folders that nobody has locked.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from hwgen.errors import ToolError

try:
    import fcntl
except ImportError:  # not on Windows, where folders of killed processes stay
    fcntl = None

__all__ = [
    "Stopped",
    "call",
    "clean",
    "end",
    "folder",
    "full",
    "held",
    "kill",
    "program",
    "remove_abandoned",
    "watch",
    "workplace",
]

SIGNALS = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
PATIENCE = 2.0
"""Seconds that the work has to come to an end after a signal."""

_GUARDIAN = 'read -r group; read -r _; kill -KILL -"$group"'
"""Script that reads a group of processes, waits until nobody can write to it any more, and ends the group."""

_DIGITS = 24
"""Hexadecimal digits in the name of a folder. Versions that locked no folders had 16."""
_programs: dict[subprocess.Popen[Any], int] = {}
"""Those that run, and the thread that waits for each."""
_folders: set[Path] = set()


class Stopped(BaseException):
    """A signal asked hwgen to end; ``status`` is the exit status that says so."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        return 128 + self.number

    def __str__(self) -> str:
        return "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"


# Programs


@contextmanager
def program(command: Sequence[str], place: str | Path, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that runs in the folder ``place``, with its own temporary files there; no longer than the block.

    ``options`` are those of ``subprocess.Popen``; it gets no input unless they say so.
    """
    options = {"stdin": subprocess.DEVNULL, "cwd": place, **options}
    environment = {**(options.pop("env", None) or os.environ), "TMPDIR": str(place)}
    group = {"process_group": 0} if os.name == "posix" else {}
    with _guardian() as guard:  # before the program, which is never without one
        process = subprocess.Popen(command, env=environment, **group, **options)
        _programs[process] = threading.get_ident()
        try:
            with process:
                try:
                    guard(process)
                    yield process
                except BaseException:
                    if process in _programs:  # not in a child that was forked since
                        kill(process)
                    raise
        finally:
            _programs.pop(process, None)


@contextmanager
def _guardian() -> Iterator[Callable[[subprocess.Popen[Any]], None]]:
    """Start a shell that ends a program when this process is gone, even if it was killed.

    Yields the function that tells the shell the program.
    """
    if os.name != "posix":
        yield lambda process: None
        return
    command = ["/bin/sh", "-c", _GUARDIAN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0, bufsize=0) as guardian:
        pipe = guardian.stdin
        assert pipe is not None
        try:
            yield lambda process: _tell(pipe, process)
        finally:
            guardian.kill()


def _tell(pipe: IO[bytes], process: subprocess.Popen[Any]) -> None:
    """Write the number of a process's group into a pipe; a reader that is gone guards nothing."""
    with suppress(BrokenPipeError):
        pipe.write(f"{process.pid}\n".encode())


def call(
    command: Sequence[str], place: str | Path, *, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it said, and its exit status.

    Raises
    ------
    subprocess.TimeoutExpired
        If it takes longer than ``timeout`` seconds; it is ended then.
    """
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with program(command, place, **pipes, **options) as process:
        out, complaint = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, out, complaint)


def kill(process: subprocess.Popen[Any]) -> None:
    """End a program and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def end(thread: int | None = None) -> None:
    """End all programs that run now, or those that one thread waits for; whoever waits for one goes on."""
    for process, waiting in list(_programs.items()):
        if thread in (None, waiting):
            kill(process)


def _end_others() -> None:
    """End the children that libraries started (Amaranth's Yosys, Dask's workers), where the system lists them.

    Among them may be a program of which nobody knows yet, as the signal came while it was started. It is ended with all
    that it has started itself. One child is left: multiprocessing's tracker of what its processes share ends by itself
    with this process, and would be started anew.
    """
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    spared = getattr(tracker, "_pid", None)
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if child != spared:
                    _kill_whole(child)


def _kill_whole(child: int) -> None:
    """End a child, and the group of processes that it leads, if it does."""
    with suppress(ProcessLookupError, PermissionError):
        (os.killpg if os.getpgid(child) == child else os.kill)(child, signal.SIGKILL)


# Folders


@contextmanager
def folder(prefix: str = "hwgen-", dir: str | Path | None = None) -> Iterator[Path]:
    """A folder for the block; a temporary one unless ``dir`` says where. It is known before it is there, so that no
    signal can come in between. Folders of this prefix that killed processes left in the same place are removed.

    Raises
    ------
    OSError
        If it can't be made.
    """
    parent = Path(dir or tempfile.gettempdir()).absolute()
    remove_abandoned(parent, prefix)
    place = parent / f"{prefix}{random.SystemRandom().getrandbits(4 * _DIGITS):0{_DIGITS}x}"
    _folders.add(place)
    lock = None
    try:
        while not place.exists():  # before it is locked, another process can take it for abandoned
            place.mkdir(mode=0o700)
            lock = _lock(place)
        yield place
    finally:
        if place in _folders:  # not in a child that was forked since
            shutil.rmtree(place, ignore_errors=True)
            _folders.discard(place)
        if lock is not None:
            os.close(lock)


def remove_abandoned(parent: Path, *prefixes: str) -> None:
    """Remove the folders in ``parent`` that `folder` made with one of the prefixes in processes that were killed."""
    names = re.compile(f"({'|'.join(map(re.escape, prefixes))})[0-9a-f]{{{_DIGITS}}}")
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if names.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                place = parent / entry.name
                lock = _lock(place, wait=False)
                if lock is not None:
                    with suppress(FileNotFoundError):
                        if os.path.samestat(os.fstat(lock), place.stat()):  # not one that was made anew since
                            shutil.rmtree(place, ignore_errors=True)
                    os.close(lock)


def _lock(place: Path, *, wait: bool = True) -> int | None:
    """Lock a folder until this process ends or closes the descriptor that is returned.

    ``None``: it can't be locked, because it is gone, its file system has no locks, another process has locked it (not
    with ``wait``), or it is another user's.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
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
    """A folder in which programs work for the block. Where it can't be written, that is what is said of any failure.

    Raises
    ------
    ToolError
        If the folder can't be made or is full; ``remedy`` says what helps.
    """
    where = f"{'temporary ' * (dir is None)}folder {dir or tempfile.gettempdir()}"
    try:
        with folder(prefix=".build-" if dir else "hwgen-", dir=dir) as place:
            try:
                yield place
            except Exception as error:
                # A program may take away what it wrote before it ends; then its own words are all there is.
                said = os.strerror(errno.ENOSPC)
                if reason := full(place) or (said if said in str(error) else None):
                    raise ToolError(f"the {where} can't be written: {reason}; {remedy}") from error
                raise
    except OSError as error:
        raise ToolError(f"the {where} can't be written: {error.strerror or error}; {remedy}") from error


def full(place: str | Path) -> str | None:
    """Why nothing more can be written in a folder, ``None`` if it can: programs that fail there may not say it."""
    probe = Path(place) / f".hwgen-{random.SystemRandom().getrandbits(64):016x}"
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
    """Let SIGINT, SIGTERM and SIGHUP raise ``Stopped`` in the block, and end the process if that does not help.

    Those that are ignored (as under nohup) stay so. When the block is left by ``Stopped``, all programs have ended and
    all folders are gone. Only in the main thread; elsewhere signals stay what they are.
    """
    global _watched
    if threading.current_thread() is not threading.main_thread() or _watched is not None:
        yield
        return
    _watched = this = _Watch()
    try:
        yield
        if this.number is not None:  # it got lost where exceptions are ignored
            raise Stopped(this.number)
    except BaseException as error:
        if this.number is None:
            raise
        clean()
        raise Stopped(this.number) from error
    finally:
        if _watched is this:  # not in a child that was forked since
            this.close()
            _watched = None


@contextmanager
def held() -> Iterator[None]:
    """Let no signal come between the steps of the block: it is raised behind it."""
    this = _watched
    if this is None:
        yield
        return
    this.holds += 1
    try:
        yield
    finally:
        this.holds -= 1
    if this.number is not None and not this.holds:
        raise Stopped(this.number)


def clean() -> None:
    """End all programs, and remove all folders."""
    end()
    _end_others()
    for place in list(_folders):
        shutil.rmtree(place, ignore_errors=True)


def _leave_to_parent() -> None:
    """Forget programs, folders and signals in a forked child: they are its parent's, who ends and removes them."""
    global _watched
    _programs.clear()
    _folders.clear()
    if _watched is not None:
        _watched.restore()
        _watched = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class _Watch:
    """Handlers of the signals, and a thread that is told of them even while the main thread is in a library's code."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.holds = 0
        self._closed = threading.Event()
        self._end, wake = os.pipe()
        os.set_blocking(wake, False)
        self._wake = wake
        self._before = {
            number: signal.signal(number, self._handle)
            for number in SIGNALS
            if signal.getsignal(number) not in (signal.SIG_IGN, None)
        }
        self._wake_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        threading.Thread(target=self._insist, name="signals", daemon=True).start()

    def _handle(self, number: int, frame: object) -> None:
        if self.number is None:  # one is enough: the next must not disturb the cleaning up
            self.number = number
            if not self.holds:
                raise Stopped(number)

    def _insist(self) -> None:
        while (told := os.read(self._end, 1)) not in (b"", b"\0"):
            if (number := told[0]) in self._before:
                if not self._closed.wait(PATIENCE):
                    clean()
                    with suppress(OSError):
                        print(f"hwgen: {Stopped(number)}", file=sys.stderr, flush=True)
                    os._exit(Stopped(number).status)
                break
        os.close(self._end)

    def restore(self) -> None:
        """Give the signals back to the handlers that they had before."""
        signal.set_wakeup_fd(self._wake_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def close(self) -> None:
        self._closed.set()
        self.restore()
        with suppress(OSError):
            os.write(self._wake, b"\0")
        os.close(self._wake)
