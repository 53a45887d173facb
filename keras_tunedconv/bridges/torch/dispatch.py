"""Whether a call may go past torch's dispatcher, which takes longer than the rest of a call.

The dispatcher does more than to find the device's function only for tensors with other keys than dense ones
have (transforms, subclasses, lazy negation, ...), in other states of the thread than the usual two (modes,
autocast, what is inside of an operator), and for `torch.overrides` and profilers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch

_FUNCTIONS = (
    "_dispatch_keys",
    "_dispatch_tls_local_include_set",
    "_dispatch_tls_local_exclude_set",
    "_len_torch_function_stack",
)
# They are not public; where a version of torch lacks one, each call is dispatched.
_can_tell = all(hasattr(torch._C, name) for name in _FUNCTIONS) and hasattr(
    torch.autograd, "_profiler_enabled"
)


def are_bare(*tensors: Any) -> bool:
    """Whether the dispatcher would do nothing for these tensors, now, but call their device's function."""
    if not _can_tell or torch._C._len_torch_function_stack() or torch.autograd._profiler_enabled():
        return False
    usual = _usual(tensors[0].device.type)
    return _thread() in usual and all(_keys(tensor) in usual for tensor in tensors)


def _thread() -> tuple[int, int]:
    include, exclude = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set
    return include().raw_repr(), exclude().raw_repr()


def _keys(tensor: Any) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


@cache
def _usual(device: str) -> frozenset[Any]:
    """Keys of dense tensors and states of a thread at rest, with inference mode and without."""
    found: set[Any] = set()

    def look() -> None:
        for inference in (False, True):
            with torch.inference_mode(inference):
                found.update((_keys(torch.empty(0, device=device)), _thread()))

    with ThreadPoolExecutor(1) as pool:  # a new thread, since this one may be in any state
        pool.submit(look).result()
    return frozenset(found)
