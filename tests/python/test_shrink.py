"""goccl.shrink: groups of the ranks that are left, also where the one that serves the store is not."""
import re

import pytest
from scripts import ranks, told

SCRIPT = """
dist.destroy_process_group()
if rank == 0: # the store ends with this rank
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    store.set("port", str(server.port))
else:
    server = dist.TCPStore("localhost", int(store.get("port")), is_master=False)
dist.init_process_group("goccl", store=server, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=30))

def total(group=None):
    t = torch.ones(4)
    dist.all_reduce(t, group=group)
    return int(t[0])

def shrink(*args, **more):
    begun = time.monotonic()
    group = goccl.shrink(*args, **more)
    return group, f"{time.monotonic() - begun:.3f}"

def fall(*who):
    '''These ranks are killed, when the test tells them, and nobody needs the store of rank 0 any more.'''
    total()
    if rank in who:
        say("ready")
        listen()
        os.kill(os.getpid(), 9)

total()
"""


def kill(group, *who):
    """Kills ranks that are in fall."""
    for rank in who:
        assert group.line(rank) == "ready"
    for rank in who:
        group.tell(rank)


def after_shrink(group, rank):
    """What a rank says after shrink, which must have taken less than a second."""
    seconds, text = told(group.line(rank))
    assert seconds < 1, text
    return text


def end_in_order(group, alive):
    for rank in alive:
        group.tell(rank)
    for rank in alive:
        group.processes[rank].join(30)
        assert group.processes[rank].exitcode == 0


END = """
listen()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("dead", [[0], [0, 2]])
def test_the_whole_job(transport, dead, tmp_path):
    """Rank 0 dies, and the store with it. The rest are the whole job then, and can make further groups."""
    with ranks(SCRIPT + f"""
dist.new_group([1, 3])
fall(*{dead})
failure(total)
new, seconds = shrink()
assert new is dist.group.WORLD and len(dist.distributed_c10d._world.pg_map) == 1
pair = dist.new_group([0, 1])
say(seconds, dist.get_rank(), dist.get_world_size(), total(), total(pair))
""" + END, 4, tmp_path, transport) as group:
        kill(group, *dead)
        alive = [rank for rank in range(4) if rank not in dead]
        for new, rank in enumerate(alive):
            seconds, text = told(group.line(rank))
            assert seconds < 1 and re.search(r"peer lost \(ranks? [02]", text), text
            assert after_shrink(group, rank) == f"{new} {len(alive)} {len(alive)} {2 if new < 2 else 1}"
        end_in_order(group, alive)


def test_one_death_after_another(tmp_path):
    """Ranks go on in ever smaller groups, down to a single one."""
    with ranks(SCRIPT + """
for last in (0, 2, 1):
    fall(last)
    failure(total)
    _, seconds = shrink()
    say(seconds, dist.get_world_size(), total())
""" + END, 4, tmp_path, "shm") as group:
        alive = [0, 1, 2, 3]
        for last in (0, 2, 1):
            kill(group, last)
            alive.remove(last)
            for rank in alive:
                assert "peer lost" in told(group.line(rank))[1]
                assert after_shrink(group, rank) == f"{len(alive)} {len(alive)}"
        end_in_order(group, alive)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_sub_group(transport, tmp_path):
    """The default group stays, although it cannot be used; the store is not needed."""
    with ranks(SCRIPT + """
sub = dist.new_group([1, 2, 3], group_desc="three")
total(sub)
fall(0, 2)
failure(lambda: total(sub))
new, seconds = shrink(sub)
options = new._get_backend(torch.device("cpu")).options
say(seconds, dist.get_process_group_ranks(new), dist.get_world_size(), total(new), new.group_desc,
    options.global_ranks_in_group)
""" + END, 4, tmp_path, transport) as group:
        kill(group, 0, 2)
        for rank in (1, 3):
            group.line(rank)
            assert after_shrink(group, rank) == "[1, 3] 4 2 three [1, 3]"
        end_in_order(group, (1, 3))


def test_a_living_rank_is_left_out(tmp_path):
    with ranks(SCRIPT + """
if rank == 1:
    failure(total)
    failure(goccl.shrink)
else:
    _, seconds = shrink(without=[1])
    say(seconds, dist.get_rank(), total())
