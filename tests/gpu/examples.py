"""The examples on two ranks that share a GPU have the losses of one process.

    python examples.py [--device cuda] [--steps 10] [NAME …]
"""
import argparse
import importlib
import pathlib
import sys
import tempfile
import types

import torch
import torch.distributed as dist
from ranks import Ranks, is_rank, join, place
from results import FAIL, NOT_RUN, PASS, tell

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
NAMES = "train_digits", "fsdp2", "tensor_parallel", "expert_parallel", "pipeline", "transformer"
BOUND = 1e-4  # that of examples/run_all.py


def name_of(name: str) -> str:
    return f"example {name}.py: two ranks have the losses of one process"


def digits(example: types.ModuleType, steps: int, device: torch.device, rank: int, size: int) -> dict:
    """Trains as train_digits.py does, some steps."""
    torch.manual_seed(0)
    model, data = example.network().to(device), torch.utils.data.Subset(example.digits()[0], range(64 * steps))
    options = types.SimpleNamespace(seed=0, batch=64, lr=0.02, epochs=1, backend="goccl")
    losses, _, _ = example.train(model, data, options, rank, size, device)
    return {"losses": losses.tolist()}


def train(name: str, steps: int, device: torch.device, folder: str) -> dict:
    """Returns the report of an example, of all ranks if there is a group."""
    example = importlib.import_module(name)
    if name == "train_digits":
        rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        return digits(example, steps, device, rank, size)
    more = {"folder": f"{folder}/checkpoint"} if name == "fsdp2" else {}
    return example.train(steps=steps, device=device, **more)


def rank_of(options: argparse.Namespace) -> None:
    import launch

    place(options.device)
    device, alone, missing = launch.place(options.device), {}, {}
    for name in options.names:
        try:
            with tempfile.TemporaryDirectory() as folder:
                alone[name] = train(name, options.steps, device, folder)["losses"]
        except ModuleNotFoundError as error:  # scikit-learn or tqdm
            missing[name] = str(error)
    rank, _, _ = join(options.device)
    for name in options.names:
        if name in missing:
            if rank == 0:
                tell(name_of(name), NOT_RUN, missing[name])
            continue
        with tempfile.TemporaryDirectory() as folder:
            folders = [folder]
            dist.broadcast_object_list(folders)
            report = train(name, options.steps, device, folders[0])
            dist.barrier()  # no folder is removed while another rank reads it
        losses, resumed = report["losses"], report.get("resumed_equal", True)
        worst = max(abs(a - b) for a, b in zip(losses, alone[name], strict=True))
        if rank == 0:
            tell(name_of(name), PASS if worst <= BOUND and resumed else FAIL,
                 f"{len(losses)} steps, last loss {losses[-1]:.6f}, largest difference {worst:.1e}"
                 + ("" if resumed else ", from the checkpoint other losses"), difference=worst)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES)
    options = parser.parse_args()
    if is_rank():
        rank_of(options)
    elif failure := Ranks(2, limit=85).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
