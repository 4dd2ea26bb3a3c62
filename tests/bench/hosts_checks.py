"""Checks between hosts that are not ratios of times: cuts, strangers, IPv6, many ranks, equal bits.

Each check is a function that runs in the process that made the network, prints what it measured, and returns what is
missed.
"""
import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import core

PORT = 29600  # the ranks of these checks listen here and above (GOCCL_PORT)
RANK = pathlib.Path(__file__).with_name("hosts_rank.py")


def command(*words):
    subprocess.run([str(word) for word in words], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def on_host(host):
    """The words before a command that runs on a host."""
    return ["ip", "netns", "exec", f"host{host}"]


def on_core(rank):
    """The words before a command that bind a rank to a core.

    Hosts have cores of their own, and their ranks do not push each other aside. The hosts here are one machine.
    """
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[rank % len(cores)])]


def at_home(rank, each):
    """The words before the command of a rank on its host, which has this number of ranks, and on its core."""
    return [*on_core(rank), *on_host(rank // each)]


class Ranks:
    """Processes of hosts_rank.py, in order of ranks. each is how many a host has; 0 means this host.

    With apart each rank is bound to a core.
    """

    def __init__(self, options, mode, ranks, each, apart=False, **settings):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="goccl-hosts-"))
        self.processes = []
        env = {**os.environ, "GOCCL_PORT": f"{PORT}-{PORT + ranks}", "GOCCL_DEBUG": "WARN", **settings}
        with open(self.folder / "log", "wb") as log:
            for rank in range(ranks):
                words = [options.python, str(RANK), str(rank), str(ranks), str(self.folder), mode]
                if apart:
                    words = [*on_core(rank), *words]
                if each:
                    words = [*on_host(rank // each), *words]
                self.processes.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                                       text=True, bufsize=1, env=env))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            with contextlib.suppress(BrokenPipeError):  # what was told to a rank that has ended
                process.stdin.close()
            process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tell(self, word):
        with contextlib.suppress(BrokenPipeError):  # hear finds that the rank has ended
            self.processes[0].stdin.write(word + "\n")

    def hear(self, seconds=300):
        """The next line of each rank."""
        timers = [threading.Timer(seconds, process.kill) for process in self.processes]
        for timer in timers:
            timer.start()
        try:
            lines = [process.stdout.readline() for process in self.processes]
        finally:
            for timer in timers:
                timer.cancel()
        early = [str(rank) for rank, line in enumerate(lines) if not line]
        if early:
            raise core.Failure(f"ranks {', '.join(early)} ended early, or did not answer for {seconds} s:\n"
                               f"{self.log()[-6000:]}")
        return [json.loads(line) for line in lines]

    def log(self):
        return (self.folder / "log").read_text(errors="replace")


def cuts(options):
    """4 ranks on 2 hosts, sums of 8 B to 64 MiB while the wire is cut 200 times."""
    wanted, missed = 200, []
    dice = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    with Ranks(options, "sums", 4, 2, GOCCL_SOCKET_IFNAME="eth") as ranks:
        ranks.hear()
        begun, kinds = time.monotonic(), {"reset": 0, "silence": 0, "interface down": 0}
        for _ in range(wanted):
            # The kernel asks for the address of a neighbour once a second: a wire that is up for shorter times only
            # may carry nothing within GOCCL_PEER_TIMEOUT.
            time.sleep(dice.uniform(0.1, 1.5))
            kind = dice.choice(list(kinds))
            kinds[kind] += 1
            host = dice.randrange(2)
            if kind == "reset":
                command(*on_host(host), "ss", "-K", "state", "established", f"sport >= :{PORT}")
                command(*on_host(host), "ss", "-K", "state", "established", f"dport >= :{PORT}")
                continue
            where = ["-n", f"host{host}", "link", "set", "eth0"]
            if kind == "silence":
                where = ["link", "set", f"port0.{host}"]
            command("ip", *where, "down")
            time.sleep(dice.uniform(0.1, 3) if kind == "silence" else dice.uniform(0.1, 1))
            command("ip", *where, "up")
        ranks.tell("end")
        ends = ranks.hear()
        healed = ranks.log().count("carries on after")
    took = time.monotonic() - begun
    print(f"{wanted} cuts ({', '.join(f'{n} × {kind}' for kind, n in kinds.items())}) in {took:.0f} s, "
          f"{ends[0]['calls']} all_reduces, {healed} connections made again")
    for rank, end in enumerate(ends):
        print(f"  rank {rank}: {end['wrong']} wrong elements; before {end['before']}, after {end['after']}")
        grown = end["after"]["descriptors"] - end["before"]["descriptors"]
        if end["wrong"] or grown > 0 or end["after"]["mib"] > end["before"]["mib"] + 32:
            missed.append(f"rank {rank}: {end}")
    if ends[0]["calls"] < 1000:
        missed.append(f"{ends[0]['calls']} all_reduces of 1000")
    return missed


