"""Code that the examples share: how a program joins the other ranks and leaves them, and how it reports."""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

CPU = torch.device("cpu")


def parser(about, steps):
    """Returns a parser of the arguments that every example takes."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--backend", default="goccl", help="goccl (the default), gloo, …")
    made.add_argument("--device", default="cpu", help="cpu (the default), or cuda; ranks may share a GPU")
    made.add_argument("--steps", type=int, default=steps)
    made.add_argument("--json", help="write the results to this file")
    return made


def place(kind):
    """Returns this rank's device, cpu or a GPU. Where there are fewer GPUs than ranks, ranks share them."""
    if kind == "cpu":
        return CPU
    module = getattr(torch, kind, None)  # torch.cuda, or the module of another device
    if not hasattr(module, "device_count") or not module.is_available():
        sys.exit(f"--device {kind}: torch {torch.__version__} finds no such device on this machine")
    device = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0)) % module.device_count())
    module.set_device(device)  # before the group is made
    # So that losses can be compared: all bits of float32 in convolutions, too, and the same bits in every run.
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    return device


def synchronize(device):
    """Waits until a GPU has done what it was given, for those who look at the clock."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


@contextlib.contextmanager
def group(options):
    """Makes the group of the ranks that a launcher started, and returns this rank's device.

    Without a launcher there is one process and no group.
    """
    device = place(options.device)
    torch.set_num_threads(1)
    if "JOB_REPLACES" in os.environ:  # started by goccl run --replace: the others, which have lost a rank, will grow
        import goccl

        goccl.join(pathlib.Path(os.environ["JOB_ADDRESS_FILE"]).read_text())
    elif "WORLD_SIZE" in os.environ:  # started by torchrun or goccl run, whose environment has the address of rank 0
        import goccl  # noqa: F401 (registers the backend; torch 2.14 and later find it by its name)
        dist.init_process_group(options.backend)
    yield device
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
    """Runs a whole program: train(steps, device) returns the report, more(report) the additional text to print."""
    options = parser(about, steps).parse_args()
    with group(options) as device:
        report = train(options.steps, device)
        show(report, options.json, more(report))


def digests(tensors):
    """Returns a short hash of some tensors for each rank. Tensors that are split over ranks are put together first."""
    whole = (t.detach().full_tensor() if isinstance(t, DTensor) else t.detach() for t in tensors)
    own = hashlib.sha256(b"".join(t.contiguous().cpu().numpy().tobytes() for t in whole)).hexdigest()[:16]
    if not dist.is_initialized():
        return [own]
    all_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, own)
    return all_ranks
