"""The process and the environment are not goccl's alone: limits, what must not change, variables of others."""
import pytest
from scripts import JOIN, ranks

# A script that prints what of the process has changed after each step.
UNCHANGED = """
import ctypes, locale, os, resource, signal, subprocess
libc = ctypes.CDLL(None)
environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")

def variables():  # of C, which Python does not look at again
    found = []
    for each in environ:
        if each is None:
            return sorted(found)
        found.append(each)

def word(option):
    value = ctypes.c_int()
    assert libc.prctl(option, ctypes.byref(value), 0, 0, 0) == 0
    return value.value

def status(*names):
    with open("/proc/self/status") as f:
        return [line.split()[:2] for line in f if line.startswith(names)]

def handled(number):
    action = (ctypes.c_long * 32)()
    assert libc.sigaction(number, None, action) == 0
    return action[0]

# A thread that calls Go gets a signal stack, if it has none. Go handles these signals itself, for its own threads, and passes on what is not its own; SIGUSR2 is for records (docs/flight.md).
OWN = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGPIPE, signal.SIGURG, signal.SIGUSR2, signal.SIGSYS,
       signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, 16}  # 16 is SIGSTKFLT, which Python names from 3.11 on

TABLE = {
    "limits": lambda: {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    "a child's limit of files": lambda: subprocess.run(["sh", "-c", "ulimit -n"], capture_output=True, text=True).stdout,
    "handlers": lambda: {number: handled(number) for number in range(1, 32) if number not in OWN | {9, 19}},
    "Python's handlers": lambda: [str(signal.getsignal(number)) for number in signal.valid_signals()],
    "blocked signals": lambda: status("SigBlk", "ShdPnd"),
    "affinity": lambda: sorted(os.sched_getaffinity(0)),
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "umask": lambda: status("Umask"),
    "environment": variables,
    "descriptors 0 to 2": lambda: [os.fstat(fd)[:4] for fd in range(3)] + [os.get_inheritable(fd) for fd in range(3)]
        + [os.get_blocking(fd) for fd in range(3)],
    "threads of torch": lambda: (torch.get_num_threads(), torch.get_num_interop_threads()),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "scheduler": lambda: os.sched_getscheduler(0),
    "directory": os.getcwd,
    "timer slack": lambda: libc.prctl(30, 0, 0, 0, 0),
    "signal at the parent's death": lambda: word(2),
    "subreaper": lambda: word(37),
    "dumpable": lambda: libc.prctl(3, 0, 0, 0, 0),
    "name": lambda: open("/proc/self/comm").read(),
    "capabilities": lambda: status("Cap", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups"),
    "rounding": libc.fegetround if hasattr(libc, "fegetround") else ctypes.CDLL("libm.so.6").fegetround,
}
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
import torch, torch.distributed as dist
torch.get_num_interop_threads()
before = {what: look() for what, look in TABLE.items()}

def compare(step):
    for what, look in TABLE.items():
        if (now := look()) != before[what]:
            print(f"{step}: {what}: {before[what]} -> {now}")

import goccl
compare("import")
dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
compare("init")
dist.all_reduce(torch.ones(5), async_op=True).get_future().wait()
compare("all_reduce")
dist.destroy_process_group()
compare("destroy")
print("end")
"""


def test_the_process_is_as_it_was(python):
    assert python(UNCHANGED) == "end\n"


LOAD = """
import os, resource, sys
import torch, torch.distributed as dist
import goccl
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
%s
try:
    dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
    print("right")
except ImportError as e:
    print(e)
"""


@pytest.mark.parametrize("limit, names", [
    ("resource.setrlimit(resource.RLIMIT_AS, (used() + (64 << 20),) * 2)", ["2048 MiB of address space", "ulimit -v", "MiB leaves 6"]),
    ("resource.setrlimit(resource.RLIMIT_AS, (used() + (1800 << 20),) * 2)", ["ulimit -v", "MiB leaves 17"]),
    # All are of the limit's one process. Root is bound by no such limit.
    ("os.geteuid() or os.setuid(65534); resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))",
     ["more threads", "can start 0", "ulimit -u", "pids.max"]),
    ("n = os.open('/dev/null', 0); resource.setrlimit(resource.RLIMIT_NOFILE, (n + 4, n + 4))",
     ["16 more descriptors", "can open 3", "ulimit -n"]),
])
def test_what_the_runtime_lacks_is_an_import_error(python, limit, names):
    """Go's runtime would end the process."""
    said = python(LOAD % limit)
    assert said.startswith("goccl ") and all(name in said for name in names), said


