"""torch.distributed over tutti: `import tutti.torch` registers the backend "tutti".

    import torch.distributed as dist, tutti.torch
    dist.init_process_group("tutti")                       # or "cpu:tutti,cuda:tutti"
    dist.init_process_group("tutti", pg_options=tutti.torch.Options(reproducible=True))

plugins/torch/README.md lists what torch asks of a backend and what is there.
"""

import torch.distributed as dist

from . import _library  # loads libtutti.so.0 before the backend asks for it  # noqa: F401

try:
    from tutti_torch import _backend
except ImportError as why:
    raise ImportError(f"tutti.torch needs the backend that is compiled against your torch ({why}): "
                      "pip install --no-build-isolation ./plugins/torch") from why

Options = _backend.Options


def _create(facts, options):
    """torch calls this for each new group."""
    if options is None:
        options = Options()
    elif not isinstance(options, Options):
        raise TypeError(f"pg_options is a {type(options).__name__}: pass tutti.torch.Options")
    else:
        options = options.__copy__()
    options._timeout = facts.timeout
    return _backend.create(facts.store, facts.group_rank, facts.group_size, options, facts.process_group)


dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])
