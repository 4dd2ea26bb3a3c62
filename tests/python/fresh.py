"""Python processes for tests of what happens once in a process: each is a fork of one that has imported torch, which
takes seconds, and not goccl. They end as any Python does, with its exit handlers; those of multiprocessing, which
forked.py and rank_pool.py use, end without.

Run with a socket's descriptor, it is the process that forks.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile


class Server:
    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def run(self, script, arguments, env, timeout):
        """Runs a script as python -c does, and returns its exit status and what it has printed."""
        with tempfile.TemporaryFile() as code, tempfile.TemporaryFile() as out:
            code.write(json.dumps([script, arguments, env]).encode())
            code.flush()
            socket.send_fds(self._socket, [b"run"], [code.fileno(), out.fileno()])
            pid = int(self._answer(timeout))
            try:
                status = int(self._answer(timeout))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._answer(timeout)
                raise
            out.seek(0)
            return status, out.read().decode(errors="replace")

    def _answer(self, timeout):
        self._socket.settimeout(timeout)
        return self._socket.recv(100)

    def close(self):
        self._socket.close()
        self._process.wait(30)


def _serve(requests):
    """Returns the script in each fork, and nothing at the end."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 100, 2)
        if not message:
            return None
        code, out = descriptors
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.lseek(code, 0, os.SEEK_SET)
            with open(code) as file:
                script, arguments, env = json.load(file)
            os.close(out)
            os.environ.clear()
            os.environ.update(env)
            sys.argv[:] = ["-c", *arguments]
            sys.path[0] = ""
            return script
        os.close(code)
        os.close(out)
        requests.send(str(pid).encode())
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


if __name__ == "__main__":
    import torch.distributed  # noqa: F401

    script = _serve(socket.socket(fileno=int(sys.argv[1])))
    if script is not None:
        exec(compile(script, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
