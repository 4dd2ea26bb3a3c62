"""How ranks meet over a store: retries, restarts, wrong sizes and numbers, ranks that cannot join. Ranks are threads where
no process has to end."""
import datetime
import multiprocessing
import os
import re
import signal
import threading
import time

import goccl
import pytest
import torch
import torch.distributed as dist
from common import until
from goccl import _boot

CONTEXT = multiprocessing.get_context("forkserver")


def attempt(store, rank, size, seconds=20, options=None):
    """The group of this rank, or the exception of its attempt to make it."""
    about = dist.distributed_c10d._DistributedBackendOptions()
    about.store, about.group_rank, about.group_size = store, rank, size
    about.timeout, about.group_id, about.global_ranks_in_group = datetime.timedelta(seconds=seconds), "dp", []
    try:
        return goccl._create(about, options)
    except Exception as e:
        return e


class Rank(threading.Thread):
    """An attempt in a thread of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(daemon=True)
        self.how = args, kwargs
        self.start()

    def run(self):
        args, kwargs = self.how
        start = time.monotonic()
        self.result = attempt(*args, **kwargs)
        self.took = time.monotonic() - start

    def ended(self):
        self.join(30)
        assert not self.is_alive(), "it hangs"
        return self.result


def met(*groups):
    """Checks that these are one group, and ends it."""
    for group in groups:
        assert not isinstance(group, Exception), repr(group)
    tensors = [torch.ones(3) for _ in groups]
    works = [group.allreduce([tensor]) for group, tensor in zip(groups, tensors)]
    for work in works:
        work.wait()
    assert all(tensor.eq(len(groups)).all() for tensor in tensors), tensors
    ends = [threading.Thread(target=group.shutdown) for group in groups]
    for end in ends:
        end.start()
    for end in ends:
        end.join(30)


def refused(ranks, *parts, kind=dist.DistBackendError):
    """Checks that all these attempts have failed soon, with texts that have all the parts."""
    for rank in ranks:
        error = rank.ended()
        assert type(error) is kind, repr(error)
        missing = [part for part in parts if not re.search(part, str(error))]
        assert not missing, f"{missing} not in: {error}"
        assert "frame #" not in str(error)
        assert rank.took < 5, f"{rank.took:.1f} s: {error}"


def test_a_store_serves_again():
    store = dist.HashStore()
    for _ in range(3):
        ranks = [Rank(store, r, 3) for r in range(3)]
        met(*[rank.ended() for rank in ranks])


def test_a_late_rank_is_told_and_meets_at_its_next_try():
    store = dist.HashStore()
    for _ in range(2):
        refused([Rank(store, 0, 2, 0.2)], r"timeout: rank 1 \(of 2\) did not come to group dp within 0.2 s")
    refused([Rank(store, 1, 2)], r"timeout \(rank 0\): rank 0 \(pid \d+ on .*\) gave up \d+\.\d s ago")
    met(*[rank.ended() for rank in [Rank(store, 0, 2), Rank(store, 1, 2)]])


def test_all_that_have_come_are_told_who_is_late():
    store = dist.HashStore()
    refused([Rank(store, 0, 3, 0.5), Rank(store, 2, 3)], r"timeout: rank 1 \(of 3\) did not come to group dp within 0.5 s")


def test_groups_of_one_rank_do_not_meet_each_other():
    """Where every process calls new_group with only its own rank, torch gives all these groups one name, and one store."""
    store = dist.HashStore()
    groups = [Rank(store, 0, 1).ended() for _ in range(3)]
    for group in groups:
        met(group)


def test_sizes_differ():
    store = dist.HashStore()
    refused([Rank(store, 0, 2), Rank(store, 1, 3)], "mismatch: number of ranks", r"rank 0 .* has 2", r"rank 1 .* has 3")
    met(*[rank.ended() for rank in [Rank(store, 0, 2), Rank(store, 1, 2)]])


def test_a_rank_is_used_twice():
    store = dist.HashStore()
    refused([Rank(store, 1, 3), Rank(store, 1, 3), Rank(store, 0, 3)],
            f"two processes have come as rank 1: pid {os.getpid()} on .*, and pid {os.getpid()} on ")


def test_a_rank_cannot_join():
    store = dist.HashStore()
    others = [Rank(store, r, 3) for r in (0, 2)]
    assert isinstance(attempt(store, 1, 3, options=goccl.Options(transport="pigeon")), ValueError)
    refused(others, r"peer left \(rank 1\): rank 1 \(pid \d+ on .*\) cannot join: .*GOCCL_TRANSPORT=pigeon")
    other = Rank(store, 0, 2)
    assert isinstance(attempt(store, 1, 2, options=object()), TypeError)
    refused([other], r"cannot join: .*pg_options must be a goccl.Options")
    other = Rank(store, 1, 2)
    about = dist.distributed_c10d._DistributedBackendOptions()
    about.store, about.group_rank, about.group_size = store, 0, 2
    _boot.without_library(about, ImportError("it was not built"))
    refused([other], r"peer left \(rank 0\): rank 0 \(pid \d+ on .*\) cannot join: it was not built")
    met(*[rank.ended() for rank in [Rank(store, 0, 2), Rank(store, 1, 2)]])


def come(path, rank):
    """Comes, and waits to be ended."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    print(attempt(dist.FileStore(path, 2), rank, 2, 60), flush=True)


