"""Processes that are the ranks of a group, spawned once and given one function after the other."""
import datetime
import multiprocessing
import queue
import time
import traceback

import torch
import torch.distributed as dist

PATIENCE = 60.0  # seconds until a call that has not come back is an error


class RankPool:
    """size processes; run calls a function on all of them. Each has initialised goccl's default group, if group is True."""

    def __init__(self, size, folder, group=True, timeout=20.0):
        self.size = size
        context = multiprocessing.get_context("spawn")
        self._results = context.Queue()
        self._tasks = [context.Queue() for _ in range(size)]
        self._processes = [
            context.Process(target=_serve, args=(rank, size, str(folder), group, timeout, self._tasks[rank], self._results),
                            daemon=True)
            for rank in range(size)
        ]
        for process in self._processes:
            process.start()
        self._collect("start")

    def run(self, function, *args):
        """What function(rank, *args) returned on each rank. A failure on any rank is an AssertionError with its traceback."""
        for tasks in self._tasks:
            tasks.put((function, args))
        return self._collect(getattr(function, "__name__", str(function)))

    def close(self):
        for tasks in self._tasks:
            tasks.put(None)
        for process in self._processes:
            process.join(15)
            if process.is_alive():
                process.kill()
        assert [process.exitcode for process in self._processes] == [0] * self.size

    def _collect(self, what):
        results, failures = [None] * self.size, {}
        end = time.monotonic() + PATIENCE
        for _ in range(self.size):
            while True:
                try:
                    rank, value, failure = self._results.get(timeout=0.5)
                    break
                except queue.Empty:
                    dead = {r: p.exitcode for r, p in enumerate(self._processes) if p.exitcode is not None}
                    assert not dead, f"{what}: ranks ended with {dead}"
                    assert time.monotonic() < end, f"{what}: a rank did not come back in {PATIENCE} s"
            results[rank] = value
            if failure:
                failures[rank] = failure
        assert not failures, f"{what}: " + "\n".join(f"rank {r}:\n{text}" for r, text in sorted(failures.items()))
        return results


def _serve(rank, size, folder, group, timeout, tasks, results):
    torch.set_num_threads(1)
    try:
        if group:
            import goccl  # noqa: F401

            dist.init_process_group("goccl", store=dist.FileStore(f"{folder}/store", size), rank=rank, world_size=size,
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
