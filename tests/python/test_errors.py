"""What a failed collective says: its kind is torch's, and the message names the own rank, the operation, its number and its sizes."""
import datetime
import re

import pytest
import torch
import torch.distributed as dist

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
        group.recv([torch.ones(5)], 1, 9).wait(SHORT)


# The provocation, its class in the message, and of each rank that has an error what it says besides its own number.
TABLE = {
    "another size": (other_size, "mismatch", [["all_reduce of 3 x f32 (sum), seq 2", "rank 1 called all_reduce seq 2, 4 x f32"],
                                              ["all_reduce of 4 x f32 (sum), seq 2", "rank 0 called all_reduce seq 2, 3 x f32"]]),
    "another type": (other_type, "mismatch", [["3 x f32 (sum), seq 2", "3 x i32"], ["3 x i32 (sum), seq 2", "3 x f32"]]),
    "another operator": (other_operator, "mismatch", [["3 x f32 (sum), seq 2", "max"], ["3 x f32 (max), seq 2", "sum"]]),
    "another collective": (other_collective, "mismatch|peer left", [["all_reduce of 3 x f32 (sum), seq 2"],
                                                                    ["broadcast of 3 x f32, root 0, seq 2"]]),
    "a rank that does not come": (absent, "timeout", [["all_reduce of 5 x f32 (sum), seq 2", "(rank 1)"], None]),
    "abort": (aborted, "aborted", [["all_reduce of 5 x f32 (sum), seq 2", "abort() was called"], None]),
    "after an abort": (aborted_before, "aborted", [["all_reduce of 5 x f32 (sum), not begun, after seq 1"], None]),
    "a rank that left": (left, "peer left", [["all_reduce of 5 x f32 (sum), seq 2", "(rank 1)"], None]),
    "a message of another size": (other_message, "mismatch", [None, ["recv of 5 x f32 from rank 0, tag 0", "20 bytes", "16 bytes"]]),
    "a message that does not come": (no_message, "timeout", [["recv of 5 x f32 from rank 1, tag 9"], None]),
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
        missing = [part for part in [f"rank {rank} of 2", *told[rank]] if part not in text]
        assert not missing and re.search(kind, text), f"{missing} or {kind} not in: {text}"
    else:
        assert not told[rank], "there was no error"
    dist.barrier()


@pytest.mark.parametrize("name", TABLE)
def test_messages(pair, name):
    pair.run(provoke, name)


def check_values(rank):
    """Settings that cannot be right are ValueErrors, what goccl does not do NotImplementedErrors."""
    backend = dist.group.WORLD._get_backend(CPU)
    with pytest.raises(ValueError, match="longer than zero"):
        backend.set_timeout(datetime.timedelta(0))
    with pytest.raises(NotImplementedError, match="avg is not defined for i32"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), op=OP.AVG)
    with pytest.raises(NotImplementedError, match="quantized"):
        backend.broadcast([torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)])


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
    missing = [part for part in ["rank 0 of 2", "all_reduce of 6 x f32 (sum), seq 2", "(rank 1)", "peer lost"] if part not in out]
    assert not missing, f"{missing} not in: {out}"
