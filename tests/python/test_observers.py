"""Observers of operations: completion and abort hooks, WorkInfo, errors, added time, torch's flight recorder."""
import os
import pickle
import threading
import time

import pytest
import torch
import torch.distributed as dist
from common import TORCH, seconds, since, until

import goccl

CPU = torch.device("cpu")


def check_info(rank):
    """Operations of every kind are reported once, whether a caller waits for them or drops them."""
    group = dist.new_group([0, 1])
    found = []
    group._register_on_completion_hook(found.append)
    assert group._has_hooks()
    with pytest.raises(RuntimeError, match="one completion hook"):
        group._register_on_completion_hook(found.append)
    t = torch.ones(4)
    begin = time.monotonic()
    dist.all_reduce(t, group=group)
    assert len(found) == 1
    dist.broadcast(t, 0, group=group, async_op=True).wait()
    kept = dist.all_gather([torch.zeros(4), torch.zeros(4)], t, group=group, async_op=True)
    until(lambda: len(found) == 3, "an operation nobody waits for was not reported")
    dist.isend(t, 1 - rank, group=group)  # dropped at once
    dist.irecv(torch.zeros(4), 1 - rank, group=group).wait()
    group._wait_for_pending_works()
    assert len(found) == 5
    kept.wait()
    took = seconds(time.monotonic() - begin)
    names = [str(info.op_type).rpartition(".")[2] for info in found]
    assert names[:3] == ["ALLREDUCE", "BROADCAST", "ALLGATHER"] and sorted(names[3:]) == ["RECV", "SEND"], names
    assert [info.seq for info in found[:3]] == sorted({info.seq for info in found[:3]})
    for info in found:
        assert info.time_started <= info.time_finished and seconds(0) <= info.active_duration <= took
    assert torch.equal(t, torch.full((4,), 2.0))
    dist.destroy_process_group(group)
    assert len(found) == 5


def test_completion_hook(pair):
    pair.run(check_info)


def check_order_of_reports(rank):
    """Ends are reported in the order of the calls, and before wait() returns, whichever thread sees an end first."""
    os.environ.update(TORCH_FR_BUFFER_SIZE="2000")
    group = dist.new_group([0, 1])
    del os.environ["TORCH_FR_BUFFER_SIZE"]
    found = []
    group._register_on_completion_hook(found.append)
    t, last = torch.ones(4), 0
    for turn in range(100):
        if turn % 2 == rank and turn % 5 == 0:
            time.sleep(0.002)  # the other rank's helper thread sees some ends, its caller others
        works = [dist.all_reduce(t, group=group, async_op=True) for _ in range(3)]
        for work in (works, works[::-1], works[1:], works[2:])[turn % 4]:
            work.wait()
            last = 3 * turn + works.index(work) + 1
            assert [info.seq for info in found][last - 1] == last
        last = 3 * turn + 3
        assert [info.seq for info in found] == list(range(1, last + 1))
        if TORCH >= (2, 15) and turn % 10 < 3:  # torch counts from 0
            record = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(backend="goccl"))
            assert last - 1 in [each["last_completed_collective"] for each in record["pg_status"].values()], record
    dist.destroy_process_group(group)


def test_ends_are_reported_in_order(pair):
    pair.run(check_order_of_reports)


def check_hook_that_fails(rank):
    group = dist.new_group([0, 1])
    calls = []

    def hook(info):
        calls.append(info)
        raise RuntimeError("of the hook")

    group._register_on_completion_hook(hook)
    dist.barrier(group=group)
    t = torch.ones(2)
    dist.all_reduce(t, group=group, async_op=True).wait()
    assert t.tolist() == [2.0] * 2 and len(calls) == 2
    dist.destroy_process_group(group)


def test_a_hook_that_fails_harms_no_operation(pair):
    pair.run(check_hook_that_fails)


