"""Code that the examples share: how a program joins the other ranks and leaves them, and how it reports."""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def parser(about, steps):
    """Returns a parser of the arguments that every example takes."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--backend", default="goccl", help="goccl (the default), gloo, …")
    made.add_argument("--steps", type=int, default=steps)
    made.add_argument("--json", help="write the results to this file")
    return made


@contextlib.contextmanager
def group(backend):
    """Makes the group of the ranks that a launcher started. Without one there is one process and no group."""
    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:  # started by torchrun or goccl run, whose environment has the address of rank 0
        import goccl  # noqa: F401 (registers the backend; torch 2.14 and later find it by its name)
        dist.init_process_group(backend)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def show(report, file, more=""):
    """Prints the result on rank 0, and writes it to the file if one is given."""
    if dist.is_initialized() and dist.get_rank() != 0:
        return
    losses, where = report["losses"], f"{report['ranks']} ranks" if report["ranks"] > 1 else "one process"
    print(f"{where}: loss {losses[0]:.4f} → {losses[-1]:.4f} in {len(losses)} steps "
          f"and {report['seconds']:.1f} s{more}")
    if file:
        pathlib.Path(file).write_text(json.dumps(report))


def run(about, train, steps, more=lambda report: ""):
    """Runs a whole program: train(steps) returns the report, more(report) the additional text to print."""
    options = parser(about, steps).parse_args()
    with group(options.backend):
        report = train(options.steps)
        show(report, options.json, more(report))


def digests(tensors):
    """Returns a short hash of some tensors for each rank. Tensors that are split over ranks are put together first."""
    whole = (t.detach().full_tensor() if isinstance(t, DTensor) else t.detach() for t in tensors)
    own = hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in whole)).hexdigest()[:16]
    if not dist.is_initialized():
        return [own]
    all_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, own)
    return all_ranks
