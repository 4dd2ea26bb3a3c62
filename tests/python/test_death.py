"""Ranks that are killed, also with forked children that live on: what the others are told, and when."""
import os
import re
import time

import pytest
import torch.distributed as dist
from common import is_stopped, until
from scripts import JOIN, RANK, ranks, told

# How a process that was killed by SIGKILL is described.
KILLED = {"shm": r"shm: process {pid} on this host was killed by signal 9 \(SIGKILL\)", "tcp": r"tcp: .*pid {pid}"}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_child_lives_on(transport, tmp_path):
    """The rank that is killed has a forked child, as a DataLoader makes them; the other waits in an operation."""
    with ranks("""
if rank == 1:
    say(idle_child())
    listen()
failure(lambda: dist.all_reduce(t))
""", 2, tmp_path, transport) as group:
        group.child(1)
        begun = time.monotonic()
        group.kill(1)
        _, text = told(group.line(0))
        assert time.monotonic() - begun < 1, text
        assert re.search(r"peer lost \(rank 1\): " + KILLED[transport].format(pid=group.processes[1].pid), text), text


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_call_that_the_other_has_given_up(transport, tmp_path):
    """The late rank computes, and is refused the call, although all that it needs for it has come."""
    with ranks("""
from datetime import timedelta
group = dist.new_group(timeout=timedelta(seconds=1))
if rank == 1:
    listen()
failure(lambda: dist.all_reduce(t, group=group))
listen()
""", 2, tmp_path, transport) as group:
        told(group.line(0))
        time.sleep(0.5)  # a goroutine of rank 1 hears of it
        group.tell(1)
        seconds, text = told(group.line(1))
        assert seconds < 1, text
        assert re.search(r"not begun, after seq 0: timeout \(rank 1\): rank 0 reports, in all_reduce", text), text


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_new_group_after_a_death(transport, tmp_path):
    """The dead rank has a living child, and another number in the new group than in the job."""
    with ranks("""
if rank == 2:
    say(idle_child())
    listen()
say("ready")
listen()
if rank == 1:
    failure(lambda: dist.new_group([1, 2]))
    failure(lambda: dist.new_group([1, 2]))
else:
    time.sleep(60)
""", 3, tmp_path, transport) as group:
        group.child(2)
        assert group.line(1) == "ready"
        group.kill(2)
        group.tell(1)
        for _ in range(2):
            seconds, text = told(group.line(1))
            assert seconds < 1, text
            lost = KILLED[transport].format(pid=group.processes[2].pid)
            assert re.search(rf"group .*, rank 0 of 2: join: peer lost: rank 1 \(global rank 2\): {lost}", text), text


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("dead", [0, 1])
def test_a_death_while_others_are_expected(transport, dead, tmp_path):
    """The rank comes, forks a child that lives on, and stops, so the others meet it; then it is killed: joining itself
    finds nobody there, whichever side has to make the connection."""
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with ranks(f"""
import signal, threading
import goccl._loader
dist.destroy_process_group()
meeting = dist.TCPStore("127.0.0.1", {meeting.port})
def stop():
    while not meeting.check(["goccl/count/1"]):
        time.sleep(0.001)
    say(idle_child())
    os.kill(os.getpid(), signal.SIGSTOP)
if rank == {dead}:
    threading.Thread(target=stop).start()
else:
    listen()
core = goccl._loader.core()
failure(lambda: core.create(meeting, rank, size, core.Options(datetime.timedelta(seconds=30), "GOCCL_TRANSPORT={transport}")))
""", 2, tmp_path, transport) as group:
        group.child(dead)
        until(lambda: is_stopped(group.processes[dead].pid), "it did not stop")
        group.tell(1 - dead)
        until(lambda: meeting.check(["goccl/verdict/1"]), "they did not meet")
        begun = time.monotonic()
        group.kill(dead)
        _, text = told(group.line(1 - dead))
        assert time.monotonic() - begun < 1, text
        assert re.search(rf"network: .*join: peer lost \(rank {dead}\)", text), text


def test_sockets_of_a_fork(python):
    """A forked child has no copy of the sockets of its parent's groups, and its own child keeps what it opened."""
    for transport in ("shm", "tcp"):
        out = python((RANK + JOIN).replace("sys.argv[1]", "0").replace("sys.argv[2]", "1").replace("sys.argv[3]", '"/tmp"')
                     .replace('dist.FileStore(folder + "/store", size)', "dist.HashStore()") + """
import socket

def say(*what):
    print(*what, flush=True)

def sockets():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + fd).startswith("socket:"):
                found.add(int(fd))
        except OSError:
            pass
    return found

before = sockets()
pid = os.fork()
if pid == 0:
    mine = [socket.socket() for _ in range(20)]
    left = sockets() - {s.fileno() for s in mine}
    inner = os.fork()
    if inner == 0:
        os._exit(0 if {s.fileno() for s in mine} <= sockets() else 1)
    kept = os.waitpid(inner, 0)[1] == 0
    say("child", len(before) > 0, len(left), kept)
    os._exit(0)
os.waitpid(pid, 0)
say("parent", sockets() == before)
dist.destroy_process_group()
""", env={**os.environ, "GOCCL_TRANSPORT": transport})
        assert out.splitlines() == ["child True 0 True", "parent True"], transport
