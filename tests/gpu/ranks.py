"""Starts the ranks of a check, each a process, and joins them to a group."""
import datetime
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

RANK, RANKS, PORT = "CHECK_RANK", "CHECK_RANKS", "CHECK_PORT"
SIMULATED = "CHECK_SIMULATED"
PATIENCE = float(os.environ.get("CHECK_PATIENCE", "1"))  # times the limits, for tests on busy machines
GRACE = 10.0  # seconds in which the other ranks end after one has failed


def is_rank() -> bool:
    return RANK in os.environ


class Ranks:
    """The processes of a check: this script again, with the same arguments, once for each rank."""

    def __init__(self, size: int, *arguments: str, limit: float) -> None:
        limit *= PATIENCE
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False,
                                   timeout=datetime.timedelta(seconds=limit))
        self._end = time.monotonic() + limit
        self._folder = tempfile.TemporaryDirectory(prefix="goccl-gpu-")
        self._logs = [pathlib.Path(self._folder.name) / f"rank{rank}" for rank in range(size)]
        self.processes = []
        for rank, log in enumerate(self._logs):
            environment = {**os.environ, RANK: str(rank), RANKS: str(size), PORT: str(self.store.port)}
            with open(log, "w") as out:
                self.processes.append(subprocess.Popen([sys.executable, *(arguments or sys.argv)], env=environment,
                                                       stdout=out, stderr=subprocess.STDOUT))

    def finish(self, expected: dict[int, int] | None = None) -> str:
        """Returns what was printed, "" in place of a failure's text if the ranks ended as expected (0).

        Ranks that do not end in time, or not soon after another one has failed, are ended.
        """
        expected = expected or {}
        failed = None
        while any(process.poll() is None for process in self.processes) and time.monotonic() < self._end:
            codes = [process.poll() for process in self.processes]
            if failed is None and any(code not in (None, expected.get(rank, 0)) for rank, code in enumerate(codes)):
                failed = time.monotonic()
            if failed is not None and time.monotonic() > failed + GRACE:
                break
            time.sleep(0.02)
        late = [rank for rank, process in enumerate(self.processes) if process.poll() is None]
        for rank in late:
            self.processes[rank].send_signal(signal.SIGKILL)
        codes = [process.wait() for process in self.processes]
        for rank, log in enumerate(self._logs):
            text = log.read_text(errors="replace")
            print(f"---- rank {rank}, ended with {codes[rank]}\n{text}", flush=True)
        self._folder.cleanup()
        wrong = [f"rank {rank} ended with {code}" for rank, code in enumerate(codes)
                 if rank not in late and code != expected.get(rank, 0)]
        return ", ".join(wrong + [f"rank {rank} did not end" for rank in late])


def join(device: str, bind: bool = False, timeout: float = 60.0, backend: str = "") -> tuple[int, int, dist.Store]:
    """Makes the default group of tensors on the CPU and on a device, all ranks on its first one.

    With bind the group connects for the device at once, without at its first tensor there. Returns rank, number of
    ranks, and a store.
    """
    rank, size = int(os.environ[RANK]), int(os.environ[RANKS])
    torch.set_num_threads(1)
    delta = datetime.timedelta(seconds=timeout)
    place(device)
    store = dist.TCPStore("127.0.0.1", int(os.environ[PORT]), is_master=False, timeout=delta)
    if device != "cpu":
        torch.get_device_module(device).set_device(0)
    if not backend:
        import goccl  # noqa: F401

        backend = "goccl" if device == "cpu" else f"cpu:goccl,{device}:goccl"
    options = {"device_id": torch.device(device, 0)} if bind and device != "cpu" else {}
    dist.init_process_group(backend, store=dist.PrefixStore("group", store), rank=rank, world_size=size, timeout=delta,
                            **options)
    return rank, size, store


def _simulate() -> None:
    """Starts the simulated device of tests/device, on which the checks themselves are tested: its files are told."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "device"))
    import sim

    sim.start(*os.environ[SIMULATED].split(os.pathsep), int(os.environ[RANK]))


def place(device: str) -> torch.device:
    if device == "sim" and not hasattr(torch, "sim"):
        _simulate()
    return torch.device("cpu") if device == "cpu" else torch.device(device, 0)


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.get_device_module(device).synchronize()
