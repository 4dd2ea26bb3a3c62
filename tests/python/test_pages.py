"""What pages show of Python: programs, names, torchrun's flags; and the lines of goccl that start ranks, with less to
measure. All other lines of goccl are for cmd/goccl/pages_test.go.
"""
import ast
import dataclasses
import os
import pathlib
import pkgutil
import re
import shlex
import socket
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.distributed import run as torchrun

import goccl

ROOT = pathlib.Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path.read_text() for pattern in ("*.md", "docs/**/*.md", "examples/*.md")
         for path in sorted(ROOT.glob(pattern)) if path.name != "CHANGELOG.md"}
BLOCK = re.compile(r"^```\w*(?: title=.*)?\n([\s\S]*?)^```$|(?<=\n\n)( {4}.*\n(?:(?: {4}.*)?\n)*)", re.MULTILINE)
BENCH = r"((?:GOCCL_\S+ )?goccl bench(?: --?\w+(?: [\w.]+)?)*)( > .*)?$"
TWO_HOSTS = r"A\$ (goccl run (?!.*HOST0).* -- goccl .*)"  # HOST0: what needs two hosts indeed


def blocks():
    return [(page, textwrap.dedent(found[1] or found[2]))
            for page, text in PAGES.items() for found in BLOCK.finditer(text)]


def code():
    """Returns what is in backquotes, and the lines of blocks, without comments."""
    spans = [" ".join(span.split()) for text in PAGES.values()
             for span in re.findall(r"`([^`]+)`", BLOCK.sub("", text))]
    lines = [line.partition(" #")[0].strip() for _, block in blocks()
             for line in re.sub(r"\\\n *", "", block).splitlines()]
    return spans + lines


def matching(pattern):
    return sorted({found[1] for text in code() if (found := re.match(pattern, text))})


def test_blocks_are_programs():
    importing = re.compile(r"^(import [\w., ]+|from [\w.]+ import .*)( +#.*)?$", re.MULTILINE)
    whole = [(page, block) for page, block in blocks() if importing.search(block)]
    assert len(whole) >= 10
    for page, block in whole:
        try:
            ast.parse(block)
        except SyntaxError as error:
            raise AssertionError(f"{page}:\n{block}") from error


def test_names():
    """Names of the package, and the fields of its options."""
    text = "\n".join(code())
    names = set(re.findall(r"(?<![\w./-])goccl\.([a-z_]\w+)\b", text))
    assert len(names) > 10
    assert not {name for name in names if not hasattr(goccl, name)}
    fields = set(re.findall(r"goccl\.Options\((\w+)=", text))
    assert fields and fields <= {field.name for field in dataclasses.fields(goccl.Options)}


def test_names_of_torch():
    """Also the modules of python -m. The pages are about the newest torch."""
    modules = matching(r"python3? -m ([\w.]+)")
    names = set(re.findall(r"(?<![\w./-])(?:torch|dist)(?:\.\w+)+\b", "\n".join(code())))
    assert modules and len(names) > 40
    if torch.__version__ < "2.15":
        return
    names = [re.sub(r"^dist\.", "torch.distributed.", name)
             for name in names if ".WORLD." not in name]  # it is None without a group
    missing = [name for name in names + modules if not there(name)]
    assert not missing


def there(name):
    try:
        return pkgutil.resolve_name(name) is not None
    except (AttributeError, ImportError):
        return False


def test_torchrun():
    lines = matching(r"(?:\w*\$ |\w+=\S+ )?torchrun (-.*)")
    assert len(lines) > 5
    for line in lines:
        torchrun.get_args_parser().parse_args([*shlex.split(line), "train.py"])


def started(line, folder):
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(line, shell=True, cwd=folder, env={**os.environ, "PATH": path},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def free_ports():
    """Returns a port that is free, and so is the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("localhost", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("localhost", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def short(line):
    """Measures one block, and two sizes: where a flag is given twice the last one counts."""
    return line + " --repeat 1 --block 1ms --size 8,1M" if "goccl bench" in line else line


@pytest.mark.parametrize("line", [line for line in matching(r"(?:\$ )?" + BENCH) if "--launched" not in line])
def test_bench(line, tmp_path):
    process = started(short(line), tmp_path)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "1048576" in out, out


@pytest.mark.parametrize("line", matching(TWO_HOSTS))
def test_two_hosts(line, tmp_path):
    """Both launchers are on this host."""
    port = free_ports()
    line = short(line).replace("10.0.0.1", "localhost").replace("--port 29400", f"--port {port}")
    processes = [started(each, tmp_path) for each in (line, line.replace("--host 0", "--host 1"))]
    out = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], out
    assert out[0]


def test_lines_are_found():
    assert len(matching(r"(?:\$ )?" + BENCH)) > 3 and len(matching(TWO_HOSTS)) > 1
