"""Tasks side by side: results in order, errors as they are, lost workers, and a Dask cluster on the loopback."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hwgen import processes, progress, work
from hwgen.errors import InputError, ObstaclesError, PlanError, ToolError
from hwgen.work import steps

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="distributed is missing: pip install 'hwgen[cluster]'"
)

#: Of a Dask cluster: no page of its own, and what else it says by HTTP is at no port that another may have.
NO_PAGE = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}, "silence_logs": 50}

needs_proc = pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="processes are looked for in /proc")


def power(base, exponent):
    return base**exponent


def refuse_odd(number):
    if number % 2:
        raise ObstaclesError(f"number {number}", ["it is odd"])
    return number


def fault(number):
    return [][number]


def killed_once(folder, number):
    """End the worker the first time that this number comes; the second time it goes well."""
    mark = Path(folder) / str(number)
    if number % 3 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number, os.getpid()


def killed(number):
    os.kill(os.getpid(), signal.SIGKILL)


def prints(number):
    print("this is no answer")
    os.write(1, b"nor is this\n")
    return number


def sleeps(folder, number):
    with processes.folder():
        processes.call(["sleep", "300"], folder)


def sleepers(folder):
    """Processes that sleep in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (place / "cmdline").read_bytes() == b"sleep\x00300\x00" and Path(os.readlink(place / "cwd")) == folder:
                found.append(place.name)
    return found


def gone(folder, seconds=15):
    """Whether nothing sleeps in a folder, or soon nothing does."""
    end = time.monotonic() + seconds
    while sleepers(folder) and time.monotonic() < end:
        time.sleep(0.05)
    return not sleepers(folder)


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def pool():
    with work.pool(count=2) as found:
        yield found


def test_results_come_in_the_order_of_their_tasks(pool):
    assert isinstance(pool, Executor)
    assert pool.count == 2
    assert work.run(pool, power, list(range(20)), shared=(3,)) == [3**n for n in range(20)]
    assert work.run(pool, power, []) == []


def test_a_pool_is_an_executor(pool):
    futures = [pool.submit(power, 2, exponent=n) for n in range(5)]
    assert sorted(future.result() for future in as_completed(futures)) == [1, 2, 4, 8, 16]
    assert list(pool.map(power, [2, 3], [3, 2])) == [8, 9]


def test_what_is_shared_is_sent_once(pool):
    """A million bytes each time would be a billion in all."""
    begin = time.monotonic()
    assert work.run(pool, length, list(range(1000)), shared=(bytes(1_000_000),)) == [1_000_000] * 1000
    assert time.monotonic() - begin < 20


def length(data, number):
    return len(data)


class OneByOne(work.TaskPool):
    """A pool whose tasks end in order, each when what the one before returned has been taken."""

    count, local = 1, True

    def __init__(self):
        self.futures = []

    def share(self, value):
        return value

    def submit(self, fn, /, *args, **kwargs):
        self.futures.append(Future())
        return self.futures[-1]

    def end(self, number):
        self.futures[number].set_result(number)

    def stop(self):
        pass


def test_many_tasks_are_not_all_looked_at_for_each_that_ends():
    """That would be 64 million looks, and took 14 s."""
    pool, count = OneByOne(), 8_000
    steps = []

    def next_one(number, result):
        steps.append(number)
        if number + 1 < count:
            pool.end(number + 1)

    class First(list):
        """Tasks; the first of them ends when the last is known."""

        def __getitem__(self, number):
            if number == count - 1:
                pool.end(0)
            return super().__getitem__(number)

    begin = time.process_time()
    assert work.run(pool, power, First(range(count)), done=next_one) == list(range(count))
    assert time.process_time() - begin < 4
    assert steps == list(range(count))


def test_errors_of_tasks_are_raised_as_they_are(pool):
    with pytest.raises(ObstaclesError, match=r"^number [13]\n  it is odd$") as raised:
        work.run(pool, refuse_odd, [0, 1, 2, 3])
    assert raised.value.lines in [(f"number {n}", "it is odd") for n in (1, 3)]


def test_a_fault_says_where_it_was():
    with work.pool(count=1) as pool, pytest.raises(IndexError) as raised:
        work.run(pool, fault, [0])
    assert any("return [][number]" in note for note in raised.value.__notes__)


