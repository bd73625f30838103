#!/usr/bin/env python3
"""The trainer's transformer in PyTorch's DistributedDataParallel over Gloo, to compare step times. Uses random tokens.

bench.py starts it with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Prints the columns that bench.py reads.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 96


class Attention(nn.Module):
    """Causal attention with the trainer's two linear layers."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        # Not a buffer: DistributedDataParallel would broadcast it at every step, and Gloo has no bool.
        self.future = torch.triu(torch.ones(context, context, dtype=torch.bool), 1)

    def forward(self, x):
        samples, context, width = x.shape
        query, key, value = self.into(x).view(samples, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights = scores.masked_fill(self.future, float("-inf")).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).reshape(samples, context, width))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, context))
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self, width, depth, heads, context):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads, context) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VOCABULARY))

    def forward(self, tokens):
        return self.head(self.blocks(self.token(tokens) + self.position))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("steps", "bucket-bytes", "width", "depth", "heads", "context", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    ranks = torch.distributed.get_world_size()
    # A bucket of one byte closes with each tensor. The first bucket's limit has no parameter.
    bucket_bytes = max(options.bucket_bytes, 1)
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = bucket_bytes
    model = DistributedDataParallel(Transformer(options.width, options.depth, options.heads, options.context),
                                    bucket_cap_mb=bucket_bytes / 2**20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    shape = (options.batch // ranks, options.context)
    begin = time.perf_counter()
    for step in range(1, options.steps + 1):
        tokens, targets = torch.randint(VOCABULARY, shape), torch.randint(VOCABULARY, shape)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % (options.steps // 4) == 0 and torch.distributed.get_rank() == 0:
            seconds = time.perf_counter() - begin
            print(f" {step} {options.batch * (options.steps // 4) / seconds:.2f} 0", flush=True)
        if step % (options.steps // 4) == 0:
            begin = time.perf_counter()


if __name__ == "__main__":
    main()
