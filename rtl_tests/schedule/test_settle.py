"""Systems of events by themselves, beside a solution that is found by trying again and again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from hwgen.schedule.compiled import _CompiledLater
from hwgen.schedule.settle import NO_WAIT, VISITS, StuckError, System, Wait

FAR = 10**6


@pytest.fixture(scope="module", params=[False, True], ids=["interpreted", "compiled"])
def is_compiled(request):
    """Whether the loops over events are compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_CompiledLater, "_is_worth_compiling", lambda function, events: request.param)
        yield request.param


both_ways = pytest.mark.usefixtures("is_compiled")


@st.composite
def wait_lists(draw):
    """Two to five sequences, and what they wait for: any others, with any period, often in a circle."""
    names = "abcde"[: draw(st.integers(2, 5))]
    sequences = {name: (draw(st.integers(1, 40)), draw(st.integers(0, 3))) for name in names}
    waits = []
    for _ in range(draw(st.integers(1, 8))):
        target, source = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        period = draw(st.integers(1, 5))
        steps = draw(st.lists(st.integers(0, 3), min_size=period, max_size=period))
        index = np.cumsum(steps) - draw(st.integers(0, 3))
        ahead = int(index[-1] - index[0]) + draw(st.integers(1, 3))
        delay = np.array(draw(st.lists(st.sampled_from([NO_WAIT, 0, 1, 2, 7]), min_size=period, max_size=period)))
        back = draw(st.integers(0, 12))
        if source == target:
            back = int(back + period * ahead + 1)  # never itself or a later one
        every, lead = draw(st.integers(1, 3)), draw(st.integers(0, 4))
        waits.append(Wait(target, source, index, ahead, delay, every=every, lead=lead, back=back, data=target > source))
    return sequences, waits


def pairs(sequences, wait):
    """Each event that waits, the one that it waits for, and the delay."""
    count = sequences[wait.target][0]
    for number in range(0, count, wait.every):
        turn = number // wait.every - wait.lead
        if turn >= 0:
            periods, place = divmod(turn, len(wait.index))
            source = int(wait.index[place]) + periods * wait.ahead - wait.back
            delay = int(np.broadcast_to(wait.delay, len(wait.index))[place])
            if source >= 0:
                yield number, source, delay


def possible(sequences, waits):
    """Only waits for events that there are; in the same sequence for earlier ones."""
    found = []
    for wait in waits:
        limits = (
            (t if wait.target == wait.source else sequences[wait.source][0], s) for t, s, _ in pairs(sequences, wait)
        )
        if all(source < limit for limit, source in limits):
            found.append(wait)
    return found


def least(sequences, waits):
    """The least times; ``None`` if there are none. Rows of (target, event, source, event, delay)."""
    times = {name: [0] * count for name, (count, _) in sequences.items()}
    rows = [(w.target, t, w.source, s, d) for w in waits for t, s, d in pairs(sequences, w)]
    rows += [(name, n, name, n - 1, gap) for name, (count, gap) in sequences.items() for n in range(1, count)]
    # A chain of waits without a circle passes each event once.
    for _ in range(sum(count for count, _ in sequences.values()) + 1):
        moved = False
        for target, event, source, other, delay in rows:
            if times[source][other] + delay > times[target][event]:
                times[target][event], moved = times[source][other] + delay, True
        if not moved:
            return times
    return None


def circular(sequences, waits):
    """Whether events wait for each other in a circle, however little."""
    unit = [replace(wait, delay=np.where(np.asarray(wait.delay) == 0, 1, 1)) for wait in waits]
    return least({name: (count, 1) for name, (count, _) in sequences.items()}, unit) is None


@both_ways
@cases_in_the_long_run(100)
@given(drawn=wait_lists(), data=st.data())
def test_least_solution(drawn, data):
    """Times are the least; with stricter waits too, which can be taken back; in a circle there are none."""
    sequences, waits = drawn
    waits = possible(sequences, waits)
    system = System(sequences, waits)
    if circular(sequences, waits):
        with pytest.raises(StuckError):
            system.solve()
        reject()
    assert system.solve()
    expected = least(sequences, waits)
    for name, times in expected.items():
        assert system.times(name).tolist() == times
    system.mark()
    stricter = list(waits)
    for number, wait in enumerate(waits):
        less = replace(wait, back=wait.back - data.draw(st.integers(0, wait.back)))
        others = [*stricter[:number], less, *stricter[number + 1 :]]
        if less.source != less.target and possible(sequences, [less]) and not circular(sequences, others):
            stricter = others
            system.change(number, back=less.back)
            assert system.solve()
            for name, times in least(sequences, stricter).items():
                assert system.times(name).tolist() == times
    system.revert()
    assert system.solve()
    for name, times in expected.items():
        assert system.times(name).tolist() == times