def check_abort_hook(rank):
    """The hook is called once, for the first failure, on a thread of the library, for which no caller waits.

    get_error gives the kind of the failure.
    """
    group = dist.new_group([0, 1], timeout=seconds(20))
    from torch._C._distributed_c10d import ErrorType

    backend = group._get_backend(CPU)
    assert backend.supports_abort_hooks and backend.get_error() == ErrorType.SUCCESS
    calls, called, heard = [], threading.Event(), threading.Event()

    def hook():
        assert heard.wait(30)  # the caller gets its error while this runs
        calls.append(threading.get_ident())
        called.set()

    backend.register_abort_hook(7, hook)
    backend.register_abort_hook(8, lambda: calls.append("gone"))
    backend.unregister_abort_hook(8)
    with pytest.raises(RuntimeError):  # a wrong argument is not a failure
        dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND, group=group)
    assert calls == [] and backend.get_error() == ErrorType.SUCCESS
    dist.barrier()
    if rank == 0:
        options = dist.AllreduceOptions()
        options.timeout, options.asyncOp = seconds(0.2), False
        with pytest.raises(dist.DistBackendError):
            group.allreduce([torch.ones(2)], options)
        assert calls == [] and backend.get_error() == ErrorType.TIMEOUT
        with pytest.raises(dist.DistBackendError):
            dist.barrier(group=group)
    dist.barrier()
    if rank == 1:
        with pytest.raises(dist.DistBackendError):  # the first operation may succeed, if all its data has arrived
            for _ in range(2):
                dist.all_reduce(torch.ones(2), group=group, async_op=True).wait()
        assert calls == [] and backend.get_error() != ErrorType.SUCCESS
    heard.set()
    backend.unregister_abort_hook(7)  # waits for the hook
    assert called.is_set() and len(calls) == 1 and calls != [threading.get_ident()]
    dist.destroy_process_group(group)


@since((2, 15), "supports_abort_hooks and get_error of a backend came with torch 2.15")
def test_abort_hook(pair):
    pair.run(check_abort_hook)


def check_abort(rank):
    """abort ends operations for which other threads wait, names the rank, and leaves a group that can be shut down."""
    group = dist.new_group([0, 1])
    dist.barrier(group=group)
    if rank == 0:
        failures = []

        def wait():
            try:
                group.recv([torch.zeros(1)], 1, 0).wait()
            except dist.DistBackendError as e:
                failures.append(str(e))

        waiting = threading.Thread(target=wait)
        waiting.start()
        pending = dist.irecv(torch.zeros(1), 1, group=group, tag=3)
        group.abort()
        waiting.join(30)
        with pytest.raises(dist.DistBackendError, match=r"abort\(\) was called on this rank"):
            pending.wait()
        assert len(failures) == 1 and "abort() was called on this rank" in failures[0], failures
        with pytest.raises(dist.DistBackendError, match="abort"):
            dist.all_reduce(torch.ones(1), group=group)
    else:
        with pytest.raises(dist.DistBackendError, match="rank 0"):  # the rank that aborted
            dist.all_reduce(torch.ones(1), group=group)
    dist.distributed_c10d._abort_process_group(group)
    dist.barrier()
    # shutdown with operations that have not ended
    group = dist.new_group([0, 1])
    work = dist.irecv(torch.zeros(1), 1 - rank, group=group)
    dist.destroy_process_group(group)
    with pytest.raises(dist.DistBackendError):
        work.wait()
    dist.barrier()


def test_abort(pair):
    pair.run(check_abort)


def check_added_time(rank):
    """Operations that begin before the first of them ends have more time; later ones do not."""
    group = dist.new_group([0, 1], timeout=seconds(20))
    backend = group._get_backend(CPU)
    backend._add_ephemeral_timeout(seconds(0))  # as torch.compile does if its cache has saved less than a second
    with pytest.raises(ValueError, match="negative"):
        backend._add_ephemeral_timeout(seconds(-1))
    options = dist.BarrierOptions()
    options.timeout = seconds(0.3)
    backend._add_ephemeral_timeout(seconds(20))
    if rank == 1:
        time.sleep(0.8)  # later than the operation's own timeout
    group.barrier(options).wait()
    dist.barrier(group=group)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="timeout"):
            group.barrier(options).wait()
    dist.barrier()
    dist.destroy_process_group(group)


@since((2, 14), "time that is added to timeouts came with torch 2.14")
def test_added_time(pair):
    pair.run(check_added_time)


def check_memory(rank):
    backend = dist.group.WORLD._get_backend(CPU)
    before = backend.memory_stats()
    tensor = goccl.empty(1000, dtype=torch.float64)
    during = backend.memory_stats()
    assert during["registered_bytes"] == before["registered_bytes"] + 8000
    assert during["registered_blocks"] == before["registered_blocks"] + 1
    del tensor
    after = backend.memory_stats()
    assert after["registered_bytes"] == before["registered_bytes"] and after["registered_bytes_peak"] >= 8000
    with pytest.raises(RuntimeError, match="does not support suspend"):
        backend.suspend()


@since((2, 12), "memory statistics came with torch 2.12")
def test_memory_stats(pair):
    pair.run(check_memory)