def test_what_a_task_prints_is_no_answer(pool):
    assert work.run(pool, prints, [1, 2, 3]) == [1, 2, 3]


def test_a_lost_process_costs_no_result(pool, tmp_path):
    found = work.run(pool, killed_once, list(range(10)), shared=(str(tmp_path),))
    assert [number for number, _ in found] == list(range(10))
    assert len(list(tmp_path.iterdir())) == 4
    assert len({process for _, process in found}) >= 2


def test_a_task_that_ends_every_worker_is_given_up(pool):
    with pytest.raises(
        ToolError, match=r"^a task was lost 3 times with its worker: its process ended with signal 9, as when"
    ):
        work.run(pool, killed, [0])


@needs_proc
def test_nothing_outlives_the_pool(tmp_path):
    """Neither programs of its workers nor their folders, when the work is left by an exception."""

    def interrupt(step):
        raise KeyboardInterrupt

    def leave():
        with work.pool(count=2) as pool:
            for number in range(2):
                pool.submit(sleeps, str(tmp_path), number)
            wait_for(lambda: len(sleepers(tmp_path)) == 2)
            with progress.told(interrupt):
                work.run(pool, power, [1], shared=(1,), what="powers")

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert gone(tmp_path)


def test_programs_run_in_threads():
    """They are processes already."""
    seen = []
    with work.pool(count=2, programs=True) as pool:
        found = work.run(pool, lambda number: seen.append(number) or os.getpid(), [1, 2, 3])
    assert found == [os.getpid()] * 3
    assert sorted(seen) == [1, 2, 3]


def test_steps_are_told(pool):
    steps = []
    with progress.told(steps.append):
        work.run(pool, power, [1, 2, 3], shared=(2,), what="powers", unit="number")
    assert [str(step) for step in steps] == [
        f"powers: {done} of 3 numbers ({percent}%)" for done, percent in ((0, 0), (1, 33), (2, 67), (3, 100))
    ]


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_counts_that_make_no_sense(count):
    message = rf"^tasks at a time must be a positive integer, not {count!r}$"
    with pytest.raises(InputError, match=message), work.pool(count=count):
        pass


@pytest.mark.parametrize("address", ["", "host", "local", "tcp://:8786", "tcp://a b:1", "host:port", "ucx://host:1"])
def test_addresses_that_are_none(address):
    message = "^cluster must be the address of a Dask scheduler, as in tcp://host:8786, not "
    with pytest.raises(InputError, match=message), work.pool(address):
        pass


@pytest.mark.parametrize("count", ["0", "-1", "x", "257", "", "1.5"])
def test_local_clusters_that_make_no_sense(count):
    with (
        pytest.raises(InputError, match=rf"^cluster local:N must have 1 to 256 workers, not '{count}'$"),
        work.pool(f"local:{count}"),
    ):
        pass


def test_without_dask_its_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(ToolError, match=r"^--cluster needs Dask, which is not installed: .* -m pip install "),
        work.pool("local:2"),
    ):
        pass


@pytest.fixture(scope="module")
def cluster():
    """The address of a scheduler with two workers of one thread each, as 'dask scheduler' and 'dask worker' start."""
    pytest.importorskip("distributed", reason="distributed is missing: pip install 'hwgen[cluster]'")
    import distributed

    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    options = {"n_workers": 2, "threads_per_worker": 1, "env": {"PYTHONPATH": path}, **NO_PAGE}
    with distributed.LocalCluster(**options) as found:
        yield found.scheduler_address


@pytest.mark.long
@needs_dask
def test_a_cluster_does_the_same(cluster, tmp_path):
    with work.pool(cluster) as pool:
        assert (pool.count, pool.local) == (2, False)
        assert work.run(pool, power, list(range(20)), shared=(3,)) == [3**n for n in range(20)]
        with pytest.raises(ObstaclesError, match=r"^number [13]\n  it is odd$"):
            work.run(pool, refuse_odd, [0, 1, 2, 3])
    with work.pool(cluster) as pool, pytest.raises(PlanError, match=r"^no$"):
        work.run(pool, raises_plan_error, [0])


def raises_plan_error(number):
    raise PlanError("no")