def latest(sequences, waits, ends):
    """The latest times of all events: ``ends`` for the last of each sequence named there, no bound elsewhere."""
    times = {name: [math.inf] * count for name, (count, _) in sequences.items()}
    for name, end in ends.items():
        times[name][-1] = end
    rows = [(w.target, t, w.source, s, d) for w in waits for t, s, d in pairs(sequences, w) if d > NO_WAIT]
    rows += [(name, n, name, n - 1, gap) for name, (count, gap) in sequences.items() for n in range(1, count)]
    moved = True
    while moved:
        moved = False
        for target, event, source, other, delay in rows:
            if times[target][event] - delay < times[source][other]:
                times[source][other], moved = times[target][event] - delay, True
    return times


@both_ways
@cases_in_the_long_run(100)
@given(drawn=wait_lists(), late=st.integers(-3, 3), data_only=st.booleans())
def test_latest(drawn, late, data_only):
    """A bound that is met asks for nothing that isn't so; one that is missed is seen. With all waits it is exact."""
    sequences, waits = drawn
    waits = possible(sequences, waits)
    assume(not circular(sequences, waits))
    system = System(sequences, waits)
    system.solve()
    name = max(sequences)
    end = int(system.times(name)[-1])
    last = np.array([sequences[name][0] - 1])
    bounds = system.latest({name: (last, np.array([end + late]))}, data_only=data_only)
    assert (system.part(name, bounds)[-1] == end + late) or late > 0
    assert System(sequences, waits).solve(bounds) == (late >= 0)
    if not data_only:
        for key, times in latest(sequences, waits, {name: end + late}).items():
            found = [math.inf if time > 1 << 30 else time for time in system.part(key, bounds).tolist()]
            assert found == times


@both_ways
@pytest.mark.long
def test_times_beyond_32_bits():
    """100 events 2^26 cycles apart, a quarter of which others follow."""
    gap = 1 << 26
    waits = [Wait("b", "a", np.arange(25) * 4, 100, 5)]
    system = System({"a": (100, gap), "b": (25, 1)}, waits)
    assert system.times("a").dtype == np.int32
    bounds = system.latest({"b": (np.array([24]), np.array([1 << 30]))}, data_only=True)
    assert system.solve()
    assert system.times("a").tolist() == [gap * n for n in range(100)]
    assert system.times("b").tolist() == [gap * 4 * n + 5 for n in range(25)]
    assert not System({"a": (100, gap), "b": (25, 1)}, waits).solve(bounds)


@both_ways
def test_many_changes_can_be_taken_back():
    """More events move than there are, each time counted: then all are computed once more, and that is all."""
    count = 20_000
    system = System({"a": (count, 1), "b": (count, 1)}, [Wait("b", "a", np.zeros(1, int), 1, 12, back=FAR)])
    system.solve()
    system.mark()
    for back in range(9, -1, -1):
        system.change(0, back=back)
        assert system.solve()
        assert (system.times("b")[back:] == np.arange(count - back) + 12).all()
        assert system.moved <= 2 * len(system)
    system.revert()
    assert system.solve()
    assert (system.times("b") == np.arange(count)).all()


@both_ways
def test_a_circle_is_late():
    """Events that would move for ever are later than their latest times, and the change can be taken back."""
    count = 1000
    waits = [Wait("a", "b", np.zeros(1, int), 1, 1, back=1), Wait("b", "a", np.zeros(1, int), 1, 1)]
    system = System({"a": (count, 1), "b": (count, 1)}, waits)
    assert system.solve()
    latest = np.full(2 * count, 1 << 30, np.int32)
    system.mark()
    system.change(0, back=0)
    assert not system.solve(latest)
    assert system.moved <= 2 * len(system)
    system.revert()
    assert system.solve(latest)
    assert (system.times("a") == 2 * np.arange(count)).all()


def test_many_visits():
    """Two sequences take turns event by event, so often that the loops come back to Python in between."""
    count = VISITS // 2 + 10
    waits = [Wait("a", "b", np.zeros(1, int), 1, 1, back=1), Wait("b", "a", np.zeros(1, int), 1, 1)]
    system = System({"a": (count, 1), "b": (count, 1)}, waits)
    assert system.solve()
    assert (system.times("a") == 2 * np.arange(count)).all()
    assert (system.times("b") == 2 * np.arange(count) + 1).all()


@pytest.mark.parametrize("index", [(0, 0, 1, 0), (0, 3)])
def test_waits_in_order(index):
    """An index that falls, or that the next period begins below, is an error of the caller: bisection would miss."""
    with pytest.raises(AssertionError):
        Wait("after", "before", np.array(index), 2)
