"""Tests what the dynamic linker sees."""
import re

from conftest import run


def needed(library):
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", "-W", library)))


def test_only_the_interface_is_exported(library):
    """A second Go runtime or cgo copy in the process must not bind to symbols of libgoccl."""
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    names = [line.split()[-1] for line in lines]
    assert len(names) > 10, names
    assert [name for name in names if not name.startswith("goccl_")] == []


def test_go_library_needs_libc_only(library):
    allowed = {"libc", "libpthread", "libdl", "libresolv", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert {name.split(".so")[0] for name in needed(library)} <= allowed


def test_shim_does_not_link_the_go_library(installed):
    """The library is opened at run time, since the Go runtime starts with the first group, not with the import."""
    (shim,) = (installed / "goccl").glob("torch*/_C*.so")
    libraries = needed(shim)
    assert not [name for name in libraries if "goccl" in name or name.startswith("libpython")], libraries
    assert "libtorch_cpu.so" in libraries or "libtorch.so" in libraries, libraries


def test_nothing_remembers_where_it_was_built(installed):
    for library in (installed / "goccl").rglob("*.so"):
        paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", run("readelf", "-d", "-W", library))
        assert all(part.startswith("$ORIGIN") for path in paths for part in path.split(":")), (library.name, paths)
