"""Signals that come while a rank waits: handlers run, and Ctrl-C ends the wait, and the group on all ranks."""
import contextlib
import multiprocessing
import os
import signal
import threading
import time

import goccl
import goccl._loader
import pytest
import torch
import torch.distributed as dist
from common import is_stopped, seconds, until

CONTEXT = multiprocessing.get_context("forkserver")
TRANSPORTS = ["shm", "tcp"]
LONG = 60  # seconds: a timeout that no test reaches
SOON = 0.5  # seconds from Ctrl-C to the exceptions

LARGE = torch.ones(3_000_000)[::2]  # made before, which may take as long as Ctrl-C does

WAITS = {
    "all_reduce": lambda group: dist.all_reduce(torch.ones(4), group=group),
    "large all_reduce": lambda group: dist.all_reduce(LARGE, group=group),
    "work": lambda group: dist.all_reduce(torch.ones(4), group=group, async_op=True).wait(),
    "work with a timeout": lambda group: dist.all_reduce(torch.ones(4), group=group, async_op=True).wait(seconds(LONG)),
    "several calls": lambda group: dist.all_reduce_coalesced([torch.ones(4), torch.ones(8)], group=group),
    "barrier": lambda group: dist.barrier(group=group),
    "recv": lambda group: dist.recv(torch.zeros(4), 2, group=group),
    "batch": lambda group: dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.zeros(4), 2, group, tag)
                                                   for tag in range(2)])[0].wait(),
    "monitored_barrier": lambda group: dist.monitored_barrier(group),
    "sparse": lambda group: dist.all_reduce(torch.eye(3).to_sparse(), group=group),
}


@contextlib.contextmanager
def handler(number, function):
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


def send_soon(number, sent):
    """Sends a signal to this process in a moment, in which it most likely begins to wait."""
    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)
    threading.Timer(0.1, send).start()


def group_of(transport):
    return dist.new_group(timeout=seconds(LONG), pg_options=goccl.Options(transport=transport))


def check_ctrl_c(rank, transport, name):
    """Rank 2 does not come. Returns when the signal was sent, and when this rank got its exception."""
    group, sent = group_of(transport), []
    store = dist.distributed_c10d._get_default_store()
    key = f"interrupted {transport} {name}"
    if rank == 0:
        # A shell may start its commands with the signal ignored.
        with handler(signal.SIGINT, signal.default_int_handler):
            send_soon(signal.SIGINT, sent)
            with pytest.raises(KeyboardInterrupt, match=f"rank {rank} of .*interrupted by a signal"):
                WAITS[name](group)
        end = time.monotonic()
        store.set(key, "")
        with pytest.raises(dist.DistBackendError, match="interrupted"):
            dist.barrier(group=group)
    else:
        if rank == 2:
            store.wait([key])
        with pytest.raises(dist.DistBackendError, match=r"(?s)\(rank 0\).*interrupted"):
            WAITS[name](group)
            dist.barrier(group=group)  # where this rank could do without the others
        end = time.monotonic()
    dist.destroy_process_group(group)
    dist.barrier()
    return sent, end


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ctrl_c(trio, transport, name):
    (sent, first), (_, second), _ = trio.run(check_ctrl_c, transport, name)
    assert first - sent[0] < SOON and second - sent[0] < SOON


def check_handler(rank, transport, name):
    """Rank 0 waits for rank 1, which comes when the handler has run."""
    group, store = group_of(transport), dist.distributed_c10d._get_default_store()
    key, t = f"handled {transport} {name}", torch.full((4,), rank + 1.0)
    if rank == 0:
        with handler(signal.SIGUSR1, lambda *_: store.set(key, "")):
            send_soon(signal.SIGUSR1, [])
            dist.all_reduce(t, group=group) if name == "run" else dist.all_reduce(t, group=group, async_op=True).wait()
    else:
        store.wait([key])
        dist.all_reduce(t, group=group)
    assert t.tolist() == [3.0] * 4
    dist.destroy_process_group(group)


@pytest.mark.parametrize("name", ["run", "wait"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_handler_that_returns(pair, transport, name):
    pair.run(check_handler, transport, name)


class Told(Exception):
    pass


def check_own_exception(rank):
    def tell(*_):
        raise Told
    group = group_of("shm")
    if rank == 0:
        with handler(signal.SIGUSR1, tell):
            send_soon(signal.SIGUSR1, [])
            with pytest.raises(Told):
                dist.barrier(group=group)
    else:
        with pytest.raises(dist.DistBackendError, match=r"\(rank 0\).*interrupted"):
            dist.recv(torch.zeros(4), 0, group=group)
    dist.destroy_process_group(group)
    dist.barrier()


def test_what_a_handler_raises(pair):
    pair.run(check_own_exception)


def check_untouched(rank):
    """The main thread does not wait in a group when the signal comes, but another one does."""
    group, sums = group_of("shm"), []

    def add():
        t = torch.ones(4)
        dist.all_reduce(t, group=group)
        sums.append(t.tolist())

    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        thread = threading.Thread(target=add)
        thread.start()
        with handler(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
            send_soon(signal.SIGINT, [])
            time.sleep(LONG)
        store.set("untouched", "")
        thread.join()
    else:
        store.wait(["untouched"])
        add()
    assert sums == [[2.0] * 4]
    dist.destroy_process_group(group)


def test_ctrl_c_elsewhere(pair):
    pair.run(check_untouched)


def check_join(rank, port, transport):
    """Rank 1 has come and is stopped, so rank 0 meets it, and waits for its connection."""
    core, store = goccl._loader.core(), dist.TCPStore("127.0.0.1", port)

    def create():
        core.create(store, rank, 2, core.Options(seconds(LONG), f"GOCCL_TRANSPORT={transport}"))

    if rank == 0:
        sent = []
        with handler(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
            send_soon(signal.SIGINT, sent)
            create()
        assert time.monotonic() - sent[0] < SOON
    else:
        create()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ctrl_c_while_joining(transport):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = [CONTEXT.Process(target=check_join, args=(rank, store.port, transport)) for rank in range(2)]
    try:
        ranks[1].start()
        until(lambda: store.check(["goccl/count/1"]), "rank 1 did not come")
        os.kill(ranks[1].pid, signal.SIGSTOP)
        until(lambda: is_stopped(ranks[1].pid), "it did not stop")
        ranks[0].start()
        ranks[0].join(30)
        assert ranks[0].exitcode == 0
    finally:
        for rank in ranks:
            if rank.pid is not None:
                rank.kill()
                rank.join(30)


INIT = """
import datetime, os, signal, sys, threading, time
import torch.distributed as dist
import goccl
signal.signal(signal.SIGINT, signal.default_int_handler)
sent = []
def send():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.3, send).start()
try:
    dist.init_process_group("goccl", store=dist.FileStore(sys.argv[1] + "/store", 2), rank=0, world_size=2,
                            timeout=datetime.timedelta(seconds=60))
except KeyboardInterrupt:
    print(time.monotonic() - sent[0], time.monotonic())
"""


def test_ctrl_c_before_the_others_come(python, tmp_path):
    took, at = map(float, python(INIT, tmp_path).split())
    assert took < SOON
    assert time.monotonic() - at < 5, "no thread keeps the process"
