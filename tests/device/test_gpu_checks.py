"""The checks for a machine with a GPU (tests/gpu), on the simulated device."""
import os
import subprocess
import sys

import pytest
import sim

CHECKS = sim.ROOT / "tests" / "gpu"


@pytest.mark.parametrize("arguments", [
    ["matrix.py", "--quick"], ["training.py", "--steps", "4", "--width", "32"], ["killed.py"]], ids=lambda a: a[0])
def test_checks(arguments):
    sim.build()
    script, *rest = arguments
    done = subprocess.run([sys.executable, str(CHECKS / script), "--device", sim.NAME, *rest], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=110, env={**os.environ, "CHECK_PATIENCE": "5"})
    assert done.returncode == 0 and '"result": "PASS"' in done.stdout and "FAIL" not in done.stdout, done.stdout
