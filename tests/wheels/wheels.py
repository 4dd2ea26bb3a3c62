"""The wheel of make wheels in environments of its own, one for each torch (make test-wheels; TORCHES="2.11.0 2.15.0").

Everything runs where there is neither Go nor a compiler nor a header: mounts hide them, which needs root. An environment
takes 5.6 GB and is removed after its tests, unless KEEP=1.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = ROOT / "build/wheels"
PYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}"
ROWS = [line.split() for line in (ROOT / "ci/torch.txt").read_text().splitlines() if line and not line.startswith("#")]
PINS = {row[0]: row[2:] for row in ROWS if tuple(map(int, row[1].split("."))) <= sys.version_info[:2]}
WANTED = os.environ.get("TORCHES", "").split() or [*PINS]
HIDDEN = ["/usr/include", "/usr/lib/gcc", "/usr/local/include", "/usr/local/go", sysconfig.get_paths()["include"]]
TRAIN = re.search(r'```python title="train.py"\n(.*?)```', (ROOT / "docs/start/cpu.md").read_text(), re.DOTALL)[1]


@pytest.fixture(scope="module")
def wheel():
    found = [*(ROOT / "dist").glob(f"goccl-*-{PYTHON}-{PYTHON}-manylinux*_{os.uname().machine}.whl")]
    assert len(found) == 1, f"make wheels first: {found}"
    return found[0]


def test_glibc(wheel):
    """It runs wherever torch does, whose wheels are for glibc 2.28."""
    assert int(re.search(r"manylinux_2_(\d+)_", wheel.name)[1]) <= 28, wheel.name


class Bare:
    """A machine with an environment of Python, and nothing to compile with."""

    def __init__(self, environment):
        self.environment = environment

    def run(self, command, expected=0, **variables):
        """Returns the output of a command of the shell."""
        mounts = "".join(f"mount -t tmpfs none {each}\n" for each in HIDDEN if os.path.isdir(each))
        script = f"set -e\n{mounts}cd {self.environment}\n" + (
            "for each in go gcc g++ cc c++; do if command -v $each; then exit 99; fi; done\n") + command
        links = self.environment / "tools"  # of the system: neither Go nor a compiler
        links.mkdir(exist_ok=True)
        for name in ("bash", "sh", "env", "cat", "uname", "mount", "rm", "ls", "sleep", "ldconfig"):
            if not (links / name).exists() and (path := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")):
                (links / name).symlink_to(path)
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http", "HOME"))}
        done = subprocess.run(["/usr/bin/unshare", "--mount", "/bin/bash", "-c", script], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=1800,
                              env={**kept, "PATH": f"{self.environment}/bin:{links}", **variables})
        assert done.returncode == expected, f"{command}\nended with {done.returncode}:\n{done.stdout}"
        return done.stdout


@pytest.fixture(scope="module", params=WANTED)
def bare(request, wheel):
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    folder = BUILD / f"try-{request.param}-{PYTHON}"
    machine = Bare(folder)
    if not (folder / "made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (folder / "pins.txt").write_text("\n".join(PINS[request.param]))
        machine.run(f"pip install -q 'torch=={request.param}' numpy -c pins.txt")
        (folder / "made").touch()
    machine.run(f"pip install -q --force-reinstall --no-deps {wheel}; pip check")
    machine.torch = request.param
    (folder / "train.py").write_text("import goccl\n" + TRAIN if request.param < "2.14" else TRAIN)
    yield machine
    if not os.environ.get("KEEP"):
        shutil.rmtree(folder)


def test_training(bare):
    out = bare.run("goccl run -n 2 -- python train.py")
    loss = float(re.search(r"2 ranks, loss (\S+)", out)[1])
    assert loss < 1e-3, out


def test_torchrun(bare):
    assert "2 ranks, loss" in bare.run("torchrun --nproc-per-node 2 train.py")


def test_doctor(bare):
    for command in "goccl doctor", "python -m goccl doctor":
        assert re.search(rf"ok +shim +goccl \S+, built for torch .*{re.escape(bare.torch)}", bare.run(command))


def test_the_command_is_quick(bare):
    """Less than 50 ms of processor, the best of five: no interpreter starts."""
    def seconds():
        before = os.times()
        subprocess.run([bare.environment / "bin/goccl", "version"], check=True, stdout=subprocess.DEVNULL, env={})
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(5)) < 0.05


def test_a_torch_without_a_shim(bare, tmp_path):
    """The import says what there is. GOCCL_BUILD=1 fails without a compiler, and says so."""
    site = bare.run("python -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])'").strip()
    path = pathlib.Path(site) / "goccl/_build.py"
    whole = path.read_text()
    try:
        path.write_text(re.sub(r"torch = .*", 'torch = {"2.0": "2.0.1"}', whole))
        cache = {"XDG_CACHE_HOME": str(tmp_path)}
        said = bare.run("python -c 'import goccl'", expected=1, **cache)
        assert "was built for torch 2.0, but torch" in said and "--no-binary goccl goccl==" in said, said
        said = bare.run("python -c 'import goccl'", expected=1, GOCCL_BUILD="1", **cache)
        assert "the C++ compiler g++ is missing" in said, said
        if bare.torch != WANTED[-1]:
            return
        # With a compiler, two ranks at once: one of them builds.
        start = time.monotonic()
        done = subprocess.run([bare.environment / "bin/goccl", "run", "-n", "2", "--", bare.environment / "bin/python", "train.py"],
                              cwd=bare.environment, env={**os.environ, "GOCCL_BUILD": "1", **cache}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=1200)
        assert done.returncode == 0 and "2 ranks, loss" in done.stdout, done.stdout
        assert done.stdout.count("compiles its shim") == 1, done.stdout
        print(f"built at the import in {time.monotonic() - start:.0f} s")
        assert "2 ranks, loss" in bare.run("goccl run -n 2 -- python train.py", **cache)  # from the cache
    finally:
        path.write_text(whole)
