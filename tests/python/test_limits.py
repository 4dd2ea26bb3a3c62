"""Processes that lack something: results are right all the same, or the group is refused with a clear error."""
import contextlib
import os
import re
import subprocess

import pytest
from scripts import ranks

LIMIT = '''
import ctypes, errno, resource, struct

if rank == 0: # ranks meet without files
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    store.set("port", str(server.port))
else:
    server = dist.TCPStore("localhost", int(store.get("port")), is_master=False)
libc = ctypes.CDLL(None, use_errno=True)

def limit(name, value):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))

def forbid(*calls):
    """The kernel refuses these system calls to this process from now on, as a container's profile does."""
    read = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
    numbers = [{"pidfd_open": 434, "io_uring_setup": 425, "process_vm_readv": read}[call] for call in calls]
    program = [(0x20, 0, 0, 0)] # loads the number of the call
    program += [(0x15, len(numbers) - i, 0, number) for i, number in enumerate(numbers)] # equal: to the last line
    program += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050000 | errno.EPERM)] # allow, refuse
    lines = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(lines, len(lines))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, head, 0, 0) == 0, ctypes.get_errno() # PR_SET_SECCOMP

def read_only():
    """Everything that a process may write to by default is read-only."""
    assert libc.unshare(0x20000) == 0, ctypes.get_errno() # CLONE_NEWNS
    assert libc.mount(b"none", b"/", None, (1 << 18) | (1 << 14), None) == 0 # MS_PRIVATE | MS_REC
    for place in ("/dev/shm", "/tmp", "/var/tmp", "/run"):
        if os.path.isdir(place) and not sys.prefix.startswith(place + "/"): # where Python may be
            assert libc.mount(b"none", place.encode(), b"tmpfs", 1, b"size=1m") == 0 # MS_RDONLY
    os.chdir("/proc")

def contained(group):
    """This process is one of a control group, from now on."""
    with open(group + "/cgroup.procs", "w") as f:
        f.write(str(os.getpid()))

'''

WORK = """
try:
    dist.init_process_group("goccl", store=server, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=10))
    groups = [None, *(dist.new_group(timeout=datetime.timedelta(seconds=10)) for _ in range(20))]
    for count in (4, 300_000):
        for group in groups:
            x = torch.full((count,), float(rank + 1))
            dist.all_reduce(x, group=group)
            assert x.eq(3).all()
    dist.barrier()
    dist.destroy_process_group()
    say("right")
except (dist.DistBackendError, dist.DistNetworkError, ValueError) as e:
    say("refused:", str(e).splitlines()[0])
listen() # the other rank may still need the store
"""

# What a process does before the group is made, and what it says then by shm: "right", or the refusal. By tcp all are
# right.
CASES = {
    "64 descriptors": ("limit('NOFILE', 64)", "right"),
    "no locked memory": ("limit('MEMLOCK', 0)", "right"),
    "64 GB of addresses": ("limit('AS', 64 << 30)", "right"),
    "no file": ("limit('FSIZE', 0)", "refused: .*shm.*ulimit -f.*GOCCL_TRANSPORT=tcp"),
    "no pidfd": ("forbid('pidfd_open')", "right"),
    "no io_uring, no process_vm_readv": ("forbid('io_uring_setup', 'process_vm_readv')", "right"),
    "nobody": ("os.setuid(65534)", "right"),
    "read-only": ("read_only()", "right"),
    "64 MiB in a container": (None, "refused: .*a higher memory limit of the container"),
    "256 MiB in a container": (None, "right"),
}
OF_ROOT = {"nobody", "read-only"}


@contextlib.contextmanager
def control_group(limit):
    """Makes a control group whose processes may use the given bytes together."""
    with open("/proc/self/cgroup") as f:
        places = dict(line.rstrip().split(":", 2)[1:] for line in f)
    version1 = "memory" in places
    root = "/sys/fs/cgroup/memory" + places["memory"] if version1 else "/sys/fs/cgroup" + places.get("", "/")
    place = f"{root.rstrip('/')}/goccl-test-{os.getpid()}"
    try:
        os.mkdir(place)
    except OSError as e:
        pytest.skip(f"no control group can be made here: {e}")
    try:
        with open(place + ("/memory.limit_in_bytes" if version1 else "/memory.max"), "w") as f:
            f.write(str(limit))
    except OSError as e:
        pytest.skip(f"control groups have no limit of memory here: {e}")
    else:
        yield place
    finally:
        os.rmdir(place)


# By tcp two processes of 64 MiB may end for what Python and torch use themselves.
@pytest.mark.parametrize("case, transport", [(case, transport) for case in CASES for transport in ("shm", "tcp")
                                             if (case, transport) != ("64 MiB in a container", "tcp")])
def test_limits(case, transport, tmp_path):
    if case in OF_ROOT and (os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode != 0):
        pytest.skip("only root can become another user, and have its own mounts")
    before, by_shm = CASES[case]
    with contextlib.ExitStack() as stack:
        if before is None:
            before = f"contained({stack.enter_context(control_group(int(case.split()[0]) << 20))!r})"
        group = stack.enter_context(ranks(WORK, 2, tmp_path, transport, join=LIMIT + before))
        lines = [group.line(rank) for rank in range(2)]
        wanted = by_shm if transport == "shm" else "right"
        # The rank that takes the last memory waits for the one that is refused, and is told so by its timeout.
        enough = any if wanted.startswith("refused") else all
        assert enough(re.match(wanted, line) for line in lines), lines
        assert len({line.partition(":")[0] for line in lines}) == 1, lines