def test_trying_leaves_nothing(python):
    said = python("""
        import os
        import time
        import torch
        from goccl import _room

        def threads():
            return len(os.listdir("/proc/self/task"))

        assert not _room.lack(_room.TO_LOAD)
        files, before = os.listdir("/proc/self/fd"), threads()
        for _ in range(50):
            assert _room.take(_room.Need(1 << 30, 8, 8)) == (True, 8, 8)
        assert _room.take(_room.Need(1 << 62, 8, 8)) == (False, 0, 8)
        end = time.monotonic() + 10
        while threads() > before and time.monotonic() < end:  # the last one may still be on its way out
            time.sleep(0.001)
        print(os.listdir("/proc/self/fd") == files, threads() <= before)
    """)
    assert said == "True True\n"


def test_registered_memory_where_addresses_are_limited(python):
    """16 GiB of it a rank would leave too little for all else."""
    said = python((LOAD % "resource.setrlimit(resource.RLIMIT_AS, (32 << 30,) * 2)") + """
t = torch.ones(1000)
dist.all_reduce(t)
assert used() < 10 << 30, used()
try:
    goccl.empty(10)
except Exception as e:
    print(e)
""")
    assert said.startswith("right\n") and "ulimit -v" in said and "GOCCL_REGISTERED=16G" in said, said


NO_NETLINK = """
import ctypes, struct
lines = [(0x20, 0, 0, 0), (0x15, 0, 3, {"x86_64": 41, "aarch64": 198}[os.uname().machine]), (0x20, 0, 0, 16),
         (0x15, 0, 1, 16), (0x06, 0, 0, 0x00050000 | 97), (0x06, 0, 0, 0x7fff0000)]
program = b"".join(struct.pack("HBBI", *line) for line in lines)
buffer = ctypes.create_string_buffer(program, len(program))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, struct.pack("HxxxxxxP", len(lines), ctypes.addressof(buffer)), 0, 0) == 0, ctypes.get_errno()
"""


def set_variables(**variables):
    return f"os.environ.update({variables!r})\n"


@pytest.mark.parametrize("before, transport", [
    (NO_NETLINK, "auto"),
    (set_variables(NCCL_SOCKET_IFNAME="ib0"), "auto"),
    (set_variables(GLOO_SOCKET_IFNAME="e th"), "auto"),
    (set_variables(NCCL_SOCKET_IFNAME="lo,"), "tcp"),
    (set_variables(NCCL_SOCKET_IFNAME="lo:1"), "tcp"),
    (set_variables(GLOO_SOCKET_IFNAME="lo,"), "tcp"),
    (set_variables(NCCL_SOCKET_IFNAME="^=eth77,=eth78"), "tcp"),
], ids=lambda value: value.split("{")[-1].strip("}\n)").replace("'", "") if "{" in value else None)
def test_what_others_set_does_not_stop_a_job(before, transport, tmp_path):
    with ranks("say(t.tolist())\nlisten()\n", 2, tmp_path, transport, join=before + JOIN) as group:
        assert [group.line(rank) for rank in range(2)] == ["[2.0, 2.0, 2.0, 2.0]"] * 2


SERVICE_LINKS = {
    "GOCCL_PORT": "tcp://10.96.0.10:29400", "GOCCL_SERVICE_HOST": "10.96.0.10", "GOCCL_SERVICE_PORT": "29400",
    "GOCCL_PORT_29400_TCP": "tcp://10.96.0.10:29400", "GOCCL_X_SERVICE_HOST": "fd00::1", "GOCCL_X_PORT": "udp://[fd00::1]:80",
}


def test_services_of_kubernetes_are_left_alone(python):
    said = python(f"import os\nos.environ.update({SERVICE_LINKS!r})\n{LOAD % ''}" + """
dist.new_group([0])
os.environ["GOCCL_TRANSPROT"] = "tcp"
try:
    dist.new_group([0])
except ValueError as e:
    print(str(e).splitlines()[0])
""")
    warning, right, refused = said.splitlines()
    assert all(each in warning for each in ("WARN", "GOCCL_PORT and 5 more", "Kubernetes", "enableServiceLinks: false")), said
    assert right == "right" and "GOCCL_TRANSPROT" in refused, said
