"""What a group is made with: the variables of the environment and the caller's Options, as lines for the core.

Only the core knows which names and values there are; it checks them when the group is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._C import Options as GroupOptions

PREFIX = "GOCCL_"


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


@dataclass
class Options:
    """Settings of one group; each wins over the environment variable of the same name.

    Pass it as ``pg_options`` of ``init_process_group`` or ``new_group``; all ranks of the group must pass the same. ::

        dist.init_process_group("goccl", pg_options=goccl.Options(transport="tcp", socket_ifname="eth0,eth1"))

    Args:
        timeout: of operations and of making the group, as a timedelta or in seconds (``GOCCL_TIMEOUT``). It wins over the
            ``timeout`` of init_process_group and new_group.
        transport: ``"auto"``, ``"shm"`` or ``"tcp"`` (``GOCCL_TRANSPORT``).
        socket_ifname: network interfaces: ``"eth0,eth1"``, prefixes, ``"^docker,lo"`` to exclude
            (``GOCCL_SOCKET_IFNAME``).
        algo: algorithms of collectives, ``"all_reduce=ring,broadcast=binomial"`` (``GOCCL_ALGO``).
        buffsize: most bytes of windows that a rank has in the group, as a number or ``"8M"`` (``GOCCL_BUFFSIZE``).
        determinism: 2 (the same bits on every rank and in every run), 3 (also whatever the size) or 4 (also whatever the
            algorithm) (``GOCCL_DETERMINISM``).
        plan: files with plans of your own, separated by commas (``GOCCL_PLAN``).
        tune: a file that says which algorithm was fastest where, as ``goccl tune --measure`` writes it (``GOCCL_TUNE``).
        verify: ``"tested"``, or ``"always"`` to prove every plan again before its first use (``GOCCL_VERIFY``).
        fast_bf16: sums of bf16 by AVX512_BF16, whose subnormal results are zero, where the CPUs of all ranks have it
            (``GOCCL_FAST_BF16``).
        debug: ``"WARN"``, ``"INFO"`` or ``"TRACE"`` (``GOCCL_DEBUG``).
        extra: other settings, by the names of their environment variables.

    Making the group raises an error that names a setting that the core does not know, or its value.
    """

    timeout: timedelta | float | None = None
    transport: str | None = None
    socket_ifname: str | None = None
    algo: str | None = None
    buffsize: int | str | None = None
    determinism: int | None = None
    plan: str | None = None
    tune: str | None = None
    verify: str | None = None
    fast_bf16: bool | None = None
    debug: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """The settings that were given, by the names of their environment variables."""
        found: dict[str, str] = {}
        for name in ("transport", "socket_ifname", "algo", "buffsize", "determinism", "plan", "tune", "verify", "fast_bf16",
                     "debug"):
            value = getattr(self, name)
            if value is not None:
                found[PREFIX + name.upper()] = str(int(value) if isinstance(value, bool) else value)
        if self.timeout is not None:
            timeout = self.timeout if isinstance(self.timeout, timedelta) else timedelta(seconds=self.timeout)
            if timeout <= timedelta(0):
                raise ValueError(f"goccl.Options: timeout must be longer than zero; got {timeout}")
            found[PREFIX + "TIMEOUT"] = f"{timeout // timedelta(microseconds=1)}us"
        for name, value in self.extra.items():
            if not name.startswith(PREFIX):
                raise ValueError(f"goccl.Options: the names in extra begin with {PREFIX}; got {name!r}")
            found[name] = str(value)
        return found

    def native(self) -> GroupOptions:
        """These settings in the form of torch's own options, for calls that take no other: ``split_group``, ``shrink_group``.

        Variables of the environment are among them. Where no timeout is set, it is torch's default of 30 minutes until the
        call sets its own.
        """
        from torch.distributed.constants import default_pg_timeout

        from ._group import native
        from ._recorder import settings

        return native(settings() + lines(self), default_pg_timeout)


def lines(options: Options | None, environ: Mapping[str, str] = os.environ) -> str:
    """Every GOCCL_* variable, then the settings of options, as NAME=value lines; a later line wins."""
    settings = [(name, environ[name]) for name in sorted(environ) if name.startswith(PREFIX)]
    if options is not None:
        settings += options.settings().items()
    for name, value in settings:
        if "\n" in name + value or "\0" in name + value or "=" in name:
            raise ValueError(f"goccl: {name}={value!r}: a setting cannot contain a line break")
    return "\n".join(f"{name}={value}" for name, value in settings)


def timeout_of(text: str) -> timedelta | None:
    """The timeout in lines, which the core uses rather than torch's: seconds (90) or a Go duration (1m30s).

    None if there is none, or one that the core will refuse.
    """
    value = ""
    for line in text.split("\n"):
        name, _, setting = line.partition("=")
        if name == PREFIX + "TIMEOUT":
            value = setting.strip()
    parts = _DURATION.findall(value) or _DURATION.findall(value := value + "s")
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts)) or None
