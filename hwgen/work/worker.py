"""Main program of a worker process: it reads tasks from standard input and writes outcomes to standard output."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from queue import SimpleQueue
from typing import Any

from hwgen import processes
from hwgen.work.base import Outcome, outcome


def main() -> None:
    """Run tasks from standard input, and write their outcomes to standard output, until the input is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of tasks is not an answer
    questions: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    shared: dict[int, Any] = {}
    while True:
        question = questions.get()
        if isinstance(question, Exception):
            result = Outcome(error=question)
        else:
            values, function, sent, named = question
            shared.update(values)
            result = outcome(
                function, *(shared[argument] if is_shared else argument for is_shared, argument in sent), **named
            )
        try:
            answer = pickle.dumps(result)
        except Exception as error:
            answer = pickle.dumps(
                Outcome(error=TypeError(f"{function.__qualname__}: its result can't be sent: {error}"))
            )
        answers.write(answer)
        answers.flush()


def _listen(questions: SimpleQueue[Any]) -> None:
    """Read tasks from standard input into a queue; at the end of the input, end this process and its programs."""
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