class Slow(dist.Store):
    """Another store, each operation of which takes a while."""

    def __init__(self, store):
        super().__init__()
        self.store = store

    def add(self, *args):
        return self.after_a_while("add", args)

    def set(self, *args):
        return self.after_a_while("set", args)

    def check(self, *args):
        return self.after_a_while("check", args)

    def get(self, *args):
        return self.after_a_while("get", args)

    def compare_set(self, *args):
        return self.after_a_while("compare_set", args)

    def after_a_while(self, name, args):
        time.sleep(0.03)
        return getattr(self.store, name)(*args)


def serve(pipe):
    """Serves the store and comes as the last rank, with other options than the first to come; then the process ends."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    until(lambda: store.check(["goccl/count/1"]), "rank 1 did not come")
    pipe.send(str(attempt(store, 0, 2, options=goccl.Options(transport="tcp"))))
    pipe.close()
    os._exit(0)


def test_the_store_ends_with_a_rank_that_cannot_join():
    """The ranks meet, and find that their options differ: the last one at once, the first one not before it has read that."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=serve, args=(there,), daemon=True)
    process.start()
    store = dist.TCPStore("127.0.0.1", here.recv(), is_master=False)
    first = Rank(Slow(store), 1, 2, options=goccl.Options(transport="shm"))
    assert "GOCCL_TRANSPORT=shm" in here.recv()
    refused([first], "mismatch", "GOCCL_TRANSPORT=tcp")
    process.join(30)


@pytest.fixture
def comer(tmp_path):
    """A process that has come as rank 1 over a file, with that store."""
    path = str(tmp_path / "store")
    process = CONTEXT.Process(target=come, args=(path, 1), daemon=True)
    process.start()
    store = dist.FileStore(path, 2)
    until(lambda: store.check(["goccl/count/1"]), "rank 1 did not come")
    yield process, store
    process.kill()
    process.join(30)


def test_a_rank_dies_before_the_others_come(comer):
    process, store = comer
    process.kill()
    process.join(30)
    refused([Rank(store, 0, 2)], rf"peer lost \(rank 1\): rank 1 \(pid {process.pid} on .*\) came, but its process has ended",
            kind=dist.DistNetworkError)


def test_a_rank_is_started_again_before_the_others_come(comer):
    process, store = comer
    process.kill()
    process.join(30)
    again = Rank(store, 1, 2)
    time.sleep(0.1)
    met(Rank(store, 0, 2).ended(), again.ended())


def test_a_rank_is_interrupted_while_it_waits(comer):
    process, store = comer
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    assert process.exitcode == 1
    refused([Rank(store, 0, 2)], rf"peer left \(rank 1\): rank 1 \(pid {process.pid} on .*\) cannot join: it was interrupted")
