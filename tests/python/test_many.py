"""Very many operations in flight."""
import pytest
from scripts import ranks

MANY = 20_000


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_queue_that_moves_does_not_time_out(transport, tmp_path):
    """One rank posts everything at once, the other one in four parts, with a pause before each: all in all longer than
    the timeout of the group. A part of the works is dropped, a part kept, and of a part the futures."""
    with ranks(f"""
group = dist.new_group(timeout=datetime.timedelta(seconds=2))
parts = torch.arange({MANY}).add(rank).split({MANY} // 4)
kept = []
for i, part in enumerate(parts):
    if rank == 1:
        time.sleep(0.7)
    for x in part.split(1):
        work = dist.all_reduce(x, group=group, async_op=True)
        kept += ([], [], [work], [work.get_future()])[i]
for each in kept:
    each.wait()
assert torch.equal(torch.cat(parts), 2 * torch.arange({MANY}) + 1)
say("right")
dist.destroy_process_group()
""", 2, tmp_path, transport) as group:
        assert [group.line(rank) for rank in range(2)] == ["right"] * 2


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_messages_of_many_tags(transport, tmp_path):
    with ranks(f"""
x = torch.arange({MANY}) if rank == 0 else torch.zeros({MANY}, dtype=torch.int64)
call = dist.isend if rank == 0 else dist.irecv
order = range({MANY}) if rank == 0 else reversed(range({MANY}))
works = [call(x[i:i + 1], 1 - rank, tag=i) for i in order]
for work in works:
    work.wait()
assert torch.equal(x, torch.arange({MANY}))
say("right")
dist.destroy_process_group()
""", 2, tmp_path, transport) as group:
        assert [group.line(rank) for rank in range(2)] == ["right"] * 2


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_death_while_many_wait(transport, tmp_path):
    """The bound is far from what it takes, and far from what it took when each end searched all entries."""
    with ranks(f"""
if rank == 1:
    say("ready")
    listen()
futures = []
for i in range({MANY}):
    work = dist.all_reduce(t, async_op=True)
    if i % 100 == 0:
        futures.append(work.get_future())
say("posted")
listen()
begun = time.monotonic()
dist.destroy_process_group()
say(time.monotonic() - begun)
for each in futures:
    try:
        each.wait()
        say("no error")
    except dist.DistBackendError as e:
        assert "peer lost (rank 1)" in str(e), e
say("done")
""", 2, tmp_path, transport) as group:
        assert group.line(1) == "ready"
        assert group.line(0) == "posted"
        group.kill(1)
        group.tell(0)
        assert float(group.line(0)) < 4
        assert group.line(0) == "done"
