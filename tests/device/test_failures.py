"""What ends a group of a device: who is named, and that streams go on."""
import re
import time

import pytest
import sim
from scripts import RANK, Ranks, told

JOIN = """
import sim
sim.start({library!r}, {device!r}, rank)
os.environ.update({settings!r})
dist.init_process_group(sim.BACKEND, store=store, rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=30))
t = torch.ones(1000, device="sim")
dist.all_reduce(t)
torch.sim.synchronize()
dist.group.WORLD._get_backend(t.device).set_timeout(datetime.timedelta(seconds={timeout}))

def ends(what):
    begun = time.monotonic()
    what()
    say(f"{{time.monotonic() - begun:.3f}}")
"""


@pytest.fixture
def start(tmp_path):
    """Returns a function that starts ranks, which have run one all_reduce, with a script."""
    groups = []

    def begin(script, size=2, timeout=30, **settings):
        library, device = sim.build()
        join = JOIN.format(library=str(library), device=str(device), settings=settings, timeout=timeout)
        groups.append(Ranks(RANK + join + script, size, tmp_path, {}))
        return groups[-1]

    yield begin
    for group in groups:
        group.end()


@pytest.mark.parametrize("size, route", [(2, "staged"), (4, "auto")])
def test_a_killed_rank(start, size, route):
    """All others are told who has died, in their next call; the stream that waits is let go; the process lives on."""
    group = start("""
work = dist.all_reduce(t, async_op=True) if rank > 0 else None
say("ready")
listen()
if work:
    failure(work.wait)  # it is known by now or not
    ends(torch.sim.synchronize)
    failure(work.wait)
    failure(lambda: dist.all_reduce(t))
    assert work.is_completed() and not work.is_success()
    t.cpu()  # whose values are undefined
    say(torch.ones_like(t).sum().item())
    ends(dist.destroy_process_group)
""", size, GOCCL_CUDA_ROUTE=route)
    for rank in range(size):
        assert group.line(rank) == "ready"
    begun = time.monotonic()
    group.kill(0)
    for rank in range(1, size):
        group.tell(rank)
    for rank in range(1, size):
        group.line(rank)
        seconds = float(group.line(rank))
        assert time.monotonic() - begun < 1 + 0.2 * size, seconds
        for _ in range(2):
            _, text = told(group.line(rank))
            assert re.search(rf"group 0/cuda, rank {rank} of {size}: all_reduce of .*: peer lost \(rank 0\): .*"
                             rf"shm: process {group.processes[0].pid} on this host was killed by signal 9", text), text
        assert group.line(rank) == "1000.0"
        assert float(group.line(rank)) < 6


@pytest.mark.parametrize("route", ["windows", "host-windows"])
def test_over_windows(start, route):
    """Collectives of processes that read each other's windows, and a killed one."""
    group = start("""
for n in (1, 1000, 300_001):
    x = torch.arange(n, dtype=torch.float32, device="sim") + rank
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    parts = [torch.empty(n, device="sim") for _ in range(size)]
    dist.all_gather(parts, x + rank)
    swapped = torch.empty(size * n, device="sim")
    dist.all_to_all_single(swapped, torch.cat(parts))
    dist.broadcast(swapped, 1)
    want = torch.arange(n) + 0.5
    assert [torch.equal(part.cpu(), want + i) for i, part in enumerate(parts)] == [True] * size
    assert torch.equal(swapped.cpu(), torch.cat([want + 1] * size))
assert sim.reports() == []
work = dist.all_reduce(t, async_op=True) if rank > 0 else None
say("ready")
listen()
ends(torch.sim.synchronize)
failure(lambda: work.wait(datetime.timedelta(seconds=20)))
""", GOCCL_CUDA_ROUTE=route)
    for rank in range(2):
        assert group.line(rank) == "ready"
    group.kill(0)
    group.tell(1)
    assert float(group.line(1)) < 1
    assert "peer lost (rank 0)" in told(group.line(1))[1]


def test_a_killed_rank_in_graphs(start):
    """Who waits in a replay is told who has died; that replay ends, and so do later ones."""
    group = start("""
side, x = torch.sim.Stream(), torch.zeros(100_000, device="sim")
torch.sim.synchronize()
with torch.sim.stream(side), sim.captured(side) as graph:
    dist.all_reduce(x)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
for k in range(50):
    x.fill_(rank + k)
    torch.sim.synchronize()
    graph.launch()
    side.synchronize()
assert x.cpu().eq(99).all() # 49 + 50
assert sim.reports() == []
if rank > 0:
    graph.launch()
say("ready")
listen()
ends(side.synchronize)
failure(lambda: dist.all_reduce(t))
for _ in range(3):
    graph.launch()
ends(torch.sim.synchronize)
graph.destroy()
ends(dist.destroy_process_group)
""", GOCCL_CUDA_ROUTE="windows")
    for rank in range(2):
        assert group.line(rank) == "ready"
    group.kill(0)
    group.tell(1)
    assert float(group.line(1)) < 1
    text = told(group.line(1))[1]
    assert re.search("peer lost .rank 0.: the group failed in all_reduce of 100000 x f32 .*in a replay of a CUDA graph: .*"
                     f"process {group.processes[0].pid} on this host was killed", text), text
    assert float(group.line(1)) < 1
    assert float(group.line(1)) < 6