def loss(options):
    """4 ranks on 2 hosts, sums of 8 B to 64 MiB over a wire that loses packets."""
    with Ranks(options, "sums", 4, 2, GOCCL_SOCKET_IFNAME="eth") as ranks:
        ranks.hear()
        time.sleep(10)
        ranks.tell("end")
        ends = ranks.hear()
    print(f"{ends[0]['calls']} all_reduces, {sum(end['wrong'] for end in ends)} wrong elements")
    return ["wrong sums"] if any(end["wrong"] for end in ends) else []


def address(host):
    """The IPv4 address of a host's first interface."""
    text = subprocess.run(["ip", "-n", f"host{host}", "-json", "addr", "show", "eth0"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return next(a["local"] for a in json.loads(text)[0]["addr_info"] if a["family"] == "inet")


class Strangers:
    """A process that connects to a port of host 0, that of rank 0: silent connections, or garbage at a rate. Or it
    listens there, and closes each connection after some bytes.
    """

    def __init__(self, options, kind, port=PORT, host=1):
        self.process = subprocess.Popen(
            [*on_host(host), options.python, __file__, kind, address(0), str(port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def end(self):
        self.process.stdin.close()
        count = int(self.process.stdout.readline() or 0)
        self.process.wait(60)
        self.process.stdout.close()
        return count


def strangers(kind, at, port):
    """The process of Strangers."""
    import select
    import sys

    held, count = [], 0
    if kind == "silent":
        while count < 300:
            try:
                held.append(socket.create_connection((at, port), 5))
                count += 1
            except ConnectionRefusedError:
                time.sleep(0.01)  # nobody listens yet
        print("ready", flush=True)
        sys.stdin.read()
    elif kind == "closes":
        with socket.create_server((at, port)) as server:
            print("ready", flush=True)
            while sys.stdin not in select.select([sys.stdin, server], [], [])[0]:
                with server.accept()[0] as connection, contextlib.suppress(OSError):
                    connection.recv(400)
                count += 1
    else:
        print("ready", flush=True)
        begun = time.monotonic()
        while not select.select([sys.stdin], [], [], max(0, begun + count / 200 - time.monotonic()))[0]:
            try:
                with socket.create_connection((at, port), 5) as connection:
                    connection.sendall(random.randbytes(random.randrange(1, 400)))
            except OSError:
                pass  # it is closed by the other side at any time
            count += 1
    print(count, flush=True)


def garbage(options):
    """10,000 garbage connections at 200 a second, while 2 ranks on 2 hosts sum.

    The strangers take processor time of this machine, so they are always there: at first they connect to a process that
    only closes connections, then to rank 0.
    """
    quiet, noisy, total = [], [], 0
    closes = Strangers(options, "closes", PORT - 1, host=0)
    with Ranks(options, "rates", 2, 1, apart=True, GOCCL_SOCKET_IFNAME="eth") as ranks:
        time.sleep(5)
        ranks.tell("begin")
        ranks.hear()
        for _ in range(5):
            for times, port in (quiet, PORT - 1), (noisy, PORT):
                flood = Strangers(options, "garbage", port)
                ranks.tell("begin")
                ranks.hear()
                time.sleep(10)
                ranks.tell("next")
                times.append(statistics.mean(row["us"] for row in ranks.hear()))
                sent = flood.end()
                total += sent if times is noisy else 0
        ranks.tell("end")
        ranks.hear()
    closes.end()
    slower = statistics.median(n / q for n, q in zip(noisy, quiet)) - 1
    print(f"all_reduce of 64 KiB: {statistics.median(quiet):.0f} µs, with {total} garbage connections to rank 0 "
          f"{statistics.median(noisy):.0f} µs: {slower:+.1%} (median of {len(quiet)} pairs of periods)")
    return [f"{slower:.1%} slower"] if slower >= 0.1 else []


def silent(options):
    """A group joins while 300 silent connections are open."""
    with Ranks(options, "joins", 2, 1, GOCCL_SOCKET_IFNAME="eth") as ranks:
        flood = Strangers(options, "silent")  # as soon as rank 0 listens
        (ranks.folder / "go").touch()
        rows = ranks.hear()
        held = flood.end()
    took = rows[1]["seconds"]
    print(f"rank 1 joins, and sums, in {took * 1e3:.0f} ms beside {held} silent connections to rank 0")
    return [] if took < 1 and held == 300 and all(row["right"] for row in rows) else [f"{took:.2f} s"]


def tls(options):
    """One way with TLS, from C."""
    size, rates = 16 << 20, []
    core.build_program("goccl")
    library = core.build_libgoccl()
    for _ in range(min(options.runs, 3)):
        with tempfile.TemporaryDirectory(prefix="goccl-hosts-") as folder:
            world = core.World("goccl", 2, pathlib.Path(folder), size, [library, "GOCCL_TLS=1"], on_host)
            turns = core.Turns(world, ("ping_pong", "f32", size), 300e3)
            rates += [size / turns.block() / 1e3 for _ in range(3)]
            world.close()
    rate = statistics.median(rates)
    print(f"16 MiB one way: {rate:.2f} GB/s ({min(rates):.2f}–{max(rates):.2f})")
    return [] if rate >= 1 else [f"{rate:.2f} of 1 GB/s"]


def bits(options):
    """Losses of DDP on 2 × 2 ranks and on 4 of one host, with GOCCL_DETERMINISM=4."""
    rows = []
    for each in (2, 0):
        with Ranks(options, "losses", 4, each, GOCCL_SOCKET_IFNAME="eth" if each else "lo",
                   GOCCL_DETERMINISM="4") as ranks:
            rows += [row["losses"] for row in ranks.hear()]
    equal = all(row == rows[0] for row in rows)
    print(f"losses of 10 steps: {'equal bit for bit' if equal else rows}")
    return [] if equal else ["they differ"]


def overlap(options):
    """DDP computes while it communicates. Gloo, at the same work, shows what the cores leave of it."""
    hidden = {}
    for backend, interface in ("gloo", "GLOO_SOCKET_IFNAME"), ("goccl", "GOCCL_SOCKET_IFNAME"):
        with Ranks(options, "overlap", 2, 1, BACKEND=backend, **{interface: "eth0"}) as ranks:
            rows = ranks.hear()
        parts = {name: max(row[name] for row in rows) for name in rows[0]}
        both = parts["compute"] + parts["communicate"]
        hidden[backend] = (both - parts["step"]) / min(parts["compute"], parts["communicate"])
        print(f"{backend}: computing alone {parts['compute'] * 1e3:.0f} ms, communicating alone "
              f"{parts['communicate'] * 1e3:.0f} ms (processor time {parts['processor'] * 1e3:.0f} ms), "
              f"a step {parts['step'] * 1e3:.0f} ms: {hidden[backend]:.0%} of the shorter is hidden")
    return [] if hidden["goccl"] >= 0.8 else [f"{hidden['goccl']:.0%} of 80 % (Gloo: {hidden['gloo']:.0%})"]


def ipv6(options):
    """2 ranks on 2 hosts that have no IPv4."""
    with Ranks(options, "joins", 2, 1, GOCCL_SOCKET_IFNAME="eth") as ranks:
        (ranks.folder / "go").touch()
        rows = ranks.hear()
    print(f"rank 1 joins, and sums, in {rows[1]['seconds'] * 1e3:.0f} ms")
    return [] if all(row["right"] for row in rows) else ["wrong"]


def many(_):
    """256 Go ranks by TCP, each a process of this machine, join a group."""
    program = core.BUILD / "goccl"
    core.command(["go", "build", "-o", program, "./cmd/goccl"], "cmd/goccl", cwd=core.ROOT)
    words = [*on_host(0), program, "bench", "--op", "barrier", "--transport", "tcp", "--repeat", "1",
             "--block", "1ms", "--ranks"]
    for ranks in (64, 256):
        begun, joined, log = time.monotonic(), [], []
        with subprocess.Popen([str(word) for word in [*words, ranks]], text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE,
                              env={**os.environ, "GOCCL_DEBUG": "INFO"}) as bench:
            for line in bench.stderr:
                log.append(line)
                if f"joined {ranks} ranks" in line:
                    joined.append(time.monotonic() - begun)
        took = time.monotonic() - begun
        if bench.returncode or len(joined) != ranks:
            return [f"{ranks} ranks, {len(joined)} joined: {''.join(log)[-1000:]}"]
        print(f"{ranks} ranks have joined after {joined[-1]:.1f} s; {took:.1f} s with checked barriers, and the proofs "
              "of their plans by every rank", flush=True)
    return [] if joined[-1] < 15 else [f"256 ranks in {joined[-1]:.1f} s of 15"]


CHECKS = {  # name: (function, title, wires)
    "cuts": (cuts, "4 ranks on 2 hosts, 200 cuts", ["plain"]),
    "loss": (loss, "4 ranks on 2 hosts, a wire that loses 1 % of the packets", ["loss=1%,delay=1ms"]),
    "garbage": (garbage, "10,000 garbage connections at 200 a second", ["plain"]),
    "silent": (silent, "300 silent connections while a group joins", ["plain"]),
    "overlap": (overlap, "DDP at 1 Gbit/s", ["rate=1gbit"]),
    "ipv6": (ipv6, "hosts without IPv4", ["ipv6"]),
    "tls": (tls, "2 hosts, GOCCL_TLS=1", ["plain"]),
    "bits": (bits, "2 × 2 ranks and one host give the same bits", ["plain"]),
    "256": (many, "256 Go ranks start on this machine", ["plain"]),
}


if __name__ == "__main__":
    import sys

    strangers(sys.argv[1], sys.argv[2], int(sys.argv[3]))
