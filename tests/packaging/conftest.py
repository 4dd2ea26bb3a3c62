"""Builds the wheel once for all tests of this folder, and installs it outside of the environment."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, **options):
    """Returns the output of a command; if it fails, the error contains its output."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, ".", cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """Returns a folder for PYTHONPATH with the content of the wheel, its programs in bin/."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", folder, wheel)
    return folder


@pytest.fixture(scope="session")
def library(installed):
    return installed / "goccl" / "libgoccl.so"
