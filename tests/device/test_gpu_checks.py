"""The checks for a machine with a GPU (tests/gpu), on the simulated device."""
import os
import subprocess
import sys

import pytest
import sim

CHECKS = sim.ROOT / "tests" / "gpu"


@pytest.mark.parametrize("arguments", [
    ["matrix.py", "--quick"], ["training.py", "--steps", "2", "--width", "16"], ["killed.py", "--kind", "calling"]],
    ids=lambda a: a[0])
def test_checks(arguments):
    script, *rest = arguments
    env = {**os.environ, "CHECK_PATIENCE": "5", "CHECK_SIMULATED": os.pathsep.join(map(str, sim.build()))}
    done = subprocess.run([sys.executable, str(CHECKS / script), "--device", sim.NAME, *rest], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=110, env=env)
    assert done.returncode == 0 and '"result": "PASS"' in done.stdout and "FAIL" not in done.stdout, done.stdout
