"""How operations are in streams: what waits, what does not, and how long tensors are kept."""
import gc
import time

import pytest
import sim
import torch
import torch.distributed as dist
from common import until

MIB = 1 << 18  # elements of float32


def backend():
    return dist.group.WORLD._get_backend(torch.device("sim"))


def ones(n=1000, value=1.0):
    return torch.ones(n, device="sim") * value


def equal(t, value):
    assert t.cpu().eq(value).all(), (t, value)


def _wait_does_not_block(rank):
    """Neither the call nor wait() waits for what is in the stream before, here for ever, nor for the other rank."""
    source, t = ones(MIB), ones(MIB, 0.0)
    torch.sim.synchronize()
    with sim.held():
        begin = time.monotonic()
        t.copy_(source)
        work = dist.all_reduce(t, async_op=True)
        issued = time.monotonic()
        work.wait()
        dist.all_reduce(t)
        ended = time.monotonic()
        sim.settle()
        assert not work.is_completed()
        assert not torch.sim.current_stream().query()
    equal(t, 4.0)
    return issued - begin, ended - issued


def test_wait_does_not_block(pair):
    for times in pair.checked(_wait_does_not_block):
        assert max(times) < 5, times  # the group's timeout is 20 s


def _other_stream(rank):
    """The stream that is current at the call is waited for, and the one that is current at wait() waits."""
    side, third = torch.sim.Stream(), torch.sim.Stream()
    t = ones(50_000)
    side.wait_stream(torch.sim.current_stream())
    with torch.sim.stream(side):
        t.add_(1)
        work = dist.all_reduce(t, async_op=True)
    with torch.sim.stream(third):
        work.wait()
        u = t * 2
    torch.sim.current_stream().wait_stream(third)
    side.wait_stream(third)
    equal(u, 8.0)
    del t
    u.record_stream(torch.sim.current_stream())


def test_streams_of_the_caller(pair):
    pair.checked(_other_stream)


def _sees_mistakes(rank):
    """Without wait() the result is read too early, which the driver reports."""
    t = ones(50_000)
    work = dist.all_reduce(t, async_op=True)
    t.add_(1)
    torch.sim.synchronize()
    found = sim.reports()
    sim.forget()
    work.wait()
    torch.sim.synchronize()
    sim.forget()
    return found


def test_without_wait_is_a_race(pair):
    for found in pair.run(_sees_mistakes):
        assert any(report.startswith("race: ") for report in found), found


def _future(rank, coalesced):
    """A future is complete at once, and its callbacks run on a stream that waits for the result."""
    t, u = ones(MIB), ones(10)
    torch.sim.synchronize()
    with sim.held():
        if coalesced:
            work = dist.group.WORLD.allreduce_coalesced([t, u])
        else:
            work = dist.all_reduce(t, async_op=True)
        future = work.get_future()
        assert future.done()
        streams = []

        def double(f):
            streams.append(torch.sim.current_stream())
            return [x.clone() for x in f.value()]

        then = future.then(double)
        assert then.done() and streams[0] != torch.sim.current_stream()
        assert not streams[0].query()
    then.wait()
    equal(then.value()[0], 2.0)
    work.wait()
    del then, future, work


@pytest.mark.parametrize("coalesced", [False, True])
def test_future(pair, coalesced):
    pair.checked(_future, coalesced)


def _future_of_lists(rank):
    """The value of a future has the lists that the call was given."""
    n = dist.get_world_size()
    outputs = [[ones(value=0.0) for _ in range(2)] for _ in range(n)]
    work = backend().allgather_coalesced(outputs, [ones(value=rank + 1.0), ones(value=rank + 3.0)])
    value = work.get_future().wait()
    assert all(v is t for of, ts in zip(value, outputs, strict=True) for v, t in zip(of, ts, strict=True))
    work.wait()
    for r in range(n):
        equal(outputs[r][0], r + 1.0)
        equal(outputs[r][1], r + 3.0)
    with pytest.raises(RuntimeError, match="several lists"):
        work.result()


def test_future_of_lists(pair):
    pair.checked(_future_of_lists)


def _result_of(rank):
    """The future of the result is completed when the device has ended, although nobody waits."""
    t = ones()
    torch.sim.synchronize()
    with sim.held():
        work = dist.all_reduce(t, async_op=True)
        result = work.get_future_result()
        assert not result.done()
    result.wait()
    assert result.value() == 0 and work.is_completed() and work.is_success()
    work.wait()


def test_future_result(pair):
    pair.checked(_result_of)


def after(rank, first, call):
    """Calls on one rank first, and on the other when the first one has gone on: its operation cannot have ended."""
    token = torch.zeros(1)
    if rank != first:
        dist.recv(token, first)
    result = call()
    if rank == first:
        dist.send(token, 1 - first)
    return result


