"""destroy_process_group ends operations for which no thread has waited, on this rank and on its peers."""
import multiprocessing
import os
import signal
import threading
import time

import goccl._loader
import pytest
import torch
import torch.distributed as dist
from common import seconds
from rank_pool import RankPool
from scripts import ranks, told

TRANSPORTS = ["shm", "tcp"]
LONG, SOON = 30, 10  # seconds: a timeout that no test reaches, and a shorter limit


def group_of(transport):
    return dist.new_group(timeout=seconds(LONG), pg_options=goccl.Options(transport=transport))


def destroyed(group):
    """Destroys the group; returns the seconds that this took."""
    start = time.monotonic()
    dist.destroy_process_group(group)
    return time.monotonic() - start


def first(rank, name):
    """Lets rank 0 go on at once, and the others when it has called this and most likely waits in its next call."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set(name, "")
    else:
        store.wait([name])
        time.sleep(0.1)


def check_collectives(rank, transport):
    for size in (4, 100_000, 3_000_000):
        group = group_of(transport)
        tensors = [torch.full((size,), rank + 1.0)[::step] for step in (1, 2)]
        works = [dist.all_reduce(t, group=group, async_op=True) for t in tensors] if rank == 0 else []
        first(rank, f"collectives {transport} {size}")
        for t in tensors if rank > 0 else []:
            dist.all_reduce(t, group=group)
        assert destroyed(group) < SOON
        assert all(work.wait() for work in works)
        expected = sum(range(1, dist.get_world_size() + 1))
        assert all(t.min() == t.max() == expected for t in tensors)
        dist.barrier()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_collectives_end_first(pair, trio, transport):
    pair.run(check_collectives, transport)
    trio.run(check_collectives, transport)


def check_dropped(rank, transport):
    """No variable holds the Works, and some of the memory is held only by them.

    torch's recorder would hold them, for all groups in 2.15.
    """
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"
    group, kept = group_of(transport), torch.ones(6)[::2]
    del os.environ["TORCH_FR_BUFFER_SIZE"]
    for t in (kept, torch.ones(1_000_000)):
        dist.all_reduce(t, group=group, async_op=True)
    dist.destroy_process_group(group)
    assert kept.tolist() == [dist.get_world_size()] * 3, kept


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_dropped_works_end_first(trio, transport):
    trio.run(check_dropped, transport)


def check_messages(rank, transport):
    """Sends messages that fit the channels, messages that fill them, and messages that wait for their receivers."""
    sizes = [1, 1000, 20_000, 4_000_000] + [15_000] * 200
    group = group_of(transport)
    if rank == 0:
        works = [dist.isend(torch.full((n,), float(i)), peer, group=group) for peer in range(1, dist.get_world_size())
                 for i, n in enumerate(sizes)]
    first(rank, f"messages {transport}")
    for i, n in enumerate(sizes if rank > 0 else []):
        t = torch.zeros(n)
        dist.recv(t, 0, group=group)
        assert t.min() == t.max() == i
    assert destroyed(group) < SOON
    assert rank > 0 or all(work.wait() for work in works)
    dist.barrier()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_sends_end_first(trio, transport):
    trio.run(check_messages, transport)


def check_both_leave(rank, transport):
    group, t = group_of(transport), torch.zeros(4)
    if rank == 0:
        first(rank, f"both {transport}")
        dist.isend(torch.ones(4), 1, group=group)
    else:
        work = dist.irecv(t, 0, group=group)
        first(rank, f"both {transport}")
    dist.destroy_process_group(group)
    assert rank == 0 or work.wait() and t.tolist() == [1.0] * 4
    dist.barrier()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_receives_of_ranks_that_leave_together(pair, transport):
    pair.run(check_both_leave, transport)


def check_unanswered(rank, transport):
    group = group_of(transport)
    work = dist.irecv(torch.zeros(4), 1 - rank, group=group)
    assert destroyed(group) < SOON
    with pytest.raises(dist.DistBackendError, match=r"closed|peer left \(rank"):  # whoever is first is seen to leave
        work.wait()
    dist.barrier()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_receive_that_nobody_answers(pair, transport):
    pair.run(check_unanswered, transport)


def check_ends(rank, transport):
    """destroy_process_group does not wait for operations that cannot end, and their Works report why."""
    def pending(timeout):
        group = group_of(transport)
        group.set_timeout(seconds(timeout))
        return group, dist.all_reduce(torch.ones(4), group=group, async_op=True) if rank == 0 else None

    group, work = pending(LONG)
    assert destroyed(group) < SOON
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="left"):
            work.wait()
    dist.barrier()
    group, work = pending(0.3)
    if rank == 0:
        assert destroyed(group) < SOON
        with pytest.raises(dist.DistBackendError, match="timeout"):
            work.wait()
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group(group)
    group, work = pending(LONG)
    if rank == 0:
        group.abort()
        assert destroyed(group) < SOON
        with pytest.raises(dist.DistBackendError, match="aborted"):
            work.wait()
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group(group)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_cannot_end(pair, transport):
    pair.run(check_ends, transport)


def check_gil(rank):
    """Another thread of Python must run for the peer to reach its call."""
    group, t = group_of("shm"), torch.ones(4)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        dist.all_reduce(t, group=group, async_op=True)
        threading.Timer(0.1, lambda: store.set("gil", "")).start()
    else:
        store.wait(["gil"])
        dist.all_reduce(t, group=group)
    assert destroyed(group) < SOON and t.tolist() == [2.0] * 4
    dist.barrier()


def test_other_threads_run_meanwhile(pair):
    pair.run(check_gil)


def check_ctrl_c(rank):
    group = group_of("shm")
    if rank == 0:
        # A shell may start its commands with the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            dist.destroy_process_group(group)
        assert time.monotonic() - start < SOON
        with pytest.raises(dist.DistBackendError, match="closed"):
            work.wait()
    else:
        with pytest.raises(dist.DistBackendError, match="left"):
            dist.recv(torch.zeros(4), 0, group=group)
    dist.barrier()


def test_ctrl_c_ends_the_wait(pair):
    pair.run(check_ctrl_c)


def check_exit(rank):
    """Runs the exit handler of a process that never called destroy_process_group."""
    if rank == 0:
        dist.all_reduce(torch.ones(4), async_op=True)
        start = time.monotonic()
        goccl._loader.core().stop()
        assert 0.9 < time.monotonic() - start < SOON
    else:
        with pytest.raises(dist.DistBackendError, match="left"):
            dist.recv(torch.zeros(4), 0)


def test_the_end_of_a_process_waits_for_a_second(tmp_path):
    pool = RankPool(2, tmp_path, timeout=LONG)
    pool.run(check_exit)
    pool.close()


MESSAGES = 6


def member(rank, store, transport):
    core = goccl._loader.core()
    return core.create(dist.FileStore(store, 2), rank, 2,
                       core.Options(seconds(LONG), f"GOCCL_TRANSPORT={transport}"))


def send_and_end(store, transport):
    backend = member(0, store, transport)
    for i in range(MESSAGES):
        backend.send([torch.full((4000,), float(i))], 1, 0)
    backend.shutdown()


def check_sender_ended(rank, store, transport):
    if rank == 0:
        sender = multiprocessing.get_context("forkserver").Process(target=send_and_end, args=(store, transport))
        sender.start()
        sender.join(LONG)
        assert sender.exitcode == 0
        dist.barrier()
    else:
        backend = member(1, store, transport)
        dist.barrier()
        for i in range(MESSAGES):
            t = torch.zeros(4000)
            backend.recv([t], 0, 0).wait()
            assert t.min() == t.max() == i
        backend.shutdown()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_was_sent_arrives_after_the_sender_has_ended(pair, tmp_path, transport):
    pair.run(check_sender_ended, str(tmp_path / "store"), transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_peer_that_does_not_answer(transport, number, tmp_path):
    """Nothing is waited for that a process which is stopped or dead would have to do."""
    with ranks(f"""
