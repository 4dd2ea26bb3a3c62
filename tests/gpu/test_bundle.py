"""Makes the bundle for a machine with a GPU, unpacks it, and uses it where there is no Go."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
import torch
from test_checks import runner, told

pytestmark = pytest.mark.timeout(400)  # compiles what set-up has not compiled

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 60 << 20  # bytes of the archive
SLOWER = 2.0     # times the limits of the suites, on a busy machine


def run(*command, code=0, **options):
    """Returns what a command has printed, standard output apart from the messages."""
    done = subprocess.run([*map(str, command)], text=True, capture_output=True, timeout=300, **options)
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    run(ROOT / "ci/gpu_bundle.sh", folder, env={**os.environ, "PYTHON": sys.executable})
    (archive,) = folder.glob("goccl-gpu-*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def bundle(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    run("tar", "-xf", archive, "-C", folder)
    return folder / "goccl-gpu"


@pytest.fixture(scope="module")
def without_go(tmp_path_factory):
    """Returns an environment without Go, and without what the checkout sets."""
    folders = []
    for index, folder in enumerate(os.environ["PATH"].split(os.pathsep)):
        if (pathlib.Path(folder) / "go").exists():
            rest = tmp_path_factory.mktemp(f"path{index}")
            for each in pathlib.Path(folder).iterdir():
                if each.name not in ("go", "gofmt"):
                    (rest / each.name).symlink_to(each)
            folder = str(rest)
        folders.append(folder)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("GO", "PYTHONPATH")) and name not in ("ROOT", "VENV", "OUTER_PATH")}
    environment["PATH"] = os.pathsep.join(folders)
    assert shutil.which("go", path=environment["PATH"]) is None
    return environment


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """Returns the settings of a compiler that copies objects which set-up has made of the same files.

    Compiling takes more than two minutes on two cores, and set-up does the same.
    """
    tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    version = torch.__version__.partition("+")[0]
    made = [path.parent for path in ROOT.glob(f"build/torch-{version}/temp.*{tag}/python/csrc/work.o")]
    sources = [*(ROOT / "python/csrc").iterdir(), ROOT / "cabi/exports/goccl.h", ROOT / "setup.py"]
    objects = [path for folder in made for path in folder.glob("*.o")]
    if len(made) != 1 or min(path.stat().st_mtime for path in objects) < max(path.stat().st_mtime for path in sources):
        return {}
    script = tmp_path_factory.mktemp("compiler") / "c++"
    script.write_text(COMPILER.format(objects=made[0], compiler=os.environ.get("CXX", "c++")))
    script.chmod(0o755)
    return {"CXX": str(script)}


COMPILER = """#!/bin/sh
output= previous=
for each; do
    if [ "$previous" = -o ]; then output=$each; fi
    previous=$each