def check_fsdp_buffers(rank):
    """FSDP2 takes the buffers of its collectives from the backend if it is configured to."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    backend = dist.group.WORLD._get_backend(CPU)
    before = backend.memory_stats()["registered_bytes_peak"] if TORCH >= (2, 12) else 0
    torch.manual_seed(3)
    model = torch.nn.Linear(256, 256)
    whole, bias = model.weight.detach().clone(), model.bias.detach().clone()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    model.set_allocate_memory_from_process_group_for_comm(True)
    x = torch.ones(2, 256)
    out = model(x)
    assert torch.allclose(out, torch.nn.functional.linear(x, whole, bias))
    out.sum().backward()
    assert torch.equal(model.weight.grad.full_tensor(), torch.full((256, 256), 2.0))
    if TORCH >= (2, 12):
        assert backend.memory_stats()["registered_bytes_peak"] >= before + 256 * 256 * 4


def test_fsdp_buffers(pair):
    pair.run(check_fsdp_buffers)


def called(rank, group, slow):
    """Runs some operations, then one in which ranks disagree or which rank 1 does not call.

    Yields before that one and after it.
    """
    t = torch.ones(4)
    dist.all_reduce(t, group=group)
    dist.all_gather([torch.zeros(4), torch.zeros(4)], t, group=group, async_op=True).wait()
    kept = dist.broadcast(t, 0, group=group, async_op=True)
    dist.reduce_scatter_tensor(torch.zeros(2), t, group=group)
    yield kept
    kept.wait()
    if rank == 0 or not slow:
        try:
            dist.all_reduce(torch.ones(4 + (0 if slow else rank)), group=group)
        except dist.DistBackendError:
            pass
        else:
            raise AssertionError("the last operation did not fail")
    yield None


def check_torch_recorder(rank, folder, slow):
    """torch's own recorder, which is connected if one of its variables is set."""
    os.environ.update(TORCH_FR_BUFFER_SIZE="2000", TORCH_FR_DUMP_TEMP_FILE=f"{folder}/failure_")
    group = dist.new_group([0, 1], timeout=seconds(1 if slow else 20))
    del os.environ["TORCH_FR_BUFFER_SIZE"], os.environ["TORCH_FR_DUMP_TEMP_FILE"]
    torch._C._distributed_c10d._reset_fr_trace("goccl")

    def entries():
        return pickle.loads(torch._C._distributed_c10d._dump_fr_trace(backend="goccl"))["entries"]

    steps = called(rank, group, slow)
    next(steps)
    until(lambda: all(e["state"] == "completed" for e in entries()), "an operation is not completed in the trace")
    found = entries()
    assert [e["profiling_name"].split(":")[0] for e in found] == ["goccl"] * 4
    names = [e["profiling_name"].split(":")[1].split(" ")[0] for e in found]
    assert names == ["all_reduce", "all_gather", "broadcast", "_reduce_scatter_base"], names
    assert [e["collective_seq_id"] for e in found] == [1, 2, 3, 4]
    assert found[1]["input_sizes"] == [[4]] and found[1]["output_sizes"] == [[4], [4]]
    next(steps)
    assert [e["state"] for e in entries()].count("completed") == 4
    with open(f"{folder}/trace_{rank}", "wb") as file:
        file.write(torch._C._distributed_c10d._dump_fr_trace(backend="goccl"))
    dist.barrier()
    dist.destroy_process_group(group)


def check_recorder(rank, folder, slow):
    """goccl's recorder, which is always on: in memory at any time, in a file after a failure."""
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{folder}/trace_"
    group = dist.new_group([0, 1], timeout=seconds(1 if slow else 20), group_desc="of the test")
    del os.environ["TORCH_FR_DUMP_TEMP_FILE"]
    name = group.group_name

    def entries(record):
        return [e for e in record["entries"] if e["process_group"] == (name, "of the test")]

    steps = called(rank, group, slow)
    next(steps)
    until(lambda: all(e["state"] == "completed" for e in entries(goccl.flight_record())),
          "an operation is not completed in the record")
    record = goccl.flight_record()
    found = entries(record)
    assert [e["profiling_name"] for e in found] == [
        "goccl:all_reduce", "goccl:all_gather", "goccl:broadcast", "goccl:reduce_scatter"]
    assert [e["collective_seq_id"] for e in found] == [e["op_id"] for e in found] == [1, 2, 3, 4]
    assert (found[1]["input_sizes"] == [[4]] and found[1]["output_sizes"] == [[8]]
            and found[1]["input_dtypes"] == ["Float"])
    assert record["pg_config"][name]["ranks"] == "[0, 1]"
    times = [e["time_created_ns"] for e in found]
    assert times == sorted(times) and abs(times[-1] / 1e9 - time.time()) < 60
    assert all(e["time_created_ns"] <= e["time_discovered_completed_ns"] for e in found)
    next(steps)
    if rank == 1 and slow:  # on this rank nothing has failed
        with open(f"{folder}/trace_1", "wb") as file:
            file.write(pickle.dumps(goccl.flight_record()))
    dist.destroy_process_group(group)  # waits until the file is written
    if TORCH >= (2, 15) and (rank == 0 or not slow):  # torch's own dump calls return the operations at the failure
        assert len(entries(pickle.loads(torch._C._distributed_c10d._dump_fr_trace(backend="goccl")))) == 5
    with open(f"{folder}/trace_{rank}", "rb") as file:
        written = entries(pickle.load(file))
    states = [e["state"] for e in written]
    assert states == ["completed"] * 4 + ["scheduled"] * (rank == 0 or not slow), states
    dist.barrier()


