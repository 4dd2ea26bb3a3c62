"""Runs a script, and the Python processes that it starts, as forks of a process that has imported torch."""
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys

import rank_pool  # noqa: F401 (what the server imports from which processes are forked)


class Process:
    """As much of subprocess.Popen as the scripts use. stdout is a file with a name, which takes standard error, too."""

    def __init__(self, command, env=None, stdout=None, stderr=None):
        self._process = multiprocessing.get_context("forkserver").Process(
            target=_main, args=([str(each) for each in command[1:]], dict(env or os.environ), stdout.name))
        self._process.start()

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self._process.pid, number)


def _main(arguments, environment, output):
    out = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = arguments
    sys.path.insert(0, os.path.dirname(arguments[0]))
    subprocess.Popen = Process
    runpy.run_path(arguments[0], run_name="__main__")


def run(script, *arguments, log, timeout, env):
    """Returns the status with which a script ended, and what it and its processes have printed: to the file log."""
    with open(log, "w") as out:
        process = Process([sys.executable, script, *arguments], env, out)
    code = process.wait(timeout)
    if code is None:
        process.send_signal(signal.SIGKILL)
        code = process.wait()
    return code, log.read_text()
