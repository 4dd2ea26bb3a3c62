"""The checks for a machine with a GPU (tests/gpu), on the simulated device."""
import os

import forked
import pytest
import sim

CHECKS = sim.ROOT / "tests" / "gpu"


@pytest.mark.parametrize("arguments", [
    ["matrix.py", "--quick"], ["training.py", "--steps", "2", "--width", "16"], ["killed.py", "--kind", "calling"],
    ["graphs.py", "--replays", "10"]],
    ids=lambda a: a[0])
def test_checks(arguments, tmp_path):
    script, *rest = arguments
    env = {**os.environ, "CHECK_PATIENCE": "5", "CHECK_SIMULATED": os.pathsep.join(map(str, sim.build()))}
    code, output = forked.run(str(CHECKS / script), "--device", sim.NAME, *rest, log=tmp_path / "log", timeout=110,
                              env=env)
    assert code == 0 and '"result": "PASS"' in output and "FAIL" not in output, output
