"""Ray Train.  python ray_train.py --mode ddp | fsdp2 (Ray starts its workers itself)"""
import os
import sys
import tempfile
import time

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

import training


def shared_out(model):
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            fully_shard(layer)
    return fully_shard(model)


def work(config):
    """The function that each worker runs; Ray has already made the group."""
    options = training.arguments(config["arguments"])
    data, _ = training.digits()
    model = training.network()
    model = prepare_model(model) if options.mode == "ddp" else shared_out(model)
    # Ray adds a DistributedSampler, which does not shuffle here, since the loader does not.
    loader = prepare_data_loader(DataLoader(data, batch_size=training.BATCH // training.RANKS))
    optimizer = training.sgd(model.parameters())

    losses, before, start = [], training.operations(), time.perf_counter()
    for _ in range(training.EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    seconds, begun = time.perf_counter() - start, training.operations() - before

    losses = training.mean_of_ranks(losses)
    parameters = [training.full(parameter) for parameter in model.parameters()]
    training.check(options, losses, parameters, begun, seconds)
    with tempfile.TemporaryDirectory() as folder:
        if dist.get_rank() == 0:
            torch.save(parameters, os.path.join(folder, "parameters.pt"))
        train.report({"loss": losses[-1]},
                     checkpoint=Checkpoint.from_directory(folder) if dist.get_rank() == 0 else None)


def main():
    options = training.arguments()
    # Workers make the group before any code of this file runs in them. From torch 2.14 on torch finds the backend by
    # its name then; with older versions it must have been imported, which the hook does.
    known = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
    ray.init(num_cpus=training.RANKS + 1, include_dashboard=False, object_store_memory=2**27,
             runtime_env=None if known else {"worker_process_setup_hook": "goccl.register"})
    with tempfile.TemporaryDirectory() as storage:
        trainer = TorchTrainer(
            work,
            train_loop_config={"arguments": sys.argv[1:]},
            torch_config=TorchConfig(backend=options.backend),
            scaling_config=ScalingConfig(num_workers=training.RANKS, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(name="digits", storage_path=storage),
        )
        result = trainer.fit()
        saved = torch.load(os.path.join(result.checkpoint.path, "parameters.pt"))
    if not training.accuracy(saved) >= training.ACCURACY:
        raise AssertionError("the checkpoint does not have what was trained")
    ray.shutdown()


if __name__ == "__main__":
    main()
