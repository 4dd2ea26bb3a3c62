"""The settings of a group: the variables of the environment and the caller's Options, as lines for the core.

Only the core knows the valid names and values; it checks them when the group is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._C import Options as GroupOptions

PREFIX = "GOCCL_"
_BUILD = PREFIX + "BUILD"  # of _shim.py, no setting

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


class Settings:
    """The methods of Options; its fields are in zoptions.py, generated from the table of the core."""

    extra: Mapping[str, str]

    def settings(self) -> dict[str, str]:
        """Returns the given settings, by the names of their environment variables."""
        found: dict[str, str] = {}
        for each in fields(self):  # type: ignore[arg-type]  # zoptions.Options is a dataclass
            value = getattr(self, each.name)
            if value is not None and each.name != "extra":
                found[PREFIX + each.name.upper()] = _text(each.name, value)
        for name, value in self.extra.items():
            if not name.startswith(PREFIX):
                raise ValueError(f"goccl.Options: the names in extra begin with {PREFIX}; got {name!r}")
            found[name] = str(value)
        return found

    def native(self) -> GroupOptions:
        """Returns these settings as torch's own options, for calls that accept no others, such as ``split_group`` and
        ``shrink_group``.

        They include variables of the environment. If no timeout is set, it is torch's default of 30 minutes until the
        call sets its own.
        """
        from torch.distributed.constants import default_pg_timeout

        from ._group import native
        from ._recorder import settings

        return native(settings() + lines(self), default_pg_timeout)


def _text(name: str, value: Any) -> str:
    if name == "timeout" and not isinstance(value, str):
        timeout = value if isinstance(value, timedelta) else timedelta(seconds=value)
        if timeout <= timedelta(0):
            raise ValueError(f"goccl.Options: timeout must be longer than zero; got {timeout}")
        value = timeout
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    return str(int(value) if isinstance(value, bool) else value)


# What NCCL has under another name, in the same form.
_NCCL = {"IB_HCA": "NCCL_IB_HCA", "IB_GID_INDEX": "NCCL_IB_GID_INDEX"}


def lines(options: Settings | None, environ: Mapping[str, str] = os.environ) -> str:
    """Returns every GOCCL_* variable, then the settings of options, as NAME=value lines; a later line wins."""
    settings = [(name, environ[name]) for name in sorted(environ)
                if name.startswith(PREFIX) and name != _BUILD]
    if not environ.get(PREFIX + "SOCKET_IFNAME"):  # the core knows the form that these have there
        theirs = next((name for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if environ.get(name, "").strip()), None)
        if theirs:
            settings.append((PREFIX + "SOCKET_IFNAME", f"{theirs}={environ[theirs].strip()}"))
    settings += [(PREFIX + name, environ[theirs].strip()) for name, theirs in _NCCL.items()
                 if not environ.get(PREFIX + name) and environ.get(theirs, "").strip()]
    if options is not None:
        settings += options.settings().items()
    for name, value in settings:
        if "\n" in name + value or "\0" in name + value or "=" in name:
            raise ValueError(f"goccl: {name}={value!r}: a setting cannot contain a line break")
    return "\n".join(f"{name}={value}" for name, value in settings)


def _last(text: str, option: str) -> str:
    """Returns the value of an option in the lines, "" if there is none."""
    value = ""
    for line in text.split("\n"):
        name, _, setting = line.partition("=")
        if name == PREFIX + option:
            value = setting.strip()
    return value


def waits_block(text: str) -> bool:
    """Returns GOCCL_BLOCKING_WAIT of the lines."""
    return _last(text, "BLOCKING_WAIT") == "1"


def futures_wait(text: str) -> bool:
    """Returns whether GOCCL_FUTURES of the lines is wait."""
    return _last(text, "FUTURES") == "wait"


def record_file(text: str) -> str:
    """Returns GOCCL_RECORD_FILE of the lines, "" if there is none."""
    return _last(text, "RECORD_FILE")


def timeout_of(text: str) -> timedelta | None:
    """Returns the timeout in the lines, which overrides torch's: seconds (90) or a Go duration (1m30s).

    None if there is none, or one that the core will refuse.
    """
    value = _last(text, "TIMEOUT")
    parts = _DURATION.findall(value) or _DURATION.findall(value := value + "s")
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts)) or None
