"""A process that runs tasks: questions come on its standard input, answers go to its standard output."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from queue import SimpleQueue
from typing import Any

from hwgen import processes
from hwgen.work.outcome import Outcome, outcome


def main() -> None:
    """Run tasks until there are no more, or whoever asked for them is gone."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what tasks print is no answer
    questions: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    shared: dict[int, Any] = {}
    while True:
        question = questions.get()
        if isinstance(question, Exception):
            found = Outcome(error=question)
        else:
            values, function, sent, named = question
            shared.update(values)
            found = outcome(function, *(shared[each] if stands else each for stands, each in sent), **named)
        try:
            answer = pickle.dumps(found)
        except Exception as error:
            answer = pickle.dumps(
                Outcome(error=TypeError(f"{function.__qualname__}: its result can't be sent: {error}"))
            )
        answers.write(answer)
        answers.flush()


def _listen(questions: SimpleQueue[Any]) -> None:
    """Take questions; when there will be none, end at once, and with it all that runs."""
    try:
        while True:
            try:
                questions.put(pickle.load(sys.stdin.buffer))
            except (AttributeError, ImportError) as error:
                questions.put(TypeError(f"a task must be a function of a module that workers find: {error}"))
    except EOFError:
        pass
    finally:
        processes.clean()
        os._exit(0)
