"""goccl.grow and goccl.join: processes that come to a running job; goccl.sync_state gives them what they lack."""
import re

import pytest
from scripts import ranks, told

# Each script forks no process: newcomers are ranks of the launcher that leave their first group at once.
SCRIPT = """
OLD = {old}
dist.destroy_process_group()
if rank < OLD:
    if rank == 0:  # the store ends with this rank
        server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        store.set("port", str(server.port))
    else:
        server = dist.TCPStore("localhost", int(store.get("port")), is_master=False)
    dist.init_process_group("goccl", store=server, rank=rank, world_size=OLD, timeout=datetime.timedelta(seconds=30))
    store.set(f"address/{{rank}}", goccl.address())

def total(group=None):
    t = torch.ones(4)
    dist.all_reduce(t, group=group)
    return int(t[0])

def refused(what):
    try:
        what()
        say("no error")
    except Exception as e:
        say(type(e).__name__, str(e).splitlines()[0])

def come(at=0, **more):
    '''Joins by the address of a rank.'''
    return goccl.join(store.get(f"address/{{at}}").decode(), timeout=30, **more)
"""

END = """
listen()
if dist.is_initialized():
    dist.destroy_process_group()
"""


def end_in_order(group, alive):
    for rank in alive:
        group.tell(rank)
    for rank in alive:
        group.processes[rank].join(30)
        assert group.processes[rank].exitcode == 0


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_the_whole_job(transport, tmp_path):
    """Two processes come to two ranks, by different ones; then the group can make further groups, and shrink."""
    with ranks(SCRIPT.format(old=2) + """
begun = time.monotonic()
if rank < 2:
    assert goccl.grow(wait=0) is dist.group.WORLD and dist.get_world_size() == 2 and total() == 2
    store.set("alone", "")  # nobody has come before
    new = goccl.grow(newcomers=2)
else:
    store.get("alone")
    new = come(rank - 2)
assert new is dist.group.WORLD and len(dist.distributed_c10d._world.pg_map) == 1
kept = rank >= 2 or dist.get_rank() == rank
pair = dist.new_group([0, 3])
say(kept, dist.get_rank(), dist.get_world_size(), total(), total(pair) if dist.get_rank() in (0, 3) else 0)
if dist.get_rank() == 0:
    listen()
    os.kill(os.getpid(), 9)
failure(total)
goccl.shrink()
say(dist.get_world_size(), total())
""" + END, 4, tmp_path, transport) as group:
        seen = set()
        for rank in range(4):
            kept, new, size, four, two = group.line(rank).split()
            assert (kept, size, four, two) == ("True", "4", "4", "2" if new in "03" else "0")
            seen.add(new)
            if rank < 2:
                assert new == str(rank)
        assert seen == {"0", "1", "2", "3"}
        group.tell(0)
        for rank in (1, 2, 3):
            assert "peer lost" in told(group.line(rank))[1]
            assert group.line(rank) == "3 3"
        end_in_order(group, (1, 2, 3))


def test_state(tmp_path):
    """A newcomer gets module, optimizer and the rest, bit by bit; and trains on with the others."""
    with ranks(SCRIPT.format(old=2) + """
torch.manual_seed(rank // 2)  # the newcomer begins otherwise
model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1 if rank < 2 else 0.3)
def step(seed):
    optimizer.zero_grad()
    model(torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
extra = None
if rank < 2:
    step(1)
    step(2)
    extra = dict(step=2, order=torch.arange(5), name="x")
    goccl.grow()
else:
    come()
extra = goccl.sync_state(model, optimizer, extra)
step(3)
import hashlib
bits = hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in model.state_dict().values())).hexdigest()[:16]
say(extra["step"], extra["name"], extra["order"].tolist(), optimizer.param_groups[0]["lr"], bits)
# What does not fit is an error on all ranks.
other = torch.nn.Linear(2, 2) if rank == 2 else model
refused(lambda: goccl.sync_state(other, None, None))
refused(lambda: goccl.sync_state(None, None, (lambda: 0) if dist.get_rank() == 0 else 1))
say(total())
""" + END, 3, tmp_path, "tcp") as group:
        first = group.line(0)
        assert first.startswith("2 x [0, 1, 2, 3, 4] 0.1 ")
        assert [group.line(rank) for rank in (1, 2)] == [first] * 2
        for rank in range(3):
            text = group.line(rank)
            wanted = r"ranks \[2\] still have another state" if rank < 2 else r"Error\(s\) in loading state_dict"
            assert re.search(wanted, text), text
            text = group.line(rank)
            assert re.search("rank 0 cannot send" if rank > 0 else "pickle", text), text
            assert group.line(rank) == "3"
        end_in_order(group, range(3))


def test_a_rank_dies_before_the_others_grow(tmp_path):
    """The newcomer waits until they have shrunk, and comes then."""
    with ranks(SCRIPT.format(old=3) + """
if rank == 3:
    come(1)
else:
    total()
    if rank == 2:
        listen()
        os.kill(os.getpid(), 9)
    failure(goccl.grow)
    goccl.shrink()
    goccl.grow()
say(dist.get_rank(), dist.get_world_size(), total())
""" + END, 4, tmp_path, "auto") as group:
        group.tell(2)
        for rank in (0, 1):
            text = told(group.line(rank))[1]
            assert re.search(r"grow: .*rank 2", text), text
        assert [group.line(rank) for rank in (0, 1, 3)] == ["0 3 3", "1 3 3", "2 3 3"]
        end_in_order(group, (0, 1, 3))


def test_errors(tmp_path):
    with ranks(SCRIPT.format(old=2) + """
if rank == 0:
    refused(lambda: goccl.join("10.0.0.1:29500"))
elif rank == 1:
    refused(lambda: goccl.grow(newcomers=0))
else:
    refused(goccl.address)
    refused(goccl.grow)
    refused(lambda: goccl.join("10.0.0.1:29500"))
    refused(lambda: goccl.join(store.get("address/0").decode(), timeout=0.3))
    refused(lambda: come(pg_options=goccl.Options(determinism=4)))
if rank < 2:
    sub = dist.new_group([0, 1])
    refused(lambda: goccl.grow(sub))
    listen()
    say(goccl.grow(wait=1).size())
""" + END, 3, tmp_path, "tcp") as group:
        def says(rank, pattern):
            text = group.line(rank)
            assert re.search(pattern, text), text

        says(0, "in a process group already")
        says(1, "grows by 1 at least")
        for pattern in ("no process group yet", "no process group yet", "is not the address of a running group",
                        "have not called grow"):
            says(2, pattern)
        for rank in (0, 1):
            says(rank, "only the default group can grow")
        for rank in (0, 1):
            group.tell(rank)
        assert [group.line(rank) for rank in (0, 1)] == ["2", "2"]
        says(2, "mismatch.*options")
        end_in_order(group, range(3))
