"""An executor whose tasks, results and errors travel as to another process, and run in this one as
they are submitted.
"""

from concurrent.futures import Executor, Future
from multiprocessing.reduction import ForkingPickler


class Parcels(Executor):
    """Counts the tasks."""

    workers = 2

    def __init__(self):
        self.tasks = 0

    def submit(self, fn, /, *args, **kwargs):
        self.tasks += 1
        future = Future()
        function, arguments, options = travelled((fn, args, kwargs))
        try:
            future.set_result(travelled(function(*arguments, **options)))
        except Exception as error:  # noqa: BLE001  any error is the task's
            future.set_exception(travelled(error))
        return future


def travelled(value):
    """Return a copy as another process gets it."""
    return ForkingPickler.loads(ForkingPickler.dumps(value))
