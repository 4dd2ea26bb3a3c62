"""The connections that a job opens, and what it needs of the network: only what GOCCL_TRANSPORT requires."""
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from common import seconds
from rank_pool import RankPool

import goccl


def sockets():
    """Returns the sockets of this process, as ss shows them.

    These are TCP sockets in any state, and unix sockets that listen under goccl's names, without that of goccl top.
    """
    mine = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{fd}").removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            pass  # the descriptor of the listing itself
    tcp, unix = [], []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in mine:
                tcp.append((table, fields[1], fields[3]))
    for line in pathlib.Path("/proc/self/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in mine and fields[3] == "00010000" and fields[-1].startswith("@goccl-") \
                and not fields[-1].startswith("@goccl-top-"):
            unix.append(fields[-1])
    return tcp, unix


def work_by(rank, folder, transport):
    """Runs a job that meets in a file; returns the sockets that it has open.

    torch's own store would listen at a port.
    """
    dist.init_process_group("goccl", store=dist.FileStore(f"{folder}/store"), rank=rank, world_size=2,
                            timeout=seconds(20), pg_options=goccl.Options(transport=transport))
    for count in (2, 300_000):
        x = torch.full((count,), float(rank + 1))
        dist.all_reduce(x)
        assert torch.equal(x, torch.full((count,), 3.0))
    found = sockets()
    dist.barrier()  # no rank closes its sockets while another one lists them
    dist.destroy_process_group()
    return found


@pytest.mark.parametrize("transport", ["shm", "tcp", "auto"])
def test_sockets(transport, tmp_path):
    pool = RankPool(2, tmp_path, group=False)
    found = pool.run(work_by, tmp_path, transport)
    pool.close()
    for tcp, unix in found:
        assert bool(tcp) == (transport != "shm"), tcp
        assert bool(unix) == (transport != "tcp"), unix


def alone(folder):
    """Runs the job with shm and with auto where no interface is up, and checks the error of tcp there.

    This needs a network namespace of its own.
    """
    for transport in ("shm", "auto"):
        place = pathlib.Path(folder) / transport
        place.mkdir()
        ranks = []
        for rank in range(2):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                work_by(rank, place, transport)
                os._exit(0)
        assert [os.waitpid(rank, 0)[1] for rank in ranks] == [0, 0], transport
    with pytest.raises(RuntimeError, match="no network interface of this host is up and has an address"):
        dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1,
                                pg_options=goccl.Options(transport="tcp"))
    print("done")


def test_without_interfaces(tmp_path):
    isolated = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    try:
        probe = subprocess.run([*isolated, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        refused = probe.returncode and probe.stdout
    except FileNotFoundError as error:
        refused = str(error)
    if refused:
        pytest.skip(f"no network namespace can be made: {refused}")
    script = "import sys; sys.path.insert(0, sys.argv[1]); import test_transports; test_transports.alone(sys.argv[2])"
    done = subprocess.run([*isolated, sys.executable, "-c", script, os.path.dirname(__file__), str(tmp_path)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout
