"""Errors are of torch's kinds, and name group, own rank, operation, its number and its sizes."""
import datetime
import multiprocessing
import os
import re
import threading

import pytest
import torch
import torch.distributed as dist
from common import until

OP = dist.ReduceOp
SHORT = datetime.timedelta(seconds=0.5)
CPU = torch.device("cpu")


def opts(kind, **fields):
    o = kind()
    for name, value in fields.items():
        setattr(o, name, value)
    return o


def other_size(group, rank):
    dist.all_reduce(torch.ones(3 + rank), group=group)


def other_type(group, rank):
    dist.all_reduce(torch.ones(3, dtype=[torch.float32, torch.int32][rank]), group=group)


def other_operator(group, rank):
    dist.all_reduce(torch.ones(3), op=[OP.SUM, OP.MAX][rank], group=group)


def other_collective(group, rank):
    if rank == 0:
        dist.all_reduce(torch.ones(3), group=group)
    else:
        dist.broadcast(torch.ones(3), group_src=0, group=group)


def absent(group, rank):
    if rank == 0:
        group.allreduce([torch.ones(5)], opts(dist.AllreduceOptions, timeout=SHORT)).wait()


def aborted(group, rank):
    if rank == 0:
        work = dist.all_reduce(torch.ones(5), group=group, async_op=True)
        group.abort()
        work.wait()


def aborted_before(group, rank):
    if rank == 0:
        group.abort()
        dist.all_reduce(torch.ones(5), group=group)


def left(group, rank):
    if rank == 0:
        dist.all_reduce(torch.ones(5), group=group)
    else:
        group._get_backend(CPU).shutdown()


def other_message(group, rank):
    if rank == 0:
        dist.send(torch.ones(4), group=group, group_dst=1)
    else:
        dist.recv(torch.ones(5), group=group, group_src=0)


def no_message(group, rank):
    if rank == 0:
        group.set_timeout(SHORT)
        group.recv([torch.ones(5)], 1, 9).wait()


def absent_asynchronously(group, rank):
    if rank == 0:
        group.set_timeout(SHORT)
        dist.all_reduce(torch.ones(5), group=group, async_op=True).wait()


def absent_in_a_block(group, rank):
    if rank == 0:
        group.set_timeout(SHORT)
        with dist._coalescing_manager(group=group, device=CPU, async_ops=True) as block:
            dist.all_reduce(torch.ones(5), group=group)
        block.works[0].wait()


def absent_and_sparse(group, rank):
    if rank == 0:
        group.set_timeout(SHORT)
        dist.all_reduce(torch.eye(3).to_sparse(), group=group, async_op=True).wait()


def behind(group, rank):
    """The error of a wait behind another operation that fails names both operations."""
    if rank == 0:
        group.set_timeout(SHORT)
        first, second = [dist.all_reduce(torch.ones(n), group=group, async_op=True) for n in (5, 6)]
        with pytest.raises(dist.DistBackendError, match="5 x f32"):
            first.wait()
        second.wait()


def after(group, rank):
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="5 x f32"):
            absent(group, rank)
        dist.all_gather([torch.ones(6), torch.ones(6)], torch.ones(6), group=group)


def closed(group, rank):
    """An operation that was in flight when its group was destroyed."""
    if rank == 0:
        work = dist.irecv(torch.ones(5), group=group, group_src=1)
        group._get_backend(CPU).shutdown()
        work.wait()


def closed_before(group, rank, asynchronous=False):
    if rank == 0:
        group._get_backend(CPU).shutdown()
        dist.all_reduce(torch.ones(5), group=group, async_op=asynchronous)


def monitored(group, rank):
    import goccl

    if rank == 0:
        goccl.monitored_barrier(group, timeout=SHORT)


