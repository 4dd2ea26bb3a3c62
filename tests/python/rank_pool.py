"""Processes that are the ranks of a group. They are started once and run one function after the other."""
import datetime
import multiprocessing
import queue
import time
import traceback

import torch
import torch.distributed as dist

PATIENCE = 60.0  # seconds until a call that has not returned is an error

# Imported once, in the process from which the ranks are forked and which uses no backend: importing torch takes
# seconds. A conftest.py that needs more modules sets the list again.
multiprocessing.set_forkserver_preload(["torch", "torch.distributed", "goccl"])


class RankPool:
    """A pool of size processes; run calls a function on all of them.

    Each process has initialised goccl's default group if group is True. patience is the number of seconds that a call
    may take, timeout that of the group.
    """

    def __init__(self, size, folder, group=True, timeout=20.0, patience=PATIENCE):
        self.size = size
        self._patience = patience
        context = multiprocessing.get_context("forkserver")
        self._results = context.Queue()
        self._tasks = [context.Queue() for _ in range(size)]
        self._processes = [
            context.Process(
                target=_serve, args=(rank, size, str(folder), group, timeout, self._tasks[rank], self._results),
                daemon=True)
            for rank in range(size)
        ]
        for process in self._processes:
            process.start()
        self._collect("start")

    def run(self, function, *args):
        """Returns what function(rank, *args) returned on each rank.

        A failure on any rank raises AssertionError with its traceback.
        """
        for tasks in self._tasks:
            tasks.put((function, args))
        return self._collect(getattr(function, "__name__", str(function)))

    def close(self):
        for tasks in self._tasks:
            tasks.put(None)
        for process in self._processes:
            process.join(60)
            if process.is_alive():
                process.kill()
        assert [process.exitcode for process in self._processes] == [0] * self.size

    def kill(self):
        """Ends the processes at once: after a failure their groups are of no use."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    def _collect(self, what):
        __tracebackhide__ = True  # the messages of the ranks matter, not this function's stack
        results, failures = {}, {}
        end = time.monotonic() + self._patience
        while len(results) < self.size:
            try:
                rank, value, failure = self._results.get(timeout=0.5)
            except queue.Empty:
                dead = {r: p.exitcode for r, p in enumerate(self._processes) if p.exitcode is not None}
                if not dead and time.monotonic() < end:
                    continue
                for r in set(range(self.size)) - set(results):
                    failures[r] = f"ended with {dead[r]}" if r in dead else "did not come back in time"
                break
            results[rank] = value
            if failure:
                failures[rank] = failure
                end = min(end, time.monotonic() + 5)  # the other ranks may wait for this one for long
        assert not failures, f"{what}: " + "\n".join(f"rank {r}:\n{text}" for r, text in sorted(failures.items()))
        return [results[rank] for rank in range(self.size)]


class Lasting:
    """A pool for many tests, which start(size) starts with the first call, and again after a failure."""

    def __init__(self, start, size):
        self.size, self._start, self._pool = size, start, None

    def run(self, function, *args):
        __tracebackhide__ = True
        if self._pool is None:
            self._pool = self._start(self.size)
        try:
            return self._pool.run(function, *args)
        except BaseException:
            self.kill()
            raise

    def kill(self):
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.kill()

    def close(self):
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _serve(rank, size, folder, group, timeout, tasks, results):
    torch.set_num_threads(1)
    # A daemon could not have children of its own, such as data loaders' workers.
    multiprocessing.current_process().daemon = False
    try:
        if group:
            import goccl  # noqa: F401

            dist.init_process_group("goccl", store=dist.FileStore(f"{folder}/store"), rank=rank, world_size=size,
                                    timeout=datetime.timedelta(seconds=timeout))
        results.put((rank, None, None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
        return
    while (task := tasks.get()) is not None:
        function, args = task
        try:
            results.put((rank, function(rank, *args), None))
        except BaseException:
            results.put((rank, None, traceback.format_exc()))
    if dist.is_initialized():
        dist.destroy_process_group()
