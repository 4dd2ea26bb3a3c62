"""Hugging Face Accelerate.  torchrun --nproc-per-node 2 accelerate_train.py --mode ddp | fsdp2"""
import time

import goccl  # noqa: F401 (needed before torch 2.14)
import torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

import training


def accelerator_for(options):
    # On CPU Accelerate would ask torch for gloo, and refuses InitProcessGroupKwargs(backend="goccl"); it uses a group
    # that already exists.
    dist.init_process_group(options.backend)
    if options.mode == "ddp":
        return Accelerator(cpu=True)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=1000,
                                            reshard_after_forward=True, cpu_ram_efficient_loading=True)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    # AcceleratorState does this itself where there is an accelerator; on CPU it would ignore the plugin and use DDP.
    for state in (PartialState(), accelerator.state):
        state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    return accelerator


def main():
    options = training.arguments()
    accelerator = accelerator_for(options)
    train, test = training.digits()
    model = training.network()
    optimizer = training.sgd(model.parameters())
    # Accelerate divides loaders among the ranks: of two batches of half the size each rank takes one.
    half = training.BATCH // training.RANKS
    model, optimizer, loader, test_loader = accelerator.prepare(
        model, optimizer, DataLoader(train, batch_size=half), DataLoader(test, batch_size=half))

    losses, before, start = [], training.operations(), time.perf_counter()
    for _ in range(training.EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1e6)  # clips nothing; computes the norm over all ranks
            optimizer.step()
            losses.append(loss.detach())
    seconds, begun = time.perf_counter() - start, training.operations() - before

    # Each rank has its own images here. The last ones appear twice, and gather_for_metrics drops the duplicates.
    right = []
    with torch.no_grad():
        for images, labels in test_loader:
            right.append(accelerator.gather_for_metrics(model(images).argmax(1) == labels))
    right = torch.cat(right)
    if len(right) != len(test):
        raise AssertionError(f"gather_for_metrics brought {len(right)} answers for {len(test)} images")

    state = [training.full(tensor) for tensor in accelerator.get_state_dict(model).values()]  # as it would be saved
    parameters = [training.full(parameter) for parameter in model.parameters()]
    if accelerator.is_main_process and (len(state) != len(parameters) or not all(map(torch.equal, state, parameters))):
        raise AssertionError("get_state_dict has not brought the parameters")
    shared_out = accelerator.is_fsdp2 and all(isinstance(parameter, DTensor) for parameter in model.parameters())
    if shared_out != (options.mode == "fsdp2"):
        raise AssertionError(f"{options.mode}, but the parameters are {'' if shared_out else 'not '}shared out")
    training.check(options, training.mean_of_ranks(losses), parameters, begun, seconds,
                   gathered=right.float().mean().item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