SUM5 = "all_reduce of 5 x f32 (sum), "
# The call that fails, the class in the message, and for each rank that has an error the parts of the message besides
# the group and the rank's own number.
TABLE = {
    "another size": (other_size, "mismatch",
                     [["all_reduce of 3 x f32 (sum), seq 2", "rank 1 called all_reduce seq 2, 4 x f32"],
                      ["all_reduce of 4 x f32 (sum), seq 2", "rank 0 called all_reduce seq 2, 3 x f32"]]),
    "another type": (other_type, "mismatch",
                     [["3 x f32 (sum), seq 2", "3 x i32"], ["3 x i32 (sum), seq 2", "3 x f32"]]),
    "another operator": (other_operator, "mismatch",
                         [["3 x f32 (sum), seq 2", "max"], ["3 x f32 (max), seq 2", "sum"]]),
    "another collective": (other_collective, "mismatch|peer left", [["all_reduce of 3 x f32 (sum), seq 2"],
                                                                    ["broadcast of 3 x f32, root 0, seq 2"]]),
    "a rank that does not come": (absent, "timeout", [[SUM5 + "seq 2", "(rank 1)"], None]),
    "the same, asynchronous": (absent_asynchronously, "timeout", [[SUM5 + "seq 2", "(rank 1)"], None]),
    "the same, in a block": (absent_in_a_block, "timeout", [[SUM5 + "seq 2", "(rank 1)"], None]),
    "the same, sparse": (absent_and_sparse, "timeout", [["sparse_all_reduce of Float [3, 3]", "seq 2"], None]),
    "behind another operation": (behind, "timeout",
                                 [["all_reduce of 6 x f32 (sum), seq 3", "the group failed in " + SUM5 + "seq 2",
                                   "(rank 1)"], None]),
    "after a failure": (after, "timeout",
                        [["all_gather of 2x6 x f32, not begun, after seq 2",
                          "the group failed in " + SUM5 + "seq 2"], None]),
    "abort": (aborted, "aborted", [[SUM5 + "seq 2", "abort() was called"], None]),
    "after an abort": (aborted_before, "aborted", [[SUM5 + "not begun, after seq 1"], None]),
    "a rank that left": (left, "peer left", [[SUM5 + "seq 2", "(rank 1)"], None]),
    "a message of another size": (other_message, "mismatch",
                                  [None, ["recv of 5 x f32 from rank 0, tag 0, seq 1", "20 bytes", "16 bytes"]]),
    "a message that does not come": (no_message, "timeout", [["recv of 5 x f32 from rank 1, tag 9, seq 1"], None]),
    "the end of the group itself": (closed, "closed", [["recv of 5 x f32 from rank 1, tag 0, seq 1"], None]),
    "after the end of the group": (closed_before, "was shut down",
                                   [["all_reduce of 5 x f32 (sum)", "after seq 1"], None]),
    "after the end, asynchronous": (lambda *args: closed_before(*args, asynchronous=True), "was shut down",
                                    [["all_reduce of 5 x f32 (sum)", "after seq 1"], None]),
    "a monitored barrier": (monitored, "timeout",
                            [["monitored_barrier, seq 1", "Rank 1 failed to pass", "rank 1 is in no call since seq 1"],
                             None]),
}


def provoke(rank, name):
    provocation, kind, told = TABLE[name]
    group = dist.new_group(timeout=datetime.timedelta(seconds=20))
    dist.barrier(group=group)
    try:
        provocation(group, rank)
    except Exception as e:
        assert told[rank], f"rank {rank} got {e!r}"
        assert type(e) is dist.DistBackendError, repr(e)
        text = str(e)
        missing = [part for part in [f"group {group.group_name}, rank {rank} of 2", *told[rank]] if part not in text]
        assert not missing and re.search(kind, text), f"{missing} or {kind} not in: {text}"
    else:
        assert not told[rank], "there was no error"
    dist.barrier()


@pytest.mark.parametrize("name", TABLE)
def test_messages(pair, name):
    pair.run(provoke, name)


def in_a_fork(work, results):
    said = []
    for call in (work.wait, lambda: dist.all_reduce(torch.ones(6))):
        try:
            call()
        except dist.DistBackendError as e:
            said.append(str(e))
    results.put(said)


def check_fork(rank):
    """A fork has the objects of its parent, but must not communicate; the error names the call."""
    name = dist.group.WORLD.group_name
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    if rank == 0:
        work = dist.all_reduce(torch.ones(5), async_op=True)
        child = context.Process(target=in_a_fork, args=(work, results))
        child.start()
        of_work, of_call = results.get(timeout=60)
        child.join(60)
        assert child.exitcode == 0
        assert re.search("goccl:all_reduce: rank 0, seq [1-9][0-9]*: this process was forked", of_work), of_work
        assert f"goccl:all_reduce of 6 x Float: group {name}, rank 0 of 2: this process was forked" in of_call, of_call
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        dist.recv(torch.ones(1), 0)
        dist.all_reduce(torch.ones(5))


def test_forks(pair):
    pair.run(check_fork)


def join(store, rank, seconds, name, pg_options=None):
    """Makes a group of two over its own store."""
    import goccl

    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size, options.group_id = store, rank, 2, name
    options.timeout, options.global_ranks_in_group = datetime.timedelta(seconds=seconds), [0, 1]
    return goccl._create(options, pg_options)