""" + END, 3, tmp_path, "shm") as group:
        assert after_shrink(group, 0) == "0 2" and after_shrink(group, 2) == "1 2"
        _, text = told(group.line(1))
        assert re.search(r"rank [02] reports: the group goes on as one of its ranks \[0, 2\]", text), text
        _, text = told(group.line(1))
        assert re.search(r"goccl: group .*rank 1 of 3: shrink: .*left out by ranks 0, 2", text), text
        group.tell(1)
        end_in_order(group, (0, 2))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_majority(transport, tmp_path):
    """Two halves leave each other out: that with rank 0 goes on, the other one only if it is told to."""
    with ranks(SCRIPT + """
if rank > 1:
    failure(lambda: goccl.shrink(without=[0, 1]))
    failure(lambda: goccl.shrink(without=[0, 1], quorum=3))
listen()
_, seconds = shrink(without=[2, 3]) if rank < 2 else shrink(without=[0, 1], quorum="any")
say(seconds, dist.get_rank(), total())
""" + END, 4, tmp_path, transport) as group:
        for rank in (2, 3):
            _, text = told(group.line(rank))
            assert "peer lost (ranks 0, 1): half of the 4 ranks that may live are left here" in text, text
            _, text = told(group.line(rank))
            assert "2 of 4 ranks are left here, and the quorum is 3" in text, text
        for rank in range(4):
            group.tell(rank)
        for rank in range(4):
            assert after_shrink(group, rank) == f"{rank % 2} 2"
        end_in_order(group, range(4))


def test_a_stopped_rank_is_named(tmp_path):
    with ranks(SCRIPT + """
if rank == 1:
    say(os.getpid())
    listen()
    os.kill(os.getpid(), 19)  # SIGSTOP
else:
    listen()
    failure(lambda: goccl.shrink(timeout=1.5))
    _, seconds = shrink(without=[1])
    say(seconds, total())
""" + END, 3, tmp_path, "shm") as group:
        pid = group.line(1)
        for rank in range(3):
            group.tell(rank)
        for rank in (0, 2):
            _, text = told(group.line(rank))
            assert f"rank 1 (pid {pid}) is stopped, by a signal or a debugger" in text, text
            assert after_shrink(group, rank) == "2"
        group.kill(1)
        end_in_order(group, (0, 2))


def test_a_rank_that_does_not_come(tmp_path):
    """The call can be made again."""
    with ranks(SCRIPT + """
if rank == 2:
    listen()
else:
    failure(lambda: goccl.shrink(timeout=0.5))
_, seconds = shrink()
say(seconds, total())
""" + END, 3, tmp_path, "shm") as group:
        for rank in (0, 1):
            seconds, text = told(group.line(rank))
            assert 0.4 < seconds < 1.5, text
            assert "timeout (rank 2): ranks [2] neither take part in shrink nor have died" in text
        group.tell(2)
        for rank in range(3):
            assert after_shrink(group, rank) == "3"
        end_in_order(group, range(3))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_ctrl_c(transport, tmp_path):
    with ranks(SCRIPT + """
import threading, signal
if rank == 0:
    signal.signal(signal.SIGINT, signal.default_int_handler) # a shell may start its commands with the signal ignored
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    try:
        goccl.shrink()
    except KeyboardInterrupt:
        say(f"{time.monotonic() - begun:.3f}", "interrupted")
listen()
""", 2, tmp_path, transport) as group:
        assert after_shrink(group, 0) == "interrupted"


def test_torch_shrink_group(tmp_path):
    """torch numbers the ranks by its list, so others must not have died."""
    with ranks(SCRIPT + """
fall(3)
failure(total)
failure(lambda: dist.shrink_group([1]) if rank != 1 else total())
""" + END.replace("dist.", "# dist."), 4, tmp_path, "shm") as group:
        kill(group, 3)
        for rank in (0, 2):
            group.line(rank)
            _, text = told(group.line(rank))
            assert "ranks [3] have died and are not among those to exclude, [1]" in text, text


def test_misuse(python):
    python("""
import datetime, goccl, pytest, torch, torch.distributed as dist
with pytest.raises(ValueError, match="call init_process_group first"):
    goccl.shrink()
dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
for bad in ([0], [1], [-1]):
    with pytest.raises(ValueError, match="cannot be left out by rank 0 of 1"):
        goccl.shrink(without=bad)
for bad in ("most", 0, -1, True, 2.5):
    with pytest.raises(ValueError, match="a number of ranks"):
        goccl.shrink(quorum=bad)
with pytest.raises(TypeError, match="only groups whose one backend is goccl can shrink; got gloo"):
    goccl.shrink(dist.new_group([0], backend="gloo"))
assert goccl.shrink(timeout=7) is dist.group.WORLD and dist.get_world_size() == 1
assert dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout == datetime.timedelta(seconds=7)
dist.destroy_process_group()
""")
