"""The same calls without async, for scripts and notebooks: `python examples/blocking.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import dgent
from dgent import sync


@dataclass(frozen=True)
class Task:
    """Something to do."""

    title: str
    done: bool = False


TASK = dgent.Schema("todo.task", contract=Task, indexes=("done",))


def main() -> None:
    with sync.open("memory:", author="me") as u:
        u.register(TASK)
        for title in ("water the plants", "write the report", "call home"):
            u.remember(Task(title))

        first = u.recall(dgent.Query(schema="todo.task", descending=False, limit=1))[0]
        u.store(first.replace(value=replace(first.value, done=True)), expect=first.rev)
        print(f"done: {first.value.title}")

        with u.transaction() as tx:
            for task in tx.recall(dgent.Query(schema="todo.task", where={"done": False})):
                tx.store(task.replace(value=replace(task.value, title=task.value.title + " today")))

        for task in u.iterate(dgent.Query(schema="todo.task", where={"done": False}, descending=False)):
            print(f"open: {task.value.title}")
        print(f"{len(u.history(first.id))} versions of the first are kept")


if __name__ == "__main__":
    main()
