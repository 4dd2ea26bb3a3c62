"""What goccl is of, and what it is for, without torch: setup.py and ci/wheels.py ask it too."""

from pathlib import Path

__version__ = Path(__file__).with_name("VERSION").read_text(encoding="ascii").strip()


def minor(torch: str) -> str:
    """ "2.13" for "2.13.0+cu130"."""
    return ".".join(torch.split("+")[0].split(".")[:2])


def shim_folder(torch: str) -> str:
    """The name of the folder, in the package, of the shim for a torch."""
    return "torch" + minor(torch).replace(".", "_")