def test_abort(start):
    """abort() of one rank frees the streams of all, and the others are told why."""
    group = start("""
work = dist.all_reduce(t, async_op=True) if rank == 0 else None
say("ready")
listen()
if rank == 1:
    dist.group.WORLD.abort()
    say("aborted")
else:
    failure(work.wait)  # it is known by now or not
ends(torch.sim.synchronize)
failure(lambda: dist.all_reduce(t))
""")
    for rank in range(2):
        assert group.line(rank) == "ready"
    for rank in (1, 0):
        group.tell(rank)
    for rank in range(2):
        group.line(rank)
        assert float(group.line(rank)) < 1
        _, text = told(group.line(rank))
        assert "abort" in text and (rank == 1 or "(rank 1)" in text), text


def test_a_rank_that_does_not_come(start):
    """At the timeout the rank is named that has not called; a stream that is late itself is named, too."""
    group = start("""
if rank == 0:
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    ends(torch.sim.synchronize)
    failure(work.wait)
else:
    listen()
""", timeout=1)
    seconds, text = float(group.line(0)), group.line(0)
    assert 0.5 < seconds < 3 and "timeout (rank 1): rank 1 is in no call" in text, (seconds, text)


def test_a_held_stream(start):
    """The rank whose own stream does not come to the call is named, by itself as well.

    Over windows the call may still end on the other rank, if the stream goes on at just this time: the next one fails.
    """
    group = start("""
with sim.held():
    work = dist.all_reduce(t.clone(), async_op=True)
    say("ready")
    listen()
    if rank == 0:
        failure(lambda: work.wait(datetime.timedelta(seconds=20)))  # waits for the host, which gives up
if rank == 1:
    work.wait()
torch.sim.synchronize()

def late():  # the stream goes on before the host has the reason
    work.wait(datetime.timedelta(seconds=20))
    dist.all_reduce(t)
    torch.sim.synchronize()
    dist.all_reduce(t)

failure(late)
""", timeout=1)
    for rank in range(2):
        assert group.line(rank) == "ready"
        group.tell(rank)
    for rank in (0, 0, 1):
        _, text = told(group.line(rank))
        assert "timeout (rank 0): " in text, text


def test_blocking_wait(start):
    """With GOCCL_BLOCKING_WAIT=1 wait() itself raises."""
    group = start("""
if rank == 0:
    failure(lambda: dist.all_reduce(t))
    ends(torch.sim.synchronize)
else:
    listen()
""", timeout=1, GOCCL_BLOCKING_WAIT="1")
    seconds, text = told(group.line(0))
    assert 0.5 < seconds < 3 and "timeout (rank 1)" in text, (seconds, text)
    assert float(group.line(0)) < 1


def test_mismatch(start):
    group = start("""
def differ():
    work = dist.all_reduce(t if rank else torch.ones(5, device="sim"), async_op=True)
    work.wait()  # the mismatch is known by now or not
    torch.sim.synchronize()
    work.wait()
    for _ in range(1000):
        dist.all_reduce(t)
        torch.sim.synchronize()
failure(differ)
""")
    for rank in range(2):
        _, text = told(group.line(rank))
        assert f"mismatch (rank {1 - rank})" in text and "f32" in text, text


def test_device_lost(start):
    """The rank whose device is lost says so, and the other one is told."""
    group = start("""
def calls():
    dist.all_reduce(t)
    torch.sim.synchronize()  # the stream is let go when the failure is known
    dist.all_reduce(t)
if rank == 1:
    sim.lose()
failure(calls)
""")
    texts = [told(group.line(rank))[1] for rank in range(2)]
    assert "rank 1 of 2: all_reduce" in texts[1] and "CUDA_ERROR_LAUNCH_FAILED" in texts[1], texts
    assert "rank 1" in texts[0] and "CUDA_ERROR_LAUNCH_FAILED" in texts[0], texts


def test_a_stopped_peer(start):
    """What a process that is stopped would have to do is not waited for at the end."""
    group = start("""
if rank == 1:
    os.kill(os.getpid(), 19)  # SIGSTOP
work = dist.all_reduce(t, async_op=True)
ends(dist.destroy_process_group)
""")
    assert float(group.line(0)) < 2


def test_shrink(start):
    """Those that are left go on, with groups of devices that are made anew."""
    group = start("""
if rank == 1:
    say("ready")
    listen()
say("ready")
listen()
failure(lambda: [dist.all_reduce(t), torch.sim.synchronize(), dist.all_reduce(t)])
smaller = goccl.shrink(timeout=20)
t = torch.full((1000,), dist.get_rank() + 1.0, device="sim")
dist.all_reduce(t)
say(dist.get_world_size(), t.cpu().unique().tolist())
dist.destroy_process_group()
""", 3)
    for rank in range(3):
        assert group.line(rank) == "ready"
    group.kill(1)
    for rank in (0, 2):
        group.tell(rank)
    for rank in (0, 2):
        assert "(rank 1)" in told(group.line(rank))[1]
        assert group.line(rank) == "2 [3.0]"


def test_exit_without_destroy(start):
    """A process that ends without a word leaves nothing, and does not hang."""
    group = start("""
work = dist.all_reduce(t, async_op=True)
say("ready")
""")
    for rank in range(2):
        assert group.line(rank) == "ready"
    for process in group.processes:
        process.join(20)
        assert process.exitcode == 0