@pytest.mark.long
@needs_dask
def test_a_killed_worker_of_a_cluster_costs_no_result(cluster, tmp_path):
    with work.pool(cluster) as pool:
        found = work.run(pool, killed_once, list(range(7)), shared=(str(tmp_path),))
    assert [number for number, _ in found] == list(range(7))
    assert {path.name for path in tmp_path.iterdir()} == {"0", "3", "6"}


@needs_dask
@pytest.mark.long
def test_a_cluster_gives_up_what_ends_every_worker(cluster):
    with work.pool(cluster) as pool, pytest.raises(ToolError, match=r"^the cluster gave up a task: each worker that"):
        work.run(pool, killed, [0])


@needs_dask
@needs_proc
def test_what_is_no_longer_wanted_ends_on_the_cluster(cluster, tmp_path):
    """Programs that its workers wait for, when the client goes."""

    def leave():
        with work.pool(cluster) as pool:
            pool.submit(sleeps, str(tmp_path), 0)
            wait_for(lambda: sleepers(tmp_path))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert gone(tmp_path)


@needs_dask
def test_a_cluster_that_loses_all_workers(monkeypatch):
    """Dask would wait for others without an end."""
    import distributed

    monkeypatch.setattr("hwgen.work.cluster.ALONE", 0.4)
    with (
        distributed.LocalCluster(n_workers=1, processes=False, protocol="tcp", **NO_PAGE) as found,
        work.pool(found.scheduler_address) as pool,
    ):
        assert work.run(pool, power, [2], shared=(3,)) == [9]
        found.scale(0)
        wait_for(lambda: not found.scheduler.workers)
        with pytest.raises(ToolError, match=r"^the cluster lost all its workers, 0.4 seconds ago$"):
            work.run(pool, power, [2], shared=(3,))


@needs_dask
def test_nothing_answers():
    with pytest.raises(ToolError, match=r"^no cluster answers at tcp://127.0.0.1:9: "), work.pool("tcp://127.0.0.1:9"):
        pass


def frames_of(*frames: bytes) -> bytes:
    """Return a message as Dask frames it: its length, the number of frames and their lengths, the frames."""
    body = struct.pack(f"={len(frames) + 1}Q", len(frames), *map(len, frames)) + b"".join(frames)
    return struct.pack("=Q", len(body)) + body


NO_SCHEDULERS = {
    "silence, as of an HTTP or TLS server": b"",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "one byte": b"\x10",
    "no frames": frames_of(),
    "a length of nothing": bytes(8),
    "a frame that is no message": frames_of(b"\xc1" * 16),
    "a message that is no handshake": frames_of(b"\x93\x01\x02\x03"),
    "many frames": struct.pack("=QQ", 8, 1 << 60),
    "a long frame": struct.pack("=QQQ", 16, 1, 1 << 60),
    "a handshake and nothing more": frames_of(b"\x81\xabcompression\xc0"),
    "mail": b"220 mail ESMTP\r\n" * 100,
}


@needs_dask
@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("said", NO_SCHEDULERS.values(), ids=NO_SCHEDULERS)
def test_what_is_no_scheduler(monkeypatch, capfd, said, closes):
    """Whatever it says first, and whether or not it goes away then: one line, in time."""
    monkeypatch.setattr("hwgen.work.cluster.PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(said)
            if closes:
                connection.close()
            else:
                kept.append(connection)

        kept: list[socket.socket] = []
        thread = threading.Thread(target=answer)
        thread.start()
        begin = time.monotonic()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ToolError) as refusal, work.pool(address):
            pass
        assert time.monotonic() - begin < 15
        assert str(refusal.value) == (
            f"no cluster answers at {address}: it is not a Dask scheduler; start one with 'dask scheduler'"
        )
        thread.join()
        for connection in kept:
            connection.close()
    assert capfd.readouterr().err == ""


@needs_dask
def test_a_worker_is_no_scheduler():
    """It speaks as a scheduler does, and says what it is."""
    import distributed

    from hwgen.work import cluster as module

    with distributed.LocalCluster(n_workers=1, processes=False, protocol="tcp", **NO_PAGE) as found:
        module._check_speaks(found.scheduler_address)
        (worker,) = found.workers.values()
        with pytest.raises(OSError, match=r"^what listens there is Dask's Worker, not its scheduler$"):
            module._check_speaks(worker.address)