def _dropped(rank, strided):
    """Tensors and Works that nobody keeps stay until the operation has ended: the driver would report the reuse."""
    for turn in range(10):
        def call():
            whole = ones(20_000)
            dist.all_reduce(whole[::2] if strided else whole, async_op=True)
            del whole
            gc.collect()
            for _ in range(4):
                torch.zeros(20_000, device="sim").add_(1)
        # What has to be copied back is: by a kernel, and those of this device hold the host until they are executed.
        call() if strided else after(rank, turn % 2, call)
        torch.sim.synchronize()


@pytest.mark.parametrize("strided", [False, True])
def test_dropped(pair, strided):
    pair.checked(_dropped, strided)


def _inputs_are_kept(rank):
    """Packed copies of inputs are the backend's own, and are kept until wait()."""
    def call():
        work = dist.all_gather_into_tensor(out.view(-1), ones(60_000, rank + 1.0)[::2], async_op=True)
        torch.zeros(60_000, device="sim").add_(1)
        return work
    for turn in range(2):
        out = torch.zeros(2, 30_000, device="sim")
        after(rank, turn, call).wait()
        equal(out[0], 1.0)
        equal(out[1], 2.0)


def test_inputs_are_kept(pair):
    pair.checked(_inputs_are_kept)


def _messages(rank):
    n = dist.get_world_size()
    to, source = (rank + 1) % n, (rank - 1) % n
    big, got, small, told = ones(MIB, rank), torch.empty(MIB, device="sim"), ones(3, rank), ones(6, -1.0)[::2]
    for work in dist.batch_isend_irecv([
        dist.P2POp(dist.isend, big, to), dist.P2POp(dist.irecv, got, source),
        dist.P2POp(dist.isend, small, to), dist.P2POp(dist.irecv, told, source)]):
        work.wait()
    equal(got, source)
    equal(told, source)
    if rank == 0:
        any_source = torch.empty(5, device="sim")
        seen = set()
        for _ in range(n - 1):
            work = dist.irecv(any_source)
            work.wait()
            torch.sim.synchronize()
            seen.add(int(any_source[0].item()))
        assert seen == set(range(1, n)), seen
    else:
        dist.send(ones(5, rank), 0)


def test_messages(pair, quartet):
    pair.checked(_messages)
    quartet.checked(_messages)


def _one_queue(rank):
    """Both ranks receive before they send, also what is longer than all slots, and make other calls in between."""
    peer, n = 1 - rank, 10 * MIB
    for turn in range(3):
        sent, got = ones(n, rank + 1.0 + turn), torch.empty(n, device="sim")
        also, told = ones(3, rank), ones(3, -1.0)
        total = ones(1000, rank + 1.0)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.irecv, got, peer), dist.P2POp(dist.irecv, told, peer),
            dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.isend, also, peer)])
        dist.all_reduce(total)
        for work in works:
            work.wait()
        equal(got, peer + 1.0 + turn)
        equal(told, peer)
        equal(total, 3.0)


@pytest.mark.parametrize("route", ["staged", "windows"])
def test_one_queue(worlds, route):
    """All streams of a process share one hardware queue, as with CUDA_DEVICE_MAX_CONNECTIONS=1."""
    worlds(2, route=route, queues=1).checked(_one_queue)


def _barrier(rank):
    """A barrier waits for what is in this rank's stream."""
    t = ones(MIB)
    dist.all_reduce(t)
    dist.barrier()
    assert torch.sim.current_stream().query()
    dist.barrier(device_ids=[0])
    equal(t, float(dist.get_world_size()))


def test_barrier(pair):
    pair.checked(_barrier)


def _timed_wait(rank):
    """With a timeout wait() waits for the device."""
    from datetime import timedelta

    t = ones(MIB)
    work = dist.all_reduce(t, async_op=True)
    assert work.wait(timedelta(seconds=10))
    assert work.is_completed() and work.is_success()
    sim.order()
    equal(t, 2.0)


def test_timed_wait(pair):
    pair.checked(_timed_wait)


def _wait_runs_out(rank):
    """A wait that runs out raises and nothing else: the call goes on when the stream does, as do those after it."""
    from datetime import timedelta

    t, other = ones(MIB), ones(10)
    torch.sim.synchronize()
    with sim.held():
        works = [dist.all_reduce(t, async_op=True), dist.all_reduce(other, async_op=True)]
        with dist._coalescing_manager(device=t.device, async_ops=True) as block:
            dist.all_reduce(t)
            dist.all_reduce(other)
        works += block.works
        for work in works:
            for _ in range(2):
                with pytest.raises(dist.DistBackendError, match="the time of this wait is over"):
                    work.wait(timedelta(milliseconds=20))
                assert not work.is_completed() and not work.is_success()
    for work in works:
        assert work.wait(timedelta(seconds=10)) and work.is_completed() and work.is_success()
    sim.order()
    equal(t, 4.0)
    equal(other, 4.0)


def test_a_wait_that_runs_out(pair):
    pair.checked(_wait_runs_out)