def check_values(rank):
    """Invalid calls are refused before any data moves.

    The errors are of torch's kinds, and name group and rank but no number.
    """
    import goccl

    world = dist.group.WORLD
    backend, me = world._get_backend(CPU), f"group {world.group_name}, rank {rank} of 2: "
    integers, quantized = (torch.ones(2, dtype=torch.int32),
                           torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8))
    for kind, parts, call in [
        (ValueError, ["set_timeout", "longer than zero"], lambda: backend.set_timeout(datetime.timedelta(0))),
        (NotImplementedError, ["all_reduce", "avg is not defined for i32"],
         lambda: dist.all_reduce(integers, op=OP.AVG)),
        (NotImplementedError, ["goccl:broadcast", "quantized"], lambda: backend.broadcast([quantized])),
        (RuntimeError, ["goccl:_all_gather_base", "must have 4 elements", "got 5"],
         lambda: backend._allgather_base(torch.ones(5), torch.ones(2))),
        (RuntimeError, ["goccl:send", "invalid rank 7", "2 ranks"], lambda: world.send([torch.ones(2)], 7, 0)),
        (NotImplementedError, ["sparse_all_reduce", "SUM and"],
         lambda: dist.all_reduce(torch.eye(2).to_sparse(), op=OP.MAX)),
    ]:
        with pytest.raises(kind) as caught:
            call()
        missing = [part for part in [me, *parts] if part not in str(caught.value)]
        assert type(caught.value) is kind and not missing, f"{missing} not in: {caught.value!r}"
    with pytest.raises(ValueError, match=f"group wrong, rank {rank} of 2.*GOCCL_TRANSPORT=pigeon"):
        join(dist.HashStore(), rank, 5, "wrong", goccl.Options(transport="pigeon"))


def test_kinds_of_errors(pair):
    pair.run(check_values)


def test_a_peer_that_dies(python):
    out = python("""
        import datetime, os, sys, tempfile
        import torch, torch.distributed as dist, torch.multiprocessing as mp

        def rank(r, store):
            import goccl
            torch.set_num_threads(1)
            dist.init_process_group("goccl", store=dist.FileStore(store, 2), rank=r, world_size=2,
                                    timeout=datetime.timedelta(seconds=30))
            dist.barrier()
            if r == 1:
                os._exit(0)
            try:
                dist.all_reduce(torch.ones(6))
            except dist.DistBackendError as e:
                print(e, flush=True)

        if __name__ == "__main__":
            mp.start_processes(rank, (tempfile.mkdtemp() + "/store",), 2, start_method="fork")
        """)
    missing = [part for part in ["rank 0 of 2", "all_reduce of 6 x f32 (sum), seq 2", "(rank 1)", "peer lost"]
               if part not in out]
    assert not missing, f"{missing} not in: {out}"


def come_and_go(path, transport):
    """Rank 1 leaves its address in the store, is counted, and dies."""
    import goccl

    store = dist.FileStore(path, 2)
    threading.Thread(target=join, args=(store, 1, 60, "tp", goccl.Options(transport=transport)), daemon=True).start()
    until(lambda: store.check(["goccl/count/1"]), "the address did not come into the store")
    os._exit(0)


def tell(results, store, seconds, *args):
    """Puts the kind and the text of rank 0's failure to join into results."""
    try:
        join(store, 0, seconds, "tp", *args)
    except Exception as e:
        results.put((type(e).__name__, str(e)))
    else:
        results.put(("no error", ""))


def come_late(path, transport, results):
    import goccl

    tell(results, dist.FileStore(path, 2), 2, goccl.Options(transport=transport))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_peer_that_cannot_be_reached(transport, tmp_path):
    context = multiprocessing.get_context("forkserver")
    first = context.Process(target=come_and_go, args=(f"{tmp_path}/store", transport))
    first.start()
    first.join(60)
    assert first.exitcode == 0
    results = context.Queue()
    second = context.Process(target=come_late, args=(f"{tmp_path}/store", transport, results))
    second.start()
    kind, text = results.get(timeout=60)
    second.join(60)
    assert kind == "DistNetworkError", (kind, text)
    why = r"rank 1 \(pid \d+ on .*\) came, but its process has ended, and no other one has come as this rank within 2 s"
    assert re.search(rf"group tp, rank 0 of 2: join: peer lost \(rank 1\): {why}", text), text


def serve(ports):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ports.put(store.port)
    threading.Event().wait()  # until the process is killed


def wait_in_store(port, waiting, results):
    store, other = [dist.TCPStore("127.0.0.1", port, is_master=False) for _ in range(2)]
    thread = threading.Thread(target=tell, args=(results, store, 60))
    thread.start()
    other.wait(["goccl/offer/1/0/1"])
    waiting.put(True)
    thread.join()


def test_a_store_that_dies(tmp_path):
    context = multiprocessing.get_context("forkserver")
    ports, waiting, results = [context.Queue() for _ in range(3)]
    server = context.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    rank = context.Process(target=wait_in_store, args=(ports.get(timeout=60), waiting, results))
    rank.start()
    assert waiting.get(timeout=60)
    server.kill()
    kind, text = results.get(timeout=60)
    rank.join(60)
    assert kind == "DistNetworkError", (kind, text)
    assert "group tp, rank 0 of 2: join: the store" in text, text
