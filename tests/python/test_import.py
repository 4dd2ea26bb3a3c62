"""The effects of importing goccl, and what happens only with the first process group."""
import importlib.metadata
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import goccl
from goccl import _compile, _loader, _shim
from goccl._options import lines, timeout_of


def test_import_starts_no_thread_and_loads_no_library(python):
    python("""
        import os, torch, torch.distributed
        before = len(os.listdir("/proc/self/task"))
        import goccl
        assert len(os.listdir("/proc/self/task")) == before
        maps = open("/proc/self/maps").read()
        assert "libgoccl" not in maps and "goccl/_C" not in maps
    """)


def test_first_group_loads_the_library(python):
    python("""
        import goccl, torch.distributed as dist
        dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
        assert "libgoccl.so" in open("/proc/self/maps").read()
        dist.destroy_process_group()
    """)


def test_registration():
    assert dist.is_backend_available("goccl")
    assert dist.Backend.GOCCL == "goccl"
    expected = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    assert dist.Backend.backend_capability["goccl"] == expected
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"


def test_registering_again_changes_nothing():
    before = dist.Backend._plugins["GOCCL"]
    goccl.register()
    assert dist.Backend._plugins["GOCCL"] is before
    assert dist.Backend.backend_list.count("goccl") == 1


def test_entry_point_registers():
    (entry,) = importlib.metadata.entry_points(group="torch.distributed.backends", name="goccl")
    assert entry.load() is goccl.register


@pytest.mark.skipif(not hasattr(dist.Backend, "_ensure_backend_registered"),
                    reason="torch before 2.14 has no such entry points")
def test_torch_finds_the_backend_by_its_name(python):
    python("""
        import sys, torch.distributed as dist
        assert "goccl" not in sys.modules
        dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
        assert "goccl" in sys.modules
        dist.destroy_process_group()
    """)


def test_version_is_that_of_the_package():
    assert goccl.version() == goccl.__version__
    assert importlib.metadata.version("goccl").split("+")[0] == goccl.__version__


