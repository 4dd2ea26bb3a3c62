"""Which route the ranks of a group choose, each a process with a driver of its own."""
import re

import pytest
import sim
from scripts import RANK, Ranks

SCRIPT = """
import sim
log = open(folder + f"/log{{rank}}", "w")
os.dup2(log.fileno(), 2)
sim.start({library!r}, {device!r}, rank, devices=2)
sim.set_faults(**{faults!r}.get(rank, {{}}))
os.environ["GOCCL_DEBUG"] = "INFO"
dist.init_process_group(sim.BACKEND, store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=30))
torch.sim.set_device(rank % {devices})
for n in (1, 1000, 300_001):
    x = torch.arange(n, dtype=torch.float32, device="sim") + rank
    dist.all_reduce(x)
    assert torch.equal(x.cpu(), size * torch.arange(n, dtype=torch.float32) + sum(range(size)))
assert sim.reports() == []
os.environ["GOCCL_DEBUG"] = "WARN"
say([line for line in open(folder + f"/log{{rank}}") if "collectives on devices: " in line])
dist.destroy_process_group()
say(sim.leaks())
"""


@pytest.mark.parametrize("ranks, devices, faults, route", [
    (1, 1, {}, "windows, 1 device"),
    (2, 1, {}, "windows, 1 device"),
    (2, 2, {}, "windows, 2 devices"),  # in the memory of devices or of the host, whichever is faster
    (2, 2, {1: {"Apart": [[1, 0]]}}, "host-windows, 2 devices.*rank 1: not supported: device 1 does not reach"),
    (2, 1, {0: {"NoDescriptors": True}}, "host-windows, 1 device.*rank 0: .* cannot share its memory"),
    (2, 1, {1: {"Fail": [{"Call": "cuModuleLoadData", "Nth": 1, "Code": 2}]}}, "staged.*rank 1: .*cuModuleLoadData"),
], ids=["one rank", "one device", "two devices", "one direction", "no descriptors", "no kernels"])
def test_choice(tmp_path, ranks, devices, faults, route):
    library, device = sim.build()
    script = SCRIPT.format(library=str(library), device=str(device), devices=devices, faults=faults)
    group = Ranks(RANK + script, ranks, tmp_path, {})
    try:
        said = [group.line(rank) for rank in range(ranks)]
        assert re.search(f"collectives on devices: (host-)?{route}", said[0]), said
        assert said[1:] == ["[]"] * (ranks - 1), "rank 0 says it"
        assert [group.line(rank) for rank in range(ranks)] == ["[]"] * ranks
    finally:
        group.end()


DYING = """
import signal, threading
import sim
sim.start({library!r}, {device!r}, rank)
dist.init_process_group(sim.BACKEND, store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=30))
x = torch.ones(10, device="sim")
sim.set_faults()

def die():
    while sim.calls("cuMemcpyAsync") < {copies}:
        pass
    os.kill(os.getpid(), signal.SIGKILL)

if rank == 1:
    threading.Thread(target=die, daemon=True).start()
failure(lambda: [dist.all_reduce(x), torch.sim.synchronize(), dist.all_reduce(x), x.cpu(), dist.barrier()])
listen()  # a rank that ended here would be one more of which the others may hear first
"""


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_a_rank_that_dies_while_windows_are_tried(tmp_path, copies):
    """The others are told who, whether it was filling its window or reading theirs, and nobody waits."""
    library, device = sim.build()
    group = Ranks(RANK + DYING.format(library=str(library), device=str(device), copies=copies), 3, tmp_path, {})
    try:
        for rank in (0, 2):
            seconds, text = group.line(rank).split(" ", 1)
            assert float(seconds) < 10 and re.search(r"peer lost \(rank 1\).*was killed by signal 9", text), text
    finally:
        group.end()
