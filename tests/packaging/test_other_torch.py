"""With a torch for which the shim was not built the import fails with a message, before the shim is called."""
import os
import subprocess
import sys

import torch


def first_group_under(installed, version):
    """Returns exit code and output of making a group of one rank under a torch that reports another version."""
    code = f"""
import torch
import torch.distributed as dist

torch.__version__ = torch.torch_version.TorchVersion({version!r})
try:
    import goccl
except ImportError:
    print("at the import")
    raise

dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
dist.destroy_process_group()
print("made")
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(installed)}, cwd=installed,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.returncode, done.stdout


def test_another_minor_release_is_refused_with_the_command_that_rebuilds(installed):
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    built = f"{major}.{minor}"
    for other in (f"{major}.{minor + 1}.0", f"{major}.{minor - 1}.1+cpu"):
        code, said = first_group_under(installed, other)
        assert code == 1, said
        assert "ImportError" in said and "at the import" in said, said
        assert other in said and built in said, said
        assert "pip install --no-build-isolation" in said, said


def test_another_patch_release_is_accepted(installed):
    major, minor = torch.__version__.split(".")[:2]
    code, said = first_group_under(installed, f"{major}.{minor}.9")
    assert code == 0, said
    assert said.strip().endswith("made")
