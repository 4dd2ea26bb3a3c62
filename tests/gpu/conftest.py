import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Returns the folder of a libcuda.so.1 that executes streams on memory of the host."""
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so.1",
                    ROOT / "cuda/driver/testdata/fakecuda.c", "-lpthread"], check=True, timeout=120)
    return folder
