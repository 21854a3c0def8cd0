"""Reports of groups that fit, during the planner's search, so that an interrupted search still has a result.

A search reports groups that compute a whole network by `offer`. Its caller receives them in a ``with`` block of
`received`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hwgen.templates.base import Group, Task

Receiver = Callable[[Task, tuple[Group, ...]], None]
_receiver: ContextVar[Receiver | None] = ContextVar("receiver", default=None)


def offer(task: Task, *groups: Group) -> None:
    """Pass fusion groups that fit the board to the receiver set by `received`, if they cover a task's whole network.

    Groups that compute only a part of the network are not passed on.
    """
    receiver = _receiver.get()
    layers = sum(len(group.layers) for group in groups)
    if receiver is not None and layers == len(task.network.layers):
        receiver(task, groups)


@contextmanager
def received(receiver: Receiver) -> Iterator[None]:
    """Context manager that calls ``receiver`` with a task and its groups whenever `offer` is called in the block."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)