done
object={objects}/${{output##*/}}
case $output in *.o) if [ -f "$object" ]; then exec cp "$object" "$output"; fi ;; esac
exec {compiler} "$@"
"""


@pytest.fixture(scope="module")
def site(bundle, without_go, compiler, tmp_path_factory):
    """Returns the folder into which the bundle was installed."""
    folder = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--target", folder,
        bundle, env={**without_go, **compiler, "GOCCL_PREBUILT": str(bundle / "prebuilt"),
                     "LDFLAGS": "-static-libstdc++"})
    return folder


def test_archive(archive):
    assert archive.stat().st_size < MOST
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names) and {member.mtime for member in members} == {1577836800}
    assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}
    for part in ("setup.py", "python/goccl/VERSION", "python/csrc/backend.h", "cabi/exports/goccl.h", "ci/gpu.sh",
                 "tests/gpu/run.py", "examples/fsdp2.py", "docs/cuda.md", "prebuilt/VERSION", "prebuilt/libgoccl.so",
                 "prebuilt/bin/goccl", "prebuilt/driver.test", "prebuilt/group.test"):
        assert f"goccl-gpu/{part}" in names
    assert not [name for name in names if name.endswith((".go", ".pyc", "_build.py"))]


def test_suites_are_those_that_are_started(bundle):
    """What -test.run names is there, and the flag for the GPU, too."""
    for section in runner.sections(ROOT):
        if section.suite:
            program = bundle / "prebuilt" / next(pathlib.Path(word).name for word in section.command if ".test" in word)
            (wanted,) = [word.partition("=")[2] for word in section.command if word.startswith("-test.run=")]
            wanted = wanted.partition("/")[0]
            listed, _ = run(program, f"-test.list={wanted}")
            assert len(listed.split()) == 1 + wanted.count("|"), (wanted, listed)
            _, said = run(program, "-nonsense", code=2)
            assert section.command[-1].partition("=")[0] in said


def test_suites_pass_on_memory_of_the_host(bundle, driver, without_go, tmp_path):
    without_kernels = ("TestConformance/(LaunchAll|LaunchPairs|LaunchIndirect|LaunchGather|Tables|Tick)"
                       "|^Test(Windows|Graph|Lend|Interpreted)")
    suites = [section for section in runner.sections(ROOT) if section.name in ("driver", "group")]
    for section in suites:
        section.limit *= SLOWER
        section.command.append(f"-test.timeout={section.limit - 5:.0f}s")
        section.command.append("-test.skip=" + without_kernels)
        section.command[0] = str(bundle / "prebuilt" / pathlib.Path(section.command[0]).name)
        section.environment["LD_LIBRARY_PATH"] = str(driver)
    runner.run_all(suites, tmp_path, 300)
    ends = [(each["result"], each["text"]) for section in suites for each in section.results]
    assert [result for result, _ in ends] == ["PASS", "PASS"], ends
    assert all(int(text.split()[0]) > least for (_, text), least in zip(ends, (30, 10), strict=True)), ends


@pytest.mark.long
def test_installed_without_go(bundle, site, without_go):
    for part in "libgoccl.so", "bin/goccl":
        assert (site / "goccl" / part).read_bytes() == (bundle / "prebuilt" / part).read_bytes()
    # Even a linker that would take a static C++ library has taken that of torch.
    (extension,) = (site / "goccl").glob("_C.*.so")
    assert b"\0libstdc++.so.6\0" in extension.read_bytes()
    environment = {**without_go, "PYTHONPATH": str(site)}
    where, _ = run(sys.executable, "-c", "import importlib.util; print(importlib.util.find_spec('goccl').origin)",
                   env=environment, cwd=site)
    assert pathlib.Path(where.strip()) == site / "goccl/__init__.py"
    said, _ = run(sys.executable, bundle / "tests/gpu/matrix.py", "--device", "cpu", "--quick", env=environment)
    (end,) = told(said)
    assert end["result"] == "PASS" and end["numbers"]["calls"] > 50, end


def test_without_a_gpu_nothing_is_run(bundle, without_go, tmp_path):
    for script in bundle / "ci/gpu.sh", ROOT / "ci/gpu.sh":
        said, why = run(script, tmp_path / "out", cwd=tmp_path,
                        env={**without_go, "CUDA_VISIBLE_DEVICES": "", "PYTHON": sys.executable})
        assert said == "no GPU, nothing run\n" and why.startswith("ci/gpu.sh: "), why
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("spoil, words", [
    (lambda folder: shutil.rmtree(folder), "has no VERSION."),
    (lambda folder: (folder / "libgoccl.so").unlink(), "has no libgoccl.so."),
    (lambda folder: (folder / "bin/goccl").unlink(), "has no bin/goccl."),
    (lambda folder: (folder / "VERSION").write_text("0.0.7\n"), "is of goccl 0.0.7, and this is the source of "),
], ids=["nothing", "libgoccl.so", "bin", "VERSION"])
def test_what_is_not_of_this_version_is_refused(spoil, words, bundle, without_go, tmp_path):
    folder = tmp_path / "prebuilt"
    (folder / "bin").mkdir(parents=True)
    for part in "VERSION", "libgoccl.so", "bin/goccl":
        shutil.copy(bundle / "prebuilt" / part, folder / part)
    spoil(folder)
    _, said = run(sys.executable, "setup.py", "-q", "build_ext", code=1, cwd=bundle,
                  env={**without_go, "GOCCL_PREBUILT": str(folder)})
    assert f"goccl cannot be built: GOCCL_PREBUILT={folder} {words}" in said, said
    assert "make gpu-bundle" in said and "unset GOCCL_PREBUILT" in said, said
