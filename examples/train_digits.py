"""Trains a small convolutional network on scikit-learn's digits with DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/train_digits.py --backend goccl
    torchrun --nproc-per-node 2 examples/train_digits.py --backend gloo
    torchrun --nproc-per-node 2 examples/train_digits.py --backend goccl --device cuda  # on one GPU, if there is one
    python examples/train_digits.py                                          # one process, no communication

All of them see the same global batches in the same order and start from the same weights, so their losses agree.
"""
import argparse
import hashlib
import json
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm

from launch import CPU, place, synchronize


def digits():
    """Returns 1,437 images of 8 x 8 pixels for training and 360 for testing."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    parts = train_test_split(images, torch.tensor(labels), test_size=360, random_state=0, stratify=labels)
    return TensorDataset(parts[0], parts[2]), TensorDataset(parts[1], parts[3])


def network():
    # Normalised over each image, not over the batch: a rank sees only its part of the batch, so its statistics would
    # differ.
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.GELU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(4, 64), nn.GELU(), nn.AvgPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.GroupNorm(4, 128), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(128 * 2 * 2, 256), nn.GELU(), nn.Linear(256, 10))


class CommunicationClock:
    """Measures the seconds in which this rank could do nothing but communicate.

    The definition is the same for every backend: the time that the training thread spends issuing the all-reduce of
    each bucket and, since nothing is left to compute once the last bucket is issued, all the time from then until
    backward() returns. An all-reduce that runs while gradients are still being computed adds nothing. The wait for a
    rank that is late counts too. On a GPU backward() has not waited for anything: there it is the time of the calls.
    """

    def __init__(self, ranks):
        self.ranks, self.seconds, self.issued = ranks, 0.0, None

    def all_reduce_mean(self, group, bucket):
        """Does and measures the default reduction: the hook that DistributedDataParallel calls for each bucket."""
        start = time.perf_counter()
        work = dist.all_reduce(bucket.buffer().div_(self.ranks), group=group, async_op=True)
        future = work.get_future().then(lambda done: done.value()[0])
        self.issued = time.perf_counter()
        self.seconds += self.issued - start
        return future

    def backward_returned(self):
        if self.issued is not None:
            self.seconds += time.perf_counter() - self.issued


def digest(tensors):
    """Returns a short hash of some tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return total.hexdigest()[:16]


def train(model, data, options, rank, ranks, device=CPU):
    """Returns the losses of the global batches of all steps, the seconds taken and the seconds spent waiting."""
    sampler = DistributedSampler(data, ranks, rank, shuffle=True, seed=options.seed, drop_last=True)
    loader = DataLoader(data, batch_size=options.batch // ranks, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    clock = CommunicationClock(ranks)
    if ranks > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        model.register_comm_hook(None, clock.all_reduce_mean)

    losses = []
    start = time.perf_counter()
    with tqdm(total=options.epochs * len(loader), desc=options.backend, unit="step",
              disable=True if rank else None, mininterval=0.5) as bar:
        for epoch in range(options.epochs):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
                loss.backward()
                clock.backward_returned()
                optimizer.step()
                losses.append(loss.detach())
                bar.update()
            bar.set_postfix(epoch=epoch + 1, loss=f"{losses[-1]:.4f}")
    synchronize(device)
    seconds = time.perf_counter() - start

    losses = torch.stack(losses)
    if ranks > 1:
        dist.all_reduce(losses)
    return losses / ranks, seconds, clock.seconds


@torch.no_grad()
def accuracy(model, data, device):
    images, labels = (part.to(device) for part in data.tensors)
    return (model(images).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="single", help="goccl, gloo, …; single: one process (the default)")
    parser.add_argument("--device", default="cpu", help="cpu (the default), or cuda; ranks may share a GPU")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64,
                        help="size of the global batch; each rank computes its part of it")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()

    torch.set_num_threads(1)
    device = place(options.device)
    rank, ranks = 0, 1
    if options.backend != "single":
        if options.backend == "goccl":
            import goccl  # noqa: F401 (registers the backend with torch.distributed)
        dist.init_process_group(options.backend)
        rank, ranks = dist.get_rank(), dist.get_world_size()
    if options.batch % ranks:
        parser.error(f"a batch of {options.batch} cannot be shared by {ranks} ranks")

    torch.manual_seed(options.seed)
    training, test = digits()
    model = network().to(device)
    losses, seconds, waiting = train(model, training, options, rank, ranks, device)

    digests = [digest([losses, *model.parameters()])]
    if ranks > 1:
        digests = [None] * ranks
        dist.all_gather_object(digests, digest([losses, *model.parameters()]))
    if rank == 0:
        report = {"backend": options.backend, "ranks": ranks, "losses": losses.tolist(),
                  "accuracy": accuracy(model, test, device), "samples_per_second": len(losses) * options.batch / seconds,
                  "seconds": seconds, "waiting_seconds": waiting, "digests": digests}
        print(f"loss {report['losses'][-1]:.6f}, test accuracy {report['accuracy']:.1%}, "
              f"{report['samples_per_second']:.0f} samples/s, "
              f"{waiting:.2f} of {seconds:.2f} s waiting for communication")
        if options.json:
            with open(options.json, "w") as out:
                json.dump(report, out)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
