"""Code that the trainings of all frameworks share: data, network, the result of one plain process, and the checks.

    python training.py --reference FILE     trains in one process, without any framework, and writes losses and parameters

Every framework sees the same global batches in the same order (no shuffling: the images are permuted once) and starts
from the same weights, so losses and parameters must equal those of one process, except for float32 sums in another
order.
"""
import argparse
import hashlib
import json
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RANKS = 2
BATCH = 64  # images of all ranks together
STEPS_PER_EPOCH = 22
EPOCHS = 5
LOSS_BOUND = 1e-4  # losses go from 2.3 to 0.1
PARAMETER_BOUND = 1e-3
ACCURACY = 0.93  # of 389 test images


def digits():
    """Returns 1,408 images of 8 x 8 pixels for training, a multiple of all batch sizes here, and 389 for testing."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    images = torch.tensor(images, dtype=torch.float32)[order].reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)[order]
    count = BATCH * STEPS_PER_EPOCH
    return TensorDataset(images[:count], labels[:count]), TensorDataset(images[count:], labels[count:])


def network():
    """Returns a network with the same weights on each rank.

    It is normalised over each image, so a rank that sees half of a batch has the same statistics.
    """
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.GELU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 128), nn.GELU(), nn.Linear(128, 10))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def arguments(given=None):
    """Returns the options that run.py passes to a script. Also sets one thread, since two ranks share a machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="ddp")
    parser.add_argument("--backend", default="goccl")
    parser.add_argument("--reference", help="result of one process, to compare with")
    parser.add_argument("--out", help="where rank 0 writes its report")
    options, _ = parser.parse_known_args(given)  # launchers add their own arguments
    torch.set_num_threads(1)
    return options


def full(tensor):
    """Returns the whole of a parameter: in FSDP2 each rank keeps a part."""
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def digest(tensors):
    """Returns a short hash of some tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def backends():
    """Returns the backend for CPU tensors of each group: frameworks make some groups themselves."""
    return [group._get_backend(torch.device("cpu")) for group in dist.distributed_c10d._world.pg_map]


def operations():
    """Returns the number of operations that the groups have begun, as counted by their backends."""
    return sum(backend._get_sequence_number_for_group() for backend in backends())


def mean_of_ranks(losses):
    """Returns the losses of the global batches, computed from the losses of each rank's part."""
    losses = torch.stack([torch.as_tensor(loss).detach().float() for loss in losses])
    dist.all_reduce(losses)
    return (losses / dist.get_world_size()).tolist()


@torch.no_grad()
def accuracy(parameters):
    """Returns the share of test images that a network with these parameters classifies correctly."""
    model = network()
    for mine, theirs in zip(model.parameters(), parameters, strict=True):
        mine.copy_(theirs)
    images, labels = digits()[1].tensors
    return (model(images).argmax(1) == labels).float().mean().item()


def check(options, losses, parameters, begun, seconds, **more):
    """Checks a training; raises if a check fails.

    Every rank calls this when its training has ended, with the group still open.

    Args:
        options: the result of arguments().
        losses: the losses of the global batches of all steps.
        parameters: whole float32 tensors, in the order of network().parameters().
        begun: the number of operations() that the training has begun.
        seconds: the time that the training took.
        more: additional entries of the report, which rank 0 writes.
    """
    problems = []
    for backend in backends():
        if (backend.name() != options.backend
                or (type(backend).__module__ == "goccl._C") != (options.backend == "goccl")):
            problems.append(f"a group has the backend {backend.name()} ({type(backend)}), not {options.backend}")
    if dist.get_backend() != options.backend:
        problems.append(f"torch calls the backend {dist.get_backend()}, not {options.backend}")
    if dist.get_world_size() != RANKS:
        problems.append(f"{dist.get_world_size()} ranks, not {RANKS}")
    if begun < len(losses):
        problems.append(f"{begun} operations in {len(losses)} steps: they have not gone through the backend")
    if len(losses) != EPOCHS * STEPS_PER_EPOCH:
        problems.append(f"{len(losses)} steps, not {EPOCHS * STEPS_PER_EPOCH}")
    if not losses[-1] < losses[0] / 5:
        problems.append(f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f} only")

    parameters = [parameter.detach() for parameter in parameters]
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest(parameters))
    if len(set(digests)) != 1:
        problems.append(f"ranks hold different parameters: {', '.join(digests)}")

    right = accuracy(parameters)
    if not right >= ACCURACY:
        problems.append(f"{right:.1%} of the test images are right, not {ACCURACY:.0%}")

    report = {"ranks": dist.get_world_size(), "operations": begun, "first": losses[0], "last": losses[-1],
              "accuracy": right, "samples_per_second": len(losses) * BATCH / seconds, **more}
    if options.reference:
        reference = torch.load(options.reference, weights_only=True)
        report["loss_apart"] = max(abs(a - b) for a, b in zip(losses, reference["losses"], strict=True))
        pairs = zip(parameters, reference["parameters"], strict=True)
        report["parameters_apart"] = max((a - b).abs().max().item() for a, b in pairs)
        for name, bound in (("loss_apart", LOSS_BOUND), ("parameters_apart", PARAMETER_BOUND)):
            if not report[name] <= bound:
                problems.append(f"{name} is {report[name]:.1e} against one process, more than {bound:g}")
    if problems:
        raise AssertionError(f"rank {dist.get_rank()}: " + "; ".join(problems))
    if dist.get_rank() == 0 and options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file)


def reference():
    """Trains in one process, with whole batches and without a framework."""
    model, losses = network(), []
    optimizer = sgd(model.parameters())
    for _ in range(EPOCHS):
        for images, labels in DataLoader(digits()[0], batch_size=BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {"losses": losses, "parameters": [parameter.detach() for parameter in model.parameters()]}


if __name__ == "__main__":
    wanted = arguments()
    result = reference()
    torch.save(result, wanted.reference + ".part")
    os.replace(wanted.reference + ".part", wanted.reference)
    print(f"one process: loss {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}, "
          f"{accuracy(result['parameters']):.1%} right")
