"""The programs of docs/start, with the commands of their pages and what these say they print."""
import os
import pathlib
import re
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).parents[2]


def blocks(page):
    """Returns the blocks of code of a page: (language, title, text)."""
    text = (ROOT / "docs/start" / page).read_text()
    return re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)


def test_cpu(tmp_path):
    all_blocks = blocks("cpu.md")
    ((_, name, program),) = [block for block in all_blocks if block[1]]
    if torch.__version__ < "2.14":
        program = "import goccl\n" + program
    (tmp_path / name).write_text(program)
    (command,) = [text.strip() for language, _, text in all_blocks if language == "sh" and text.startswith("goccl run")]
    (said,) = [text for language, _, text in all_blocks if language == "text"]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in (command, "torchrun --standalone --nproc-per-node 2 train.py"):
        done = subprocess.run(line, shell=True, cwd=tmp_path, timeout=100, env={**os.environ, "PATH": path},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_gpu_page_is_a_program():
    """There is no GPU here: it compiles, and differs from the other one by the device."""
    ((_, name, program),) = [block for block in blocks("gpu.md") if block[1]]
    compile(program, name, "exec")
    assert "init_process_group" in program and "cuda" in program
