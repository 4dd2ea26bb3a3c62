"""The lines of docs/launch.md with the launchers themselves: goccl run, torchrun, Slurm, Open MPI (make launchers).

Each starts a job, one whose rank 2 exits with 7, and one that gets SIGTERM: what ranks are told, and the exit status of the
launcher, are those of the page's table.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
JOB = f"{sys.executable} {pathlib.Path(__file__).with_name('job.py')}"
PAGE = (ROOT / "docs/launch.md").read_text()
BIN = pathlib.Path(sys.executable).parent


def section(title):
    """Returns the indented lines of code of a section of the page."""
    text = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A slurmctld and a slurmd of our own on this machine, with their own munged; returns the environment for srun."""
    folder = tmp_path_factory.mktemp("slurm")
    socket_of_munge = folder / "munge.socket"
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    host = socket.gethostname().split(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={socket_of_munge}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=3
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
""")
    environment = {"SLURM_CONF": str(conf), "PATH": f"{BIN}:{os.environ['PATH']}:/usr/sbin:/sbin"}
    for part in ("state", "spool"):
        (folder / part).mkdir()
    daemons = []

    def start(*command):
        log = (folder / f"{command[0]}.out").open("w")
        daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))

    try:
        start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_of_munge}",
              f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log")
        until(socket_of_munge.exists, "munged listens", folder)
        start("slurmctld", "-D", "-f", str(conf))
        start("slurmd", "-D", "-f", str(conf), "-N", host)
        until(lambda: "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True,
                                               text=True).stdout, "the node is idle", folder)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()


def until(condition, what, folder, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        logs = "".join(f"{path}:\n{path.read_text()[-2000:]}\n" for path in folder.glob("*.*") if path.suffix in (".log", ".out"))
        assert time.monotonic() < end, f"after {seconds} s not: {what}\n{logs}"
        time.sleep(0.1)


class Launcher:
    """Starts job.py on four ranks as the page says."""

    def __init__(self, command, environment):
        self.command, self.environment = command, environment

    def start(self, what, folder):
        with (folder / "out").open("w") as out:
            return subprocess.Popen(["bash", "-c", self.command.replace("python train.py", f"{JOB} {what}")], cwd=folder,
                                    env=self.environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def end(self, job):
        """Ends a job as its owner would."""
        job.terminate()

    def run(self, what, folder):
        """Returns the exit status and the output."""
        job = self.start(what, folder)
        try:
            status = job.wait(90)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
        return status, (folder / "out").read_text()


class Slurm(Launcher):
    """Submits the page's job script, and cancels it."""

    def start(self, what, folder):
        (folder / "job.sh").write_text(self.command.replace("python train.py", f"{JOB} {what}"))
        return subprocess.Popen(["sbatch", "--wait", "--job-name", folder.name, "--output", folder / "out", folder / "job.sh"],
                                cwd=folder, env=self.environment, start_new_session=True)

    def end(self, job):
        subprocess.run(["scancel", "--name", job.args[3]], env=self.environment, check=True)


def made(name, request):
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "GOCCL_TIMEOUT": "60"}
    for each in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(each, None)
    port = free_port()
    if name == "goccl run":
        return Launcher("exec goccl run -n 4 --grace 10s -- python train.py", environment)
    if name == "torchrun":
        return Launcher("exec torchrun --nproc-per-node 4 --master-port 0 --standalone train.py".replace(
            "train.py", "python train.py").replace("--standalone python", "--standalone --no-python python"), environment)
    if name == "srun":
        if shutil.which("slurmctld", path="/usr/sbin:/sbin:" + os.environ["PATH"]) is None:
            pytest.skip("no slurmctld here: apt-get install slurm-wlm")
        return Slurm(section("Slurm").replace("29400", str(port)), {**environment, **request.getfixturevalue("slurm")})
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun here: apt-get install openmpi-bin")
    command = section("MPI launchers").replace("-n 16", "-n 4 --oversubscribe --allow-run-as-root")
    return Launcher("exec " + command.replace("10.0.0.1", "127.0.0.1").replace("29400", str(port)), environment)


@pytest.fixture(params=["goccl run", "torchrun", "srun", "mpirun"])
def launcher(request):
    return made(request.param, request)


def row(name):
    """Returns the cells of the page's table for a launcher."""
    return [cell.strip() for cell in re.search(rf"^\| `{name}` \|(.*)\|$", PAGE, re.MULTILINE)[1].split("|")]


def test_sums(launcher, tmp_path):
    status, out = launcher.run("sums", tmp_path)
    assert status == 0, out
    assert sorted(re.findall(r"rank (\d) of 4, local (\d): 4\b", out)) == [(str(n), str(n)) for n in range(4)], out


def test_a_rank_that_fails(launcher, tmp_path, request):
    """The others are told who it was, unless the launcher ends them first; the status is that of the table."""
    status, out = launcher.run("fails 2 7", tmp_path)
    assert str(status) in row(request.node.callspec.params["launcher"])[0].split(" or "), out
    for told in re.findall(r"rank \d was told: (.*)", out):
        assert "peer lost (rank 2)" in told or "peer left (rank 2)" in told, out


def test_sigterm(launcher, tmp_path, request):
    """Ranks that end on SIGTERM have the time for it; the status is that of the table."""
    job = launcher.start(f"waits {tmp_path}/here", tmp_path)
    try:
        until(lambda: len(list(tmp_path.glob("here.*"))) == 4, "four ranks are there", tmp_path)
        launcher.end(job)
        status = job.wait(30)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    out = (tmp_path / "out").read_text()
    assert str(status if status >= 0 else 128 - status) == row(request.node.callspec.params["launcher"])[1], out
    until(lambda: (tmp_path / "out").read_text().count("ends on SIGTERM") == 4, "four ranks ended", tmp_path, 10)