@needs_dask
def test_what_the_loop_of_dask_logs_is_not_shown(caplog):
    """A scheduler that ends makes tornado's loop log a traceback; what other threads log is shown."""
    import distributed

    from hwgen.work import cluster as module

    def complain() -> None:
        logging.getLogger("tornado.application").error("from %s", threading.current_thread().name)

    with module._silence_client():
        for name in ("IO loop", "mine"):
            thread = threading.Thread(target=complain, name=name)
            thread.start()
            thread.join()
    assert [record.getMessage() for record in caplog.records] == ["from mine"]
    with distributed.LocalCluster(n_workers=1, processes=False, protocol="tcp", **NO_PAGE) as found:
        client = distributed.Client(found.scheduler_address, set_as_default=False)
        assert module._LOOP_THREAD in {thread.name for thread in threading.enumerate()}
        client.close()


@needs_dask
@pytest.mark.long
def test_a_scheduler_that_ends(tmp_path):
    """The command ends with one line, and soon; nothing is written."""
    run = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(run), "HWGEN_CACHE": str(tmp_path / "cache")}
    quiet = {"env": environment, "cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    found = tmp_path / "scheduler.json"
    python = [sys.executable, "-m"]
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(found)]
    with processes.program([*python, "distributed.cli.dask_scheduler", *options], tmp_path, **quiet) as scheduler:
        wait_for(found.exists)
        address = json.loads(found.read_text())["address"]
        sizes = ["--nworkers", "1", "--nthreads", "1", "--no-dashboard"]
        worker = [*python, "distributed.cli.dask_worker", address, *sizes]
        with processes.program(worker, tmp_path, **quiet) as worker:
            # The network is planned in a while; of the second plan the scheduler hears no more.
            sweep = ["sweep", "resnet8", "--board", "vc709", "--dsp", "100:2000:50", "--cluster", address]
            command = [*python, "hwgen.cli", *sweep]
            with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as client:
                wait_for(lambda: list((tmp_path / "cache").rglob("plans/*")), 120)
                scheduler.kill()
                _, said = client.communicate(timeout=60)
            processes.kill(worker)
    assert client.returncode == 2
    assert [line for line in said.splitlines() if not line.startswith("sweep: ")] == [
        f"hwgen: the scheduler at {address} ended or restarted and lost all tasks: start it and run this again"
    ]
    assert not list(tmp_path.glob("*.csv"))


def test_a_worker_with_another_hwgen_is_refused():
    from hwgen.work import cluster as module

    class Elsewhere:
        def run(self, function, on_error):
            return {"tcp://other:1": "other sources", "tcp://third:1": ModuleNotFoundError("No module named 'hwgen'")}

    with pytest.raises(ToolError, match=r"^worker tcp://other:1 has another hwgen than this machine: install the same"):
        module._check(Elsewhere())


@needs_proc
@pytest.mark.parametrize("meanwhile", ["", "processes._Program = lambda *_: time.sleep(300);"], ids=["runs", "starts"])
def test_a_guarded_program_ends_with_its_process(tmp_path, meanwhile):
    """The process is killed, and can't clean up: while the program runs, or before hwgen knows that it started."""
    call = f"processes.call(['sleep', '300'], {str(tmp_path)!r})"
    script = f"import time; from hwgen import processes; {meanwhile} {call}"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_for(lambda: sleepers(tmp_path))
        process.kill()
    assert gone(tmp_path)


# Searches whose steps may go side by side


def place_of(number):
    """Of a step: itself, and the process that it ran in."""
    return number, os.getpid()


def places(found):
    return {process for _, process in found}


def test_steps_run_here_where_nobody_says_otherwise(monkeypatch):
    monkeypatch.setattr(steps, "ALONE", 0.0)
    assert work.spread(power, [1, 2, 3], shared=(2,)) == [2, 4, 8]
    assert places(work.spread(place_of, list(range(5)))) == {os.getpid()}
    with work.beside(count=1):
        assert places(work.spread(place_of, list(range(5)))) == {os.getpid()}


def test_short_searches_begin_no_processes(monkeypatch):
    monkeypatch.setattr(steps, "pool", None)
    with work.beside(count=2):
        assert places(work.spread(place_of, list(range(100)))) == {os.getpid()}


