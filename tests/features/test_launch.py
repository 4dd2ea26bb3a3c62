"""How ranks are started: fork, forkserver, spawn, torchrun; and started again after a rank has died."""
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from goccl.__main__ import program

# The Go program of the package.
TOOL = program()

# torch is imported up to five times, one after the other, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(300)

# Without DDP and torch.optim, whose imports take seconds in each of the four processes.
TRAINING = """
import os, signal, sys
import torch, torch.distributed as dist
import goccl

torch.set_num_threads(1)
path, dies = sys.argv[1], sys.argv[2] == "dies"
dist.init_process_group("goccl")
rank, size, attempt = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
first, weights, velocity = 0, torch.linspace(-1, 1, 8).view(4, 2), torch.zeros(4, 2)
if os.path.exists(path):
    first, weights, velocity = torch.load(path)
print(f"rank {rank} of {size}, attempt {attempt}, from step {first}", flush=True)
for step in range(first, 6):
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))[4 * rank:4 * rank + 4]
    weights.grad = None
    inputs.matmul(weights.requires_grad_()).square().mean().backward()
    try:
        dist.all_reduce(weights.grad, dist.ReduceOp.AVG)
    except dist.DistBackendError as e:
        print(f"rank {rank} was told: {e}", flush=True)
        raise
    velocity = 0.9 * velocity + weights.grad
    weights = (weights - 0.1 * velocity).detach()
    if rank == 0:
        torch.save([step + 1, weights, velocity], path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
    if dies and attempt == 0 and step == 2 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
if rank == 0:
    print("weights", weights.sum().item(), weights.square().sum().item(), flush=True)
dist.destroy_process_group()
"""


def alone():
    """Does the same training in this process; returns the two sums that the script prints."""
    weights, velocity = torch.linspace(-1, 1, 8).view(4, 2), torch.zeros(4, 2)
    for step in range(6):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        weights.grad = None
        inputs.matmul(weights.requires_grad_()).square().mean().backward()
        velocity = 0.9 * velocity + weights.grad
        weights = (weights - 0.1 * velocity).detach()
    return [weights.sum().item(), weights.square().sum().item()]


def elastic(*command, restarts=0, ranks=2):
    """Returns the output of `torchrun --standalone` of a command, which must end with exit code 0."""
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
                           f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "--monitor-interval=0.1", *command],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout
    return done.stdout


def torchrun(tmp_path, script, *args, restarts=0, ranks=2):
    """Returns the output of elastic for a Python script."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    return elastic(str(path), *args, restarts=restarts, ranks=ranks)


def sums(out):
    return [float(x) for x in re.search(r"weights (\S+) (\S+)", out).groups()]


def test_elastic_restart(tmp_path):
    """Rank 1 is killed after its third step: rank 0 gets an error, and both restart from the checkpoint."""
    out = torchrun(tmp_path, TRAINING, str(tmp_path / "saved"), "dies", restarts=1)
    for rank in range(2):
        assert (f"rank {rank} of 2, attempt 0, from step 0" in out
                and f"rank {rank} of 2, attempt 1, from step 3" in out), out
    told = re.search(r"rank 0 was told: (.*)", out)
    assert told is None or "rank 1" in told.group(1), out  # torchrun may end rank 0 before it gets the error
    assert sums(out) == pytest.approx(alone(), rel=1e-5)


@pytest.mark.long
def test_standalone(tmp_path):
    out = torchrun(tmp_path, TRAINING, str(tmp_path / "saved"), "lives")
    assert sums(out) == pytest.approx(alone(), rel=1e-5)


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.long)])
def test_program_without_python(monkeypatch, shared):
    """Ranks that are Go programs (ccl.Init) meet in the store of torchrun's agent, or at its port; after a restart, too.
    The first attempt ends when the first rank has joined nobody: what it has left in the store is of another attempt."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0" if shared else "1")
    monkeypatch.setenv("GOCCL_TRANSPORT", "tcp")
    monkeypatch.setenv("GOCCL_SOCKET_IFNAME", "lo")
    script = """
        if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ "$RANK" = 1 ]; then sleep 0.3; exit 1; fi
        exec "$0" doctor --paths --json"""
    out = elastic("--no-python", "sh", "-c", script, str(TOOL), restarts=1)
    rows, _ = json.JSONDecoder().raw_decode(out[out.index("[\n"):])
    assert [(row["from"], row["to"], row["transport"]) for row in rows] == [(0, 1, "tcp")]


def rank_of(rank, folder, size):
    torch.set_num_threads(1)
    dist.init_process_group("goccl", init_method=f"file://{folder}/init", rank=rank, world_size=size)
    t = torch.tensor([float(rank)])
    dist.all_reduce(t)
    assert t.item() == sum(range(size))
    dist.destroy_process_group()


def failing_rank(rank, folder, size):
    dist.init_process_group("goccl", init_method=f"file://{folder}/init", rank=rank, world_size=size)
    if rank == 1:
        raise ValueError("rank 1 made a mistake")
    dist.barrier()


@pytest.mark.parametrize("method", ["fork", *(pytest.param(name, marks=pytest.mark.long)
                                              for name in ("forkserver", "spawn"))])
def test_start_methods(tmp_path, method):
    """fork works too, from a process that does not use goccl itself. A rank that fails ends all ranks."""
    mp.start_processes(rank_of, args=(str(tmp_path), 3), nprocs=3, start_method=method)
    (tmp_path / "again").mkdir()
    with pytest.raises(mp.ProcessRaisedException, match="rank 1"):
        mp.start_processes(failing_rank, args=(str(tmp_path / "again"), 2), nprocs=2, start_method=method)


@pytest.mark.long
def test_restart_of_four(tmp_path):
    """Restarts four ranks without a checkpoint, two of which die."""
    script = """
        import os, signal
        import torch, torch.distributed as dist
        import goccl
        dist.init_process_group("goccl")
        rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        for turn in range(50):
            t = torch.ones(1000)
            work = dist.all_reduce(t, async_op=True)
            dist.barrier(group=groups[rank // 2])
            work.wait()
            if attempt < 2 and turn == 20 and rank in (1, 2):
                os.kill(os.getpid(), signal.SIGKILL)
        print(f"rank {rank} is done in attempt {attempt}", flush=True)
        dist.destroy_process_group()
    """
    out = torchrun(tmp_path, script, restarts=2, ranks=4)
    assert sorted(re.findall(r"rank (\d) is done in attempt 2", out)) == list("0123"), out
