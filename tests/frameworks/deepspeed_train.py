"""DeepSpeed.  DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 deepspeed_train.py --mode zero1 | zero2 | zero3"""
import tempfile
import time

import deepspeed
import goccl  # noqa: F401 (needed before torch 2.14)
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import training


def engine_for(options, model):
    # A kernel for inference, which DeepSpeed would otherwise compile now, for a minute or more.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=options.backend, verbose=False)
    half = training.BATCH // training.RANKS
    config = {
        "train_batch_size": training.BATCH,
        "train_micro_batch_size_per_gpu": half,
        "zero_allow_untested_optimizer": True,  # SGD
        "zero_optimization": {
            "stage": int(options.mode[-1]),
            "overlap_comm": options.mode == "zero3",  # needs streams of a GPU, except in stage 3
            "reduce_bucket_size": 20000,
            "allgather_bucket_size": 20000,
            "stage3_param_persistence_threshold": 1000,  # smaller parameters stay whole
        },
        "gradient_clipping": 1e6,  # clips nothing; computes the norm over all ranks
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=training.sgd(model.parameters()), config=config)
    return engine


def whole(engine):
    """Returns the whole parameters; in stage 3 each rank keeps a part of them."""
    parameters = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=engine.zero_optimization_stage() == 3):
        return [parameter.detach().clone() for parameter in parameters]


def check_checkpoint(engine):
    """A checkpoint, to which each rank writes its part, restores the state."""
    parameters = whole(engine)
    with tempfile.TemporaryDirectory() as folder:
        folders = [folder]
        dist.broadcast_object_list(folders, src=0)
        engine.save_checkpoint(folders[0], tag="end")
        for parameter in engine.module.parameters():
            parameter.data.zero_()
        engine.load_checkpoint(folders[0], tag="end")
        dist.barrier()
    for before, after in zip(parameters, whole(engine), strict=True):
        if not torch.equal(before, after):
            raise AssertionError("the checkpoint did not bring back the parameters")


def main():
    options = training.arguments()
    model = training.network()
    engine = engine_for(options, model)
    train, _ = training.digits()
    loader = DataLoader(train, batch_size=training.BATCH // training.RANKS,
                        sampler=DistributedSampler(train, shuffle=False))

    losses, before, start = [], training.operations(), time.perf_counter()
    for _ in range(training.EPOCHS):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(engine(images), labels)
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach())
    seconds, begun = time.perf_counter() - start, training.operations() - before

    check_checkpoint(engine)
    training.check(options, training.mean_of_ranks(losses), whole(engine), begun, seconds,
                   stage=engine.zero_optimization_stage())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