def test_long_searches_go_on_side_by_side(monkeypatch):
    """In the same processes as the search before; a single step is not worth it."""
    monkeypatch.setattr(steps, "ALONE", 0.0)
    told = []
    with progress.told(told.append), work.beside(count=2):
        found = work.spread(place_of, list(range(20)), what="searching", unit="layer")
        again = work.spread(place_of, list(range(20)))
        single = work.spread(place_of, [7])
    assert [number for number, _ in found] == [number for number, _ in again] == list(range(20))
    assert os.getpid() not in places(found)
    assert places(again) <= places(found)
    assert single == [(7, os.getpid())]
    assert [(step.what, step.done, step.total) for step in told] == [("searching", n, 20) for n in range(21)]


class Clock:
    """Time that passes in the steps that this process does."""

    now = 0.0

    @classmethod
    def monotonic(cls):
        return cls.now


def takes(seconds):
    Clock.now += seconds
    return os.getpid()


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(steps, "time", Clock)
    monkeypatch.setattr(steps, "ALONE", 4.0)


def test_the_first_steps_are_done_here(clock):
    told, here = [], os.getpid()
    with progress.told(told.append), work.beside(count=2):
        found = work.spread(takes, [1] * 12, what="searching", unit="layer")
    assert found[:4] == [here] * 4
    assert here not in found[4:]
    assert [step.done for step in told] == [0, 1, 2, 3, *range(4, 13)]


def test_the_outermost_says_where(monkeypatch):
    monkeypatch.setattr(steps, "ALONE", 0.0)
    with work.beside(count=1), work.beside(count=2):
        assert places(work.spread(place_of, list(range(5)))) == {os.getpid()}


def test_a_search_may_begin_anew_after_an_error(monkeypatch):
    monkeypatch.setattr(steps, "ALONE", 0.0)
    with work.beside(count=2):
        with pytest.raises(IndexError):
            work.spread(fault, [1, 2, 3])
        with pytest.raises(ObstaclesError, match="it is odd"):
            work.spread(refuse_odd, [2, 3, 4])
        assert os.getpid() not in places(work.spread(place_of, [1, 2, 3]))


def test_a_step_whose_process_is_lost_is_done_again(monkeypatch, tmp_path):
    monkeypatch.setattr(steps, "ALONE", 0.0)
    with work.beside(count=2):
        found = work.spread(killed_once, list(range(7)), shared=(str(tmp_path),))
    assert [number for number, _ in found] == list(range(7))


def test_what_searches_spend_here_adds_up(clock):
    with work.beside(count=2):
        first, second = (work.spread(takes, [1] * count) for count in (3, 9))
    assert first == [os.getpid()] * 3
    assert second.count(os.getpid()) == second[:1].count(os.getpid()) == 1


def test_processes_end_with_the_block(monkeypatch):
    monkeypatch.setattr(steps, "ALONE", 0.0)
    with work.beside(count=2):
        found = places(work.spread(place_of, list(range(9))))
        for process in found:
            os.kill(process, 0)
    for process in found:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@contextmanager
def that_ends(cluster, count):
    """A pool that says in its own words what an error of another kind means, as a cluster does."""
    try:
        with work.pool(cluster, count) as found:
            yield found
    except IndexError as error:
        raise ToolError("the scheduler ended") from error


@pytest.mark.parametrize("inside", [True, False])
def test_a_pool_says_what_an_error_means(monkeypatch, inside):
    """One of a step, and one of the block behind it."""
    monkeypatch.setattr(steps, "ALONE", 0.0)
    monkeypatch.setattr(steps, "pool", that_ends)
    with pytest.raises(ToolError, match="the scheduler ended"):
        search_that_fails(inside)


def search_that_fails(inside):
    with work.beside(count=2):
        work.spread(fault if inside else place_of, [1, 2, 3])
        fault(3)


@pytest.mark.parametrize(
    ("cluster", "count", "what"),
    [
        (None, 0, "jobs must be a positive integer, not 0"),
        ("here", None, "cluster must be the address"),
        ("local:2", 2, "jobs applies to this machine only, not to a cluster"),
    ],
)
def test_places_that_are_none_are_refused_at_once(cluster, count, what):
    with pytest.raises(InputError, match=what), work.beside(cluster, count):
        raise AssertionError