if rank == 1:
    os.kill(os.getpid(), {int(number)})
time.sleep(0.1)
try:
    works = [dist.all_reduce(torch.ones(4), async_op=True), dist.isend(torch.ones(1 << 24), 1)]
except dist.DistBackendError: # of a peer that is dead already
    pass
begun = time.monotonic()
dist.destroy_process_group()
say(f"{{time.monotonic() - begun:.3f}}", "destroyed")
""", 2, tmp_path, transport) as group:
        seconds, _ = told(group.line(0))
        assert seconds < 3  # 0.8 as a rule; it would be the timeout of the group


def check_other_roots(rank, transport):
    """Each rank is root of its own broadcast or scatter, which ends on it without the others."""
    calls = {
        "broadcast": lambda group: dist.broadcast(torch.full((100,), rank + 1.0), rank, group=group),
        "scatter": lambda group: dist.scatter(
            torch.zeros(100), [torch.full((100,), 1.0 * i) for i in range(dist.get_world_size())], rank, group=group
        ),
    }
    nexts = {
        "destroy": dist.destroy_process_group,
        "all_reduce": lambda group: dist.all_reduce(torch.ones(4), group=group),
        "monitored_barrier": dist.monitored_barrier,
    }
    for name, call in calls.items():
        for what, following in nexts.items():
            group = group_of(transport)
            call(group)
            with pytest.raises(dist.DistBackendError) as failure:
                following(group)
            text = str(failure.value)
            assert f"{name} seq 1" in text and "root 0" in text and "root 1" in text, f"{name}, {what}: {text}"
            dist.destroy_process_group(group)
    dist.barrier()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_other_roots_are_found(pair, transport):
    pair.run(check_other_roots, transport)
