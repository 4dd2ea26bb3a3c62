"""Data parallel training that goes on when ranks die: those that are left make a smaller group, and share out its work.
With --replace new processes come in their place: the group grows again, and gives them what they lack.

    goccl run --recover -n 4 -- python examples/survive.py --die 0@30 --die 2@50
    goccl run --replace 2 -n 4 -- python examples/survive.py --die 0@30 --die 2@50
    python examples/survive.py                                           # one process, no communication

Each rank has a copy of everything, so nothing is lost. A step that a death has broken is done again by the rest. The
batches are the same for any number of ranks, so the losses agree with those of one process.
"""
import collections
import copy
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from launch import digests, group, parser, show
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 48  # 1, 2, 3 and 4 ranks have equal parts of it
FULL = 4  # ranks that the job is to have
ADDRESS = os.environ.get("JOB_ADDRESS_FILE")  # where new processes look for this job
NEW = "JOB_REPLACES" in os.environ  # this process has come later


class Trainer:
    """The model, the optimizer, and the losses so far."""

    def __init__(self, state=None, alone=False):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.losses = []
        if state:
            model, optimizer, self.losses = copy.deepcopy(state)
            self.model.load_state_dict(model)
            self.optimizer.load_state_dict(optimizer)
        self.parallel = DistributedDataParallel(self.model) if dist.is_initialized() and not alone else self.model

    def state(self):
        return copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict(), self.losses))

    def step(self, images, labels):
        """Takes one step with this rank's part of a batch, and notes the loss of the whole batch."""
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.parallel(images[rank::ranks]), labels[rank::ranks])
        loss.backward()
        mean = loss.detach() / ranks
        if ranks > 1:
            dist.all_reduce(mean)
        self.optimizer.step()
        self.losses.append(mean.item())


def shrink(kept):
    """Makes the group of the ranks that are left, and returns the last state that all of them have."""
    import goccl

    before, begun = dist.get_rank(), time.perf_counter()
    goccl.shrink()
    step = torch.tensor(max(kept))
    dist.all_reduce(step, dist.ReduceOp.MIN)  # some may be one step ahead
    print(f"rank {before} goes on as rank {dist.get_rank()} of {dist.get_world_size()} from step {step.item()}, "
          f"after {time.perf_counter() - begun:.3f} s", file=sys.stderr)
    return kept[step.item()]


def publish():
    """Writes where new processes find this job."""
    import goccl

    if dist.get_rank() == 0:
        pathlib.Path(ADDRESS + ".new").write_text(goccl.address())
        os.replace(ADDRESS + ".new", ADDRESS)


def grow(trainer):
    """Waits for the processes that come in place of dead ones. Returns the trainer of the larger group."""
    import goccl

    before, begun = dist.get_world_size(), time.perf_counter()
    goccl.grow(newcomers=FULL - before, wait=60)
    publish()
    print(f"rank {dist.get_rank()} goes on with {dist.get_world_size() - before} new ranks, after "
          f"{time.perf_counter() - begun:.3f} s", file=sys.stderr)
    return alike(trainer)


def alike(trainer):
    """Returns a trainer with the state of rank 0: new ranks lack it."""
    import goccl

    trainer.losses = goccl.sync_state(trainer.model, trainer.optimizer, trainer.losses)
    return Trainer(trainer.state())


def train(steps, deaths):
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    order = torch.Generator().manual_seed(0)
    batches = [torch.randint(len(images), (BATCH,), generator=order) for _ in range(steps)]
    at_start = dist.get_rank() if dist.is_initialized() and not NEW else -1
    kept = collections.OrderedDict()  # the states before the last two steps
    begun, few = time.perf_counter(), False
    trainer = alike(Trainer(alone=True)) if NEW else Trainer()
    if ADDRESS and not NEW:
        publish()
    while len(trainer.losses) < steps:
        step = len(trainer.losses)
        kept[step] = trainer.state()
        if len(kept) > 2:
            kept.popitem(last=False)
        if (at_start, step) in deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            if few:
                trainer, few = grow(trainer), False
            trainer.step(images[batches[step]], labels[batches[step]])
        except dist.DistBackendError as error:
            print(error, file=sys.stderr)
            trainer = Trainer(shrink(kept))
            kept.clear()
            few = ADDRESS is not None
    return {"losses": trainer.losses, "seconds": time.perf_counter() - begun,
            "ranks": dist.get_world_size() if dist.is_initialized() else 1,
            "digests": digests(trainer.model.parameters())}


def main():
    arguments = parser(__doc__, steps=80)
    arguments.add_argument("--die", action="append", default=[], metavar="RANK@STEP",
                           help="this rank (as at the start) is killed before this step; more than once for several")
    options = arguments.parse_args()
    if options.device != "cpu":
        arguments.error("on a GPU a step that a death has broken is known only later; this example runs on the CPU")
    with group(options):
        show(train(options.steps, {tuple(map(int, death.split("@"))) for death in options.die}), options.json)


if __name__ == "__main__":
    main()
