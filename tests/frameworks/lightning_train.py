"""Lightning.  python lightning_train.py --mode ddp | fsdp2 (Lightning starts the second rank itself)"""
import tempfile
import time

import goccl  # noqa: F401 (needed before torch 2.14)
import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

import training


class MeansOfIntegers:
    """Averages integers as float64.

    self.log(…, sync_dist=True) also averages the number of samples, an integer. Lightning leaves that to the backend
    unless its name is gloo, and goccl refuses a mean that has no exact result.
    """

    def reduce(self, tensor, group=None, reduce_op="mean"):
        if isinstance(tensor, torch.Tensor) and not tensor.is_floating_point() and reduce_op in ("mean", "avg"):
            tensor = tensor.double()
        return super().reduce(tensor, group, reduce_op)


class GocclDDP(MeansOfIntegers, DDPStrategy):
    pass


class GocclModelParallel(MeansOfIntegers, ModelParallelStrategy):
    pass


class Digits(lightning.LightningModule):
    def __init__(self, shard):
        super().__init__()
        self.model, self.shard = training.network(), shard
        self.losses, self.begun, self.seconds = [], 0, 0.0

    def configure_model(self):
        if self.shard:  # ModelParallelStrategy leaves the sharding to the module
            mesh = self.device_mesh["data_parallel"]
            for layer in self.model:
                if isinstance(layer, (nn.Conv2d, nn.Linear)):
                    fully_shard(layer, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
            self.shard = False

    def train_dataloader(self):
        # Lightning would divide the images among the ranks itself, but in another order than the other trainings.
        train, _ = training.digits()
        return DataLoader(train, batch_size=training.BATCH // training.RANKS,
                          sampler=DistributedSampler(train, shuffle=False))

    def val_dataloader(self):
        return DataLoader(training.digits()[1], batch_size=training.BATCH)

    def configure_optimizers(self):
        return training.sgd(self.parameters())

    def on_train_start(self):
        self.begun, self.seconds = training.operations(), time.perf_counter()

    def on_train_end(self):
        self.begun, self.seconds = training.operations() - self.begun, time.perf_counter() - self.seconds

    def training_step(self, batch, _):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch, _):
        images, labels = batch
        right = (self.model(images).argmax(1) == labels).float().mean()
        self.log("right", right, sync_dist=True)  # the mean over all ranks (ReduceOp.AVG)


def main():
    options = training.arguments()
    if options.mode == "ddp":
        strategy = GocclDDP(process_group_backend=options.backend)
    else:
        strategy = GocclModelParallel(data_parallel_size=training.RANKS, tensor_parallel_size=1,
                                      process_group_backend=options.backend, save_distributed_checkpoint=False)
    trainer = lightning.Trainer(accelerator="cpu", devices=training.RANKS, strategy=strategy,
                                max_epochs=training.EPOCHS, num_sanity_val_steps=0, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    module = Digits(shard=options.mode == "fsdp2")
    trainer.fit(module)

    # The checkpoint of the whole model, gathered from all ranks, has their parameters.
    with tempfile.TemporaryDirectory() as folder:
        path = trainer.strategy.broadcast(folder) + "/digits.ckpt"
        trainer.save_checkpoint(path)
        saved = torch.load(path, weights_only=False)["state_dict"]
        trainer.strategy.barrier()
    parameters = [training.full(parameter) for parameter in module.model.parameters()]
    for (name, tensor), parameter in zip(saved.items(), parameters, strict=True):
        if not torch.equal(tensor, parameter):
            raise AssertionError(f"{name} is not what the checkpoint has")
    training.check(options, training.mean_of_ranks(module.losses), parameters, module.begun, module.seconds,
                   validated=trainer.callback_metrics["right"].item())


if __name__ == "__main__":
    main()
