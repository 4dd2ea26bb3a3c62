"""The ends of processes, and forks."""

ONE_RANK = """
import os, sys, datetime, threading, time
import torch, torch.distributed as dist
import goccl
dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
"""

TWO_RANKS = """
import os, sys, datetime, threading, time
import torch, torch.distributed as dist
import goccl
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("goccl", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=20))
"""


def fork(body):
    """Returns a script that runs body in a forked child, which must end within 10 s, and prints its output."""
    return ONE_RANK + f"""
t = torch.ones(1000)
future_work = dist.all_reduce(torch.ones(4), async_op=True)
future_work.get_future()
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
pid = os.fork()
if pid == 0:
    try:
{body}
    finally:
        sys.stdout.flush()
        os._exit(0)
end = time.monotonic() + 10
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    if time.monotonic() > end:
        os.kill(pid, 9)
        sys.exit("the child hangs")
    time.sleep(0.01)
dist.all_reduce(t)  # the parent goes on
print("parent", t[0].item())
dist.destroy_process_group()
"""


def test_fork_is_told_what_is_wrong(python):
    out = python(fork("""
        for call in (lambda: dist.all_reduce(t), lambda: dist.barrier(), lambda: backend.allreduce([t]), backend.abort,
                     lambda: dist.new_group([0], backend="goccl")):
            try:
                call()
                print("no error")
            except dist.DistBackendError as e:
                print("told", "fork" in str(e), "spawn" in str(e))
    """))
    assert out.splitlines() == ["told True True"] * 5 + ["parent 1.0"]


def test_destructors_do_nothing_in_a_fork(python):
    out = python(fork("""
        import gc
        del future_work, backend
        dist.distributed_c10d._world.pg_map.clear(); dist.distributed_c10d._update_default_pg(None)
        gc.collect()
        print("child done")
    """))
    assert out.splitlines() == ["child done", "parent 1.0"]


def test_fork_that_ends_in_order_leaves_the_parent_alone(python):
    out = python(ONE_RANK + """
pid = os.fork()
if pid == 0:
    sys.exit(0)  # runs the exit handlers
assert os.waitpid(pid, 0)[1] == 0
t = torch.ones(2)
dist.all_reduce(t)
print("parent", t.tolist())
""")
    assert out.splitlines() == ["parent [1.0, 1.0]"]


def test_fork_before_the_first_group_may_use_goccl(python):
    out = python("""
        import os, sys
        import torch, torch.distributed as dist
        import goccl
        pid = os.fork()
        dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
        t = torch.ones(2)
        dist.all_reduce(t)
        dist.destroy_process_group()
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        print("done")
    """)
    assert out.splitlines() == ["done", "done"]


def test_data_loader_workers_by_fork(python):
    out = python(ONE_RANK + """
loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=2, num_workers=2, multiprocessing_context="fork")
for batch in loader:
    dist.all_reduce(batch)
print("done")
dist.destroy_process_group()
""")
    assert out.splitlines() == ["done"]


def test_end_without_destroy(python):
    out = python(ONE_RANK + """
works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(5)]
futures = [work.get_future() for work in works]
print("done")
""")
    assert "done" in out.splitlines()


def test_end_with_work_in_flight(python, tmp_path):
    """Rank 1 never takes part in the operation that rank 0 has started.

    Rank 0 ends at once and cleanly, with a callback that needs Python.
    """
    import subprocess
    import sys

    script = TWO_RANKS + """
if rank == 0:
    work = dist.all_reduce(torch.ones(1000)[::2], async_op=True)
    work.get_future().add_done_callback(lambda f: print("callback", flush=True))
    dist.all_reduce(torch.ones(1000), async_op=True)  # dropped
    kept = dist.all_reduce(torch.ones(1000), async_op=True)
    print("leaving", flush=True)
else:
    time.sleep(1.0)
    os._exit(0)
"""
    other = subprocess.Popen([sys.executable, "-c", script, "1", str(tmp_path)])
    try:
        out = python(script, 0, tmp_path)
    finally:
        other.wait(30)
    assert out.splitlines()[0] == "leaving", out
    assert out.splitlines().count("callback") == 1, out


def test_threads_of_a_group_end_with_the_process(python):
    out = python(ONE_RANK + """
torch.set_num_threads(1)
def use():
    for _ in range(200):
        dist.all_reduce(torch.ones(10), async_op=True).get_future().wait()
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
dist.destroy_process_group()
""")
    assert out.splitlines() == ["done"]
