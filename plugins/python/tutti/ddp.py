"""Compressed gradients for torch's DistributedDataParallel, with the methods of tutti's trainer.

    parallel = torch.nn.parallel.DistributedDataParallel(model)
    tutti.ddp.compress(parallel, "bf16")                   # or "f16"; or "powersgd", rank=4

Source of PowerSGD: Vogels et al., "PowerSGD", 2019. What it leaves out is added to the next step's gradient.
"""

import concurrent.futures
from typing import Any

import torch
import torch.distributed as dist

from . import torch as _backend  # registers the backend  # noqa: F401
from .errors import InvalidArgumentError

_SEED = 1  # of the first thin matrices, equal on every rank
_HALVES = {"f16": torch.float16, "bf16": torch.bfloat16}


def compress(parallel: Any, method: str, *, rank: int = 4) -> None:
    """Registers a communication hook with a DistributedDataParallel: collective, once for each of them.

    method: "f16" or "bf16": the mean in a type of 16 bits. "powersgd": a matrix of m x n travels as rank * (m + n)
    numbers, if these are fewer; other tensors as they are. Errors: InvalidArgumentError.
    """
    if method not in (*_HALVES, "powersgd"):
        raise InvalidArgumentError(f"compression '{method}' is unknown: pass f16, bf16 or powersgd")
    if rank < 1:
        raise InvalidArgumentError(f"rank is {rank}; it must be 1 or more")
    # A group of its own: the hook's calls must not mix with those that the program makes in other threads.
    group = dist.new_group(dist.get_process_group_ranks(parallel.process_group), backend="tutti")
    if method in _HALVES:
        parallel.register_comm_hook((_HALVES[method], group), _half_hook)
    else:
        parallel.register_comm_hook(_PowerSgd(rank, group), _PowerSgd.hook)


def _half_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    dtype, group = state
    buffer = bucket.buffer()
    # Divided first: a sum of 16 bits may overflow.
    half = (buffer / dist.get_world_size(group)).to(dtype)
    work = dist.all_reduce(half, group=group, async_op=True)
    return work.get_future().then(lambda _: buffer.copy_(half))


class _PowerSgd:
    """The state of the hook. One thread takes the buckets in the order in which DDP fills them, equal on all ranks:
    the second all_reduce of a bucket depends on its first."""

    def __init__(self, rank: int, group: Any) -> None:
        self._rank, self._group = rank, group
        self.residuals: dict[Any, torch.Tensor] = {}  # by parameter, because DDP rebuilds its buckets
        self._right: dict[Any, torch.Tensor] = {}
        self._stream: torch.cuda.Stream | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="tutti-powersgd")

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer, gradients, parameters = bucket.buffer(), bucket.gradients(), bucket.parameters()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else None)
        stream = self._stream_after_program(buffer.device) if buffer.is_cuda else None

        def run():
            try:
                with torch.no_grad(), torch.cuda.stream(stream):
                    self._reduce(list(zip(parameters, gradients)))
                    future.set_result(buffer)  # whoever waits for the future waits for the stream, as it is now
            except Exception as error:  # DDP raises it
                future.set_exception(error)

        self._thread.submit(run)
        return future

    def _stream_after_program(self, device: torch.device) -> torch.cuda.Stream:
        """The thread's stream, behind what the program has issued: the gradients. It is not the program's own stream,
        where calls of this thread and of the program would come in another order on each rank."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        return self._stream

    def _is_thin(self, gradient):
        if gradient.dim() < 2:
            return False
        rows, columns = gradient.shape[0], gradient[0].numel()
        return rows > 1 and self._rank * (rows + columns) < rows * columns

    def _first(self, columns):
        generator = torch.Generator().manual_seed(_SEED + len(self._right))
        return torch.randn(columns, self._rank, generator=generator)

    def _reduce(self, pairs):
        """Replaces the gradients by the mean over the ranks of their approximations."""
        thin = [(key, gradient) for key, gradient in pairs if self._is_thin(gradient)]
        whole = [gradient for _, gradient in pairs if not self._is_thin(gradient)]
        matrices = []
        for key, gradient in thin:
            matrix = gradient.reshape(gradient.shape[0], -1)
            matrices.append(matrix + self.residuals[key] if key in self.residuals else matrix.clone())
            if key not in self._right:
                self._right[key] = self._first(matrix.shape[1]).to(matrix)
        lefts = [matrix @ self._right[key] for (key, _), matrix in zip(thin, matrices)]
        self._mean(lefts + whole)
        lefts = [torch.linalg.qr(left).Q for left in lefts]
        rights = [matrix.t() @ left for matrix, left in zip(matrices, lefts)]
        for (key, _), matrix, left, right in zip(thin, matrices, lefts, rights):
            self.residuals[key] = matrix - left @ right.t()
        self._mean(rights)
        for (key, gradient), left, right in zip(thin, lefts, rights):
            self._right[key] = right
            gradient.copy_((left @ right.t()).view_as(gradient))

    def _mean(self, tensors):
        """The mean over the ranks, in place, as one call."""
        if not tensors:
            return
        packed = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(packed, dist.ReduceOp.AVG, group=self._group)
        start = 0
        for tensor in tensors:
            tensor.copy_(packed[start:start + tensor.numel()].view_as(tensor))
            start += tensor.numel()
