import multiprocessing
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / folder) for folder in ("gpu", "python")]
import rank_pool  # noqa: E402, F401 (it sets a shorter list)

# Imported once, in the process from which those of the checks are forked: each import takes seconds.
multiprocessing.set_forkserver_preload(["torch", "torch.distributed", "torch.distributed.fsdp", "goccl"])


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Returns the folder of a libcuda.so.1 that executes streams on memory of the host."""
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so.1",
                    ROOT / "cuda/driver/testdata/fakecuda.c", "-lpthread"], check=True, timeout=120)
    return folder