def analysed(python, folder):
    """Checks torch's analysis of an operation that rank 1 did not call, and of one in which ranks disagreed."""
    out = python("""
        import sys
        from torch.distributed.flight_recorder import fr_trace
        for name in ("missing", "mismatch"):
            fr_trace.main([f"{sys.argv[1]}/{name}", "-p", "trace_"])
            print("==", flush=True)
    """, folder)
    missing, mismatch, _ = out.split("==")
    assert "collective: goccl:all_reduce" in missing and "missing ranks: {1}" in missing, out
    assert "SIZE_OR_SYNTAX_MISMATCH" in mismatch and "missing ranks" not in mismatch, out


def both_ways(pair, check, folder):
    for slow, name in ((True, "missing"), (False, "mismatch")):
        (folder / name).mkdir()
        pair.run(check, str(folder / name), slow)


@since((2, 15), "torch records operations of backends from outside, and says when they ended, from 2.15 on")
def test_torch_flight_recorder(pair, tmp_path, python):
    both_ways(pair, check_torch_recorder, tmp_path)
    analysed(python, tmp_path)


def test_flight_recorder(pair, tmp_path, python):
    """From the file that a failure leaves, torch's own analyzer names the missing rank, and the ranks that disagree."""
    both_ways(pair, check_recorder, tmp_path)
    if TORCH >= (2, 15):  # older versions support their own backends only
        analysed(python, tmp_path)


def check_coalesced_record(rank):
    """The parts of a batch have their own numbers, and an entry for the batch follows them."""
    group = dist.new_group([0, 1], group_desc="coalesced")
    t = torch.ones(4)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, t, 1 - rank, group),
                                    dist.P2POp(dist.irecv, torch.zeros(4), 1 - rank, group)])
    for work in works:
        work.wait()
    dist.all_reduce(t, group=group)
    with dist._coalescing_manager(group):
        for part in (torch.ones(2), torch.ones(3)):
            dist.all_reduce(part, group=group)
    found = [e for e in goccl.flight_record()["entries"] if e["process_group"] == (group.group_name, "coalesced")]
    names = [e["profiling_name"] for e in found]
    assert names == [f"goccl:send {rank}->{1 - rank}", f"goccl:recv {rank}<-{1 - rank}", "goccl:coalesced",
                     "goccl:all_reduce", "goccl:all_reduce", "goccl:all_reduce", "goccl:coalesced"], names
    assert [e["op_id"] for e in found] == list(range(1, 8))
    assert [e["is_p2p"] for e in found] == [True] * 3 + [False] * 4
    assert ([e["p2p_seq_id"] for e in found] == [2, 2, 2, 0, 0, 0, 0]
            and [e["collective_seq_id"] for e in found] == [0, 0, 0, 1, 3, 3, 3])
    assert {e["state"] for e in found} == {"completed"}
    dist.destroy_process_group(group)


def test_coalesced_record(pair):
    pair.run(check_coalesced_record)


def check_recorder_off(rank):
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"  # no recorder
    group = dist.new_group([0, 1], group_desc="off")
    del os.environ["TORCH_FR_BUFFER_SIZE"]
    dist.barrier(group=group)
    assert not [e for e in goccl.flight_record()["entries"] if e["process_group"][1] == "off"]
    dist.destroy_process_group(group)
    group = dist.new_group([0, 1], group_desc="short", pg_options=goccl.Options(extra={"GOCCL_RECORDER": "4"}))
    for _ in range(9):
        dist.barrier(group=group)
    ids = [e["op_id"] for e in goccl.flight_record()["entries"] if e["process_group"][1] == "short"]
    assert ids == [6, 7, 8, 9], ids
    dist.destroy_process_group(group)


def test_recorder_off(pair):
    pair.run(check_recorder_off)
