"""Groups that fit, reported while the search for better ones goes on, so that an interrupted search has a result.

A search reports with `offer` the groups that compute a whole network. Around the search, a caller receives them with
`received`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hwgen.templates.base import Group
from hwgen.templates.task import Task

Receiver = Callable[[Task, tuple[Group, ...]], None]
_receiver: ContextVar[Receiver | None] = ContextVar("receiver", default=None)


def offer(task: Task, *groups: Group) -> None:
    """Report groups that fit the board of a task and compute its network one after the other, if somebody listens.

    Groups that compute only a part of the network are not reported.
    """
    receiver = _receiver.get()
    layers = sum(len(group.layers) for group in groups)
    if receiver is not None and layers == len(task.network.layers):
        receiver(task, groups)


@contextmanager
def received(receiver: Receiver) -> Iterator[None]:
    """Call a function with all groups that the ``with`` block offers, and with their task."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)
