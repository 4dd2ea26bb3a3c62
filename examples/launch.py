"""What the examples share: how a program joins the other ranks and leaves them, and how it reports."""
import argparse
import contextlib
import hashlib
import json
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def parser(about, steps):
    """The arguments that every example takes."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--backend", default="goccl", help="goccl (the default), gloo, …")
    made.add_argument("--steps", type=int, default=steps)
    made.add_argument("--json", help="write the results to this file")
    return made


@contextlib.contextmanager
def group(backend):
    """The group of the ranks that torchrun started; started with python alone, one process without a group."""
    torch.set_num_threads(1)
    if dist.is_torchelastic_launched():  # by torchrun, which says in the environment who the others are
        import goccl  # noqa: F401 (makes the backend known to torch.distributed; torch 2.14 and later find it by its name)
        dist.init_process_group(backend)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def show(report, file, more=""):
    """Rank 0 prints what came out, and writes it to the file if there is one."""
    if dist.is_initialized() and dist.get_rank() != 0:
        return
    losses, where = report["losses"], f"{report['ranks']} ranks" if report["ranks"] > 1 else "one process"
    print(f"{where}: loss {losses[0]:.4f} → {losses[-1]:.4f} in {len(losses)} steps and {report['seconds']:.1f} s{more}")
    if file:
        pathlib.Path(file).write_text(json.dumps(report))


def run(about, train, steps, more=lambda report: ""):
    """A whole program: train(steps) gives the report, more what else there is to say of it."""
    options = parser(about, steps).parse_args()
    with group(options.backend):
        report = train(options.steps)
        show(report, options.json, more(report))


def digests(tensors):
    """The bits of some tensors in a few letters, of each rank. Those that are split over ranks are put together first."""
    whole = (t.detach().full_tensor() if isinstance(t, DTensor) else t.detach() for t in tensors)
    own = hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in whole)).hexdigest()[:16]
    if not dist.is_initialized():
        return [own]
    all_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, own)
    return all_ranks
