"""The futures of operations. Collectives in their callbacks are matched by the callback (python/csrc/callbacks.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from . import _loader

if TYPE_CHECKING:
    from ._C import Lineage


class Future(torch.futures.Future):  # type: ignore[type-arg]
    """A torch.futures.Future whose callbacks know to which operation they belong, wherever they run.

    The futures that ``then`` returns are of this kind, too.
    """

    def __init__(self, lineage: Lineage) -> None:
        super().__init__()
        self._lineage = lineage

    def then(self, callback: Callable[[torch.futures.Future[Any]], Any]) -> torch.futures.Future[Any]:
        """See torch.futures.Future."""
        return _loader.core().then(self, self._lineage, callback)

    def add_done_callback(self, callback: Callable[[torch.futures.Future[Any]], None]) -> None:
        """See torch.futures.Future."""
        _loader.core().add_done_callback(self, self._lineage, callback)