def test_command_line_is_the_go_program():
    done = subprocess.run([sys.executable, "-m", "goccl", "--help"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert "goccl" in done.stdout


class TestOptions:
    def test_environment_comes_first_and_options_win(self):
        options = goccl.Options(transport="tcp", socket_ifname="eth0,eth1", algo="ring", buffsize="8M",
                                tune="t.table", registered=0, spin_us=20, fast_bf16=True, debug="INFO", timeout=1.5,
                                extra={"GOCCL_PLAN": "p.json"})
        environ = {"GOCCL_TRANSPORT": "shm", "GOCCL_B": "2", "GOCCL_A": "", "PATH": "/bin", "NOT_GOCCL_C": "3"}
        assert lines(options, environ).split("\n") == [
            "GOCCL_A=", "GOCCL_B=2", "GOCCL_TRANSPORT=shm",
            "GOCCL_ALGO=ring", "GOCCL_BUFFSIZE=8M", "GOCCL_DEBUG=INFO", "GOCCL_FAST_BF16=1", "GOCCL_REGISTERED=0",
            "GOCCL_SOCKET_IFNAME=eth0,eth1", "GOCCL_SPIN_US=20", "GOCCL_TIMEOUT=1500000us", "GOCCL_TRANSPORT=tcp",
            "GOCCL_TUNE=t.table",
            "GOCCL_PLAN=p.json",
        ]

    def test_times_may_have_a_unit_or_be_a_timedelta(self):
        assert goccl.Options(timeout="5m").settings() == {"GOCCL_TIMEOUT": "5m"}
        times = goccl.Options(timeout=timedelta(seconds=1.5), peer_timeout=timedelta(seconds=10)).settings()
        assert times == {"GOCCL_TIMEOUT": "1500000us", "GOCCL_PEER_TIMEOUT": "10000000us"}

    def test_nothing_set(self):
        assert lines(None, {}) == ""
        assert lines(goccl.Options(), {}) == ""

    @pytest.mark.parametrize("environ, interfaces", [
        ({"NCCL_SOCKET_IFNAME": " ^=docker0,lo, "}, "NCCL_SOCKET_IFNAME=^=docker0,lo,"),
        ({"GLOO_SOCKET_IFNAME": "eth0,eth1"}, "GLOO_SOCKET_IFNAME=eth0,eth1"),
        ({"NCCL_SOCKET_IFNAME": "ib", "GLOO_SOCKET_IFNAME": "eth0"}, "NCCL_SOCKET_IFNAME=ib"),
        ({"NCCL_SOCKET_IFNAME": " ", "GLOO_SOCKET_IFNAME": "eth0"}, "GLOO_SOCKET_IFNAME=eth0"),
        ({"NCCL_SOCKET_IFNAME": "", "GLOO_SOCKET_IFNAME": ""}, None),
        ({"GOCCL_SOCKET_IFNAME": "own", "NCCL_SOCKET_IFNAME": "ib"}, "own"),
    ])
    def test_interfaces_that_are_named_to_others(self, environ, interfaces):
        assert lines(None, environ) == ("" if interfaces is None else f"GOCCL_SOCKET_IFNAME={interfaces}")

    @pytest.mark.parametrize("environ, adapters", [
        ({"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1", "NCCL_IB_GID_INDEX": "3"},
         "GOCCL_IB_HCA==mlx5_0:1,mlx5_1\nGOCCL_IB_GID_INDEX=3"),
        ({"NCCL_IB_HCA": " ", "NCCL_IB_GID_INDEX": ""}, ""),
        ({"NCCL_IB_HCA": "mlx5", "GOCCL_IB_HCA": "^mlx5_3"}, "GOCCL_IB_HCA=^mlx5_3"),
    ])
    def test_adapters_that_are_named_to_nccl(self, environ, adapters):
        assert lines(None, environ) == adapters

    def test_environment_is_read_when_the_group_is_made(self, monkeypatch):
        monkeypatch.setenv("GOCCL_DEBUG", "INFO")
        assert "GOCCL_DEBUG=INFO" in lines(None).split("\n")

    @pytest.mark.parametrize("environ", [{"GOCCL_A": "1\nGOCCL_B=2"}, {"GOCCL_A\n": "1"}])
    def test_line_breaks_are_refused(self, environ):
        with pytest.raises(ValueError, match="cannot contain a line break"):
            lines(None, environ)

    def test_names_of_extra_are_checked(self):
        with pytest.raises(ValueError, match="begin with GOCCL_; got 'ALGO'"):
            goccl.Options(extra={"ALGO": "ring"}).settings()

    @pytest.mark.parametrize("text, seconds", [
        ("GOCCL_TIMEOUT=90", 90), ("GOCCL_TIMEOUT=1.5s", 1.5), ("GOCCL_TIMEOUT=5m", 300), ("GOCCL_TIMEOUT=1m30s", 90),
        ("GOCCL_TIMEOUT=250ms", 0.25), ("GOCCL_TIMEOUT=3\nGOCCL_A=1\nGOCCL_TIMEOUT=1500000us", 1.5),
        ("GOCCL_TIMEOUT= 2 ", 2), ("GOCCL_TIMEOUT=", None), ("GOCCL_TIMEOUT=soon", None),
        ("GOCCL_TIMEOUT=5 minutes", None), ("GOCCL_TIMEOUT=0", None),
        ("GOCCL_A=1", None), ("", None),
    ])
    def test_timeout_in_the_lines(self, text, seconds):
        assert timeout_of(text) == (None if seconds is None else timedelta(seconds=seconds))

    @pytest.mark.parametrize("timeout", [0, -1.0, timedelta(0)])
    def test_timeout_is_positive(self, timeout):
        with pytest.raises(ValueError, match="longer than zero"):
            goccl.Options(timeout=timeout).settings()


class TestLoader:
    @pytest.mark.parametrize("version, minor", [("2.13.0", "2.13"), ("2.13.0+cu130", "2.13"),
                                                ("2.15.0a0+git12", "2.15")])
    def test_minor(self, version, minor):
        assert _shim.minor(version) == minor

    def test_another_torch_is_refused(self, monkeypatch, tmp_path):
        import goccl._build

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(goccl._build, "torch", {"2.0": "2.0.1", "2.1": "2.1.2+cpu"})
        with pytest.raises(ImportError) as caught:
            _loader._load()
        text = str(caught.value)
        assert "built for torch 2.0, 2.1, but" in text and f"torch {torch.__version__} is installed" in text
        assert "pip install --no-build-isolation --force-reinstall --no-deps" in text and "GOCCL_BUILD=1" in text
        assert list(tmp_path.iterdir()) == []

    def test_a_shim_that_cannot_be_built(self, monkeypatch, tmp_path):
        """GOCCL_BUILD=1 says what the compiler said, and leaves nothing that would be taken for a shim."""
        import goccl._build

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("GOCCL_BUILD", "1")
        monkeypatch.setattr(goccl._build, "torch", {"2.1": "2.1.2+cpu"})
        monkeypatch.setenv("CXX", "no-such-compiler")
        with pytest.raises(ImportError, match="no shim could be made.*no-such-compiler is missing"):
            _shim.folder()
        monkeypatch.setenv("CXX", "sh -c 'echo it is broken; exit 3'")
        with pytest.raises(ImportError, match="ended with 3:\nit is broken"):
            _shim.folder()
        assert not list(tmp_path.rglob("*.so"))

    def test_a_shim_of_the_cache(self, monkeypatch, tmp_path):
        """Compiled once by one of the processes that come at the same time, and then found without GOCCL_BUILD."""
        import goccl._build

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(goccl._build, "torch", {"2.1": "2.1.2+cpu"})
        calls = []

        def compile_shim(release, headers, sources, include, output, objects, quiet):
            assert (sources / "bind.cpp").is_file() and (include / "goccl.h").is_file()
            calls.append(release)
            output.write_bytes(b"made")

        monkeypatch.setattr(_compile, "shim", compile_shim)
        monkeypatch.setenv("GOCCL_BUILD", "1")
        with ThreadPoolExecutor(4) as pool:
            folders = set(pool.map(lambda _: _shim.folder(), range(4)))
        assert calls == [torch.__version__] and len(folders) == 1
        monkeypatch.delenv("GOCCL_BUILD")
        assert {_shim.folder()} == folders

    def test_missing_library_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setattr(_loader, "_HERE", tmp_path)
        with pytest.raises(ImportError, match="libgoccl.so is missing.*pip install"):
            _loader._load()

    def test_broken_library_is_named(self, monkeypatch, tmp_path, python):
        (tmp_path / "libgoccl.so").write_text("not a library")
        out = python("""
            import pathlib, sys
            from goccl import _loader
            _loader._HERE = pathlib.Path(sys.argv[1])
            try:
                _loader.core()
            except ImportError as e:
                print(e)
        """, tmp_path)
        assert f"cannot load {tmp_path}/libgoccl.so" in out and "pip install" in out

    def test_another_version_of_the_library_is_refused(self, python):
        out = python("""
            from goccl import _loader
            _loader.__version__ = "9.9.9"
            try:
                _loader.core()
            except ImportError as e:
                print(e)
        """)
        assert "goccl 9.9.9" in out and f"is of version {goccl.__version__}" in out


def test_unknown_setting_is_refused_by_name(python):
    out = python("""
        import goccl, torch.distributed as dist
        try:
            dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
        except ValueError as e:
            print(e)
    """, env={**os.environ, "GOCCL_NO_SUCH_THING": "1"})
    assert "GOCCL_NO_SUCH_THING" in out


def test_options_of_another_backend_are_refused(python):
    out = python("""
        import goccl, torch.distributed as dist
        try:
            dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1, pg_options=object())
        except TypeError as e:
            print(e)
    """)
    assert "pg_options must be a goccl.Options" in out and "builtins.object" in out