def _mixed(rank):
    """Tensors of the host and of the device have groups of their own, which do not wait for each other."""
    host, device = torch.ones(1000), ones(1000)
    torch.sim.synchronize()
    with sim.held():
        work = dist.all_reduce(device, async_op=True)
        dist.all_reduce(host)
        assert host.eq(2).all()
    work.wait()
    equal(device, 2.0)
    seq = backend()._get_sequence_number_for_group()
    dist.all_reduce(host)
    dist.all_reduce(device)
    assert backend()._get_sequence_number_for_group() == seq + 2
    with pytest.raises(RuntimeError, match="all tensors must be on the same device"):
        backend().allgather([[device.cpu(), device.cpu()]], [device])


def test_host_and_device(pair):
    pair.checked(_mixed)


def _refused(rank, calls):
    """A call in a stream that is in capture is refused, and does not spoil what is captured; the group goes on."""
    t, side = ones(), torch.sim.Stream()
    peers = dist.get_world_size()
    dist.all_reduce(t.clone())  # ranks connect for a device outside of captures
    torch.sim.synchronize()
    for call in calls:
        with torch.sim.stream(side), sim.captured(side) as graph:
            with pytest.raises(NotImplementedError, match="capture.*the route of this group is"):
                call(t, peers - 1 - rank)
        graph.destroy()
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    equal(t, float(peers))


def _staged_in_capture(rank):
    _refused(rank, [lambda t, _: dist.all_reduce(t),
                    lambda t, _: dist.group.WORLD.allreduce_coalesced([t, t.view(-1)[:5]])])


def _message_in_capture(rank):
    _refused(rank, [lambda t, peer: dist.send(t, peer)])


def test_staged_calls_in_capture_are_refused(quartet):
    quartet.checked(_staged_in_capture)


def test_messages_in_capture_are_refused(pair):
    pair.checked(_message_in_capture)


def _graphs(rank):
    """Collectives over windows are part of graphs: with wait() at once or later, coalesced, in another stream."""
    n = dist.get_world_size()
    side, other = torch.sim.Stream(), torch.sim.Stream()
    t, all_of = ones(60_000, 0.0), ones(n * 60_000, 0.0)
    some = [ones(100, 0.0), ones(30_000, 0.0)]
    dist.all_reduce(t)  # ranks connect for a device outside of captures
    torch.sim.synchronize()
    with torch.sim.stream(side), sim.captured(side) as first:
        dist.all_reduce(t)
        work = dist.all_gather_into_tensor(all_of, t, async_op=True)
        assert not work.is_completed()
        work.wait()
        assert work.is_completed()
    with torch.sim.stream(side), sim.captured(side) as second:
        works = [dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True) for x in some]
        for work in works:
            work.get_future().wait()
        dist.broadcast(t, 1)
    for k in range(10):
        t.fill_(rank + k)
        for x in some:
            x.fill_(10 * rank + k)
        torch.sim.synchronize()
        first.launch()
        side.synchronize()
        equal(all_of, sum(range(n)) + n * k)
        if k % 3 == 0:
            dist.all_reduce(all_of)
        t.fill_(rank + 7)
        torch.sim.synchronize()
        second.launch(other)
        other.synchronize()
        equal(t, 8.0)
        for x in some:
            equal(x, 10.0 * (n - 1) + k)
    first.destroy()
    second.destroy()


def test_graphs(pair):
    pair.checked(_graphs)


def _objects(rank):
    n = dist.get_world_size()
    all_of = [None] * n
    dist.all_gather_object(all_of, {"rank": rank})
    assert [o["rank"] for o in all_of] == list(range(n))


def test_objects(pair):
    pair.checked(_objects)


def _subgroups(rank):
    """Each group has device groups of its own; split and new_group."""
    evens, odds = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine = evens if rank % 2 == 0 else odds
    t = ones(100, rank)
    dist.all_reduce(t, group=mine)
    equal(t, 2.0 if rank % 2 == 0 else 4.0)
    u = ones(100, rank)
    dist.all_reduce(u)
    equal(u, 6.0)
    dist.destroy_process_group(mine)


def test_subgroups(quartet):
    quartet.checked(_subgroups)


def _observed(rank):
    """Profilers have a range for each call; hooks and durations see the end on the device."""
    group = dist.new_group()
    t = ones()
    dist.all_reduce(t, group=group)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(t, group=group)
    assert "goccl:all_reduce" in {event.name for event in profile.events()}
    group._enable_collectives_timing()
    ended = []
    goccl = group._get_backend(torch.device("sim"))
    hooks = hasattr(goccl, "_register_on_completion_hook")  # older torch has it for a group's default backend only
    if hooks:
        goccl._register_on_completion_hook(lambda info: ended.append(info.seq))
    torch.sim.synchronize()
    with sim.held():
        work = dist.all_reduce(t, group=group, async_op=True)
        assert not ended
    if hooks:
        goccl._wait_for_pending_works()
        assert len(ended) == 1
    work.wait()
    until(work.is_completed, "the operation hangs")
    assert work._get_duration() > 0
    equal(t, 8.0)
    dist.destroy_process_group(group)


def test_observers(pair):
    pair.checked(_observed)
