"""Makes the wheel for the Python that runs this, and the source distribution, in dist/: ci/wheels.sh prepares that Python.

The wheel has a shim for each torch of ci/torch.txt that this Python can have. Only its headers are needed, so only they
are fetched: parts of the wheel in the package index. For another machine (--machine aarch64) with its cross-compiler.
"""

import argparse
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import urllib.parse
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/wheels"
DIST = ROOT / "dist"
MOST = 40 << 20  # bytes of a wheel
PYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}"
GOARCH = {"x86_64": "amd64", "aarch64": "arm64"}
# Where functions of libc.so.6 were before glibc 2.34 (ci/wheels.cpp).
OLD_LIBRARIES = "-Wl,--no-as-needed", "-l:libdl.so.2", "-l:libpthread.so.0"

sys.path.insert(0, str(ROOT / "python/goccl"))
import _compile  # noqa: E402
import _version  # noqa: E402


def stop(why):
    sys.exit(f"make wheels: {why}")


def run(*command, **settings):
    print("+", *command, flush=True)
    if subprocess.run([*map(str, command)], cwd=ROOT, env={**os.environ, **settings}).returncode != 0:
        stop(f"{command[0]} failed (see above)")


class Remote(io.RawIOBase):
    """A file that a server has, read in parts."""

    def __init__(self, url):
        self.url, self.at = url, 0
        with self.part("bytes=-1") as answer:
            if answer.status != 206:
                raise OSError(f"{url}: the server gives no parts of files")
            self.size = int(answer.headers["Content-Range"].rpartition("/")[2])

    def part(self, which):
        return urllib.request.urlopen(urllib.request.Request(self.url, headers={"Range": which}), timeout=120)

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, to, whence=os.SEEK_SET):
        self.at = to + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, into):
        count = min(len(into), self.size - self.at)
        if count <= 0:
            return 0
        with self.part(f"bytes={self.at}-{self.at + count - 1}") as answer:
            data = answer.read()
        into[:len(data)] = data
        self.at += len(data)
        return len(data)


def wheel_of_torch(release, machine):
    """Returns the address of a wheel of torch in the package index, None if it has none for this Python."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/torch/"
    ask = urllib.request.Request(index, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(ask, timeout=120) as answer:
        files = json.load(answer)["files"]
    form = re.compile(rf"torch-{re.escape(release)}-{PYTHON}-{PYTHON}-manylinux\w*_{machine}\.whl")
    found = [each["url"] for each in files if form.fullmatch(each["filename"])]
    return urllib.parse.urljoin(index, found[0]) if found else None


def headers(release, machine):
    """Returns torch's folder "include" of a release, None if there is none for this Python."""
    folder = BUILD / f"torch-{release}-{PYTHON}-{machine}"
    if not folder.is_dir():
        url = wheel_of_torch(release, machine)
        if url is None:
            print(f"torch {release}: the index has no wheel for {PYTHON} on {machine}, so this wheel has no shim for it")
            return None
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(io.BufferedReader(Remote(url), 1 << 20)) as archive:
            names = [name for name in archive.namelist() if name.startswith("torch/include/")]
            print(f"torch {release}: {len(names)} headers of {url.rpartition('/')[2]}", flush=True)
            archive.extractall(part, sorted(names, key=lambda name: archive.getinfo(name).header_offset))
        part.rename(folder)
    return folder / "torch/include"


def releases():
    """Returns the releases of ci/torch.txt that this Python can have."""
    rows = [line.split() for line in (ROOT / "ci/torch.txt").read_text().splitlines() if line and not line.startswith("#")]
    return [row[0] for row in rows if tuple(map(int, row[1].split("."))) <= sys.version_info[:2]]


def tools(machine):
    """Returns the C and the C++ compiler, ar, and objcopy, for a machine."""
    prefix = "" if machine == os.uname().machine else machine + "-linux-gnu-"
    found = prefix + "gcc", prefix + "g++", prefix + "ar", prefix + "objcopy"
    for each in found:
        if shutil.which(each) is None:
            stop(f"{each} is missing; apt-get install " + (f"g++-{machine.replace('_', '-')}-linux-gnu" if prefix else "g++"))
    return found


def prebuilt(machine):
    """Returns a folder for GOCCL_PREBUILT with what is in the wheel, all built."""
    cc, cxx, ar, objcopy = tools(machine)
    folder = BUILD / f"{PYTHON}-{machine}"
    go = BUILD / f"go-{machine}"
    old = {"c": BUILD / f"old-c-{machine}.o", "c++": BUILD / f"old-c++-{machine}.o"}
    for language, to in old.items():
        run(cxx if language == "c++" else cc, "-x", language, "-O2", "-Wall", "-fPIC", "-c", "ci/wheels.cpp", "-o", to)
    # As an archive, since Go's linker names it once for each package that has C in it.
    archive = BUILD / f"old-{machine}.a"
    run(ar, "rcs", archive, old["c"])
    run(sys.executable, "setup.py", "-q", "build_go", "--to", go, CC=cc, GOARCH=GOARCH[machine],
        CGO_LDFLAGS=shlex.join([str(archive), *OLD_LIBRARIES, "-l:libresolv.so.2"]))
    # Go's linker writes sections of versions with nothing in them, of a type that auditwheel does not read.
    run(objcopy, "--remove-section=.gnu.version_r", "--remove-section=.gnu.version", go / "bin/goccl")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(go, folder)
    suffix = sysconfig.get_config_var("EXT_SUFFIX").replace(os.uname().machine, machine)
    for release in releases():
        if (include := headers(release, machine)) is None:
            continue
        try:
            _compile.shim(release, include, ROOT / "python/csrc", ROOT / "cabi/exports", folder / _version.shim_folder(release) / f"_C{suffix}",
                          BUILD / f"objects-{PYTHON}-{machine}-{release}", [cxx], quiet=True,
                          link=[*_compile.LINK, str(old["c++"]), *OLD_LIBRARIES, "-s"])
        except _compile.Failed as e:
            stop(f"the shim for torch {release}: {e}")
        print(f"torch {release}: shim", flush=True)
        with (folder / "TORCH").open("a") as listed:
            listed.write(release + "\n")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machine", choices=sorted(GOARCH), default=os.uname().machine)
    machine = parser.parse_args().machine
    raw = BUILD / "raw"
    for folder in (raw, DIST):
        folder.mkdir(parents=True, exist_ok=True)
    given = prebuilt(machine)
    for old in (*raw.glob(f"*-{PYTHON}-*_{machine}.whl"), *DIST.glob(f"*-{PYTHON}-*_{machine}.whl"), *DIST.glob("*.tar.gz")):
        old.unlink()
    shutil.rmtree(ROOT / "build/torch-all", ignore_errors=True)
    run(sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", raw, "--plat-name", f"linux_{machine}",
        GOCCL_PREBUILT=str(given))
    (wheel,) = raw.glob(f"*-{PYTHON}-*_{machine}.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel,
        *(word for name in _compile.LIBRARIES for word in ("--exclude", name)))
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", DIST)
    (made,) = DIST.glob(f"*-{PYTHON}-*_{machine}.whl")
    run(sys.executable, "-m", "auditwheel", "show", made)
    run(sys.executable, "-m", "twine", "check", "--strict", made, *DIST.glob("*.tar.gz"))
    if made.stat().st_size > MOST:
        stop(f"{made} has {made.stat().st_size} bytes, at most {MOST}")
    for each in sorted(DIST.iterdir()):
        print(f"{each.relative_to(ROOT)}: {each.stat().st_size / (1 << 20):.1f} MiB")


if __name__ == "__main__":
    main()
