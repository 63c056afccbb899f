"""A trainer in one file, as people write them: module-level code that takes a GPU for granted."""

import argparse
import inspect
import math
import os
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from corpus import tokens
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--dtype", default="bfloat16")
parser.add_argument("--iters", type=int, default=4)
parser.add_argument("--out", default="out")
args = parser.parse_args()

device = "cuda"
batch_size, block_size, width, vocab = 4, 16, 32, 64
ddp = int(os.environ.get("RANK", -1)) != -1
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.set_float32_matmul_precision("high")
device_type = "cuda" if "cuda" in device else "cpu"
dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[args.dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type, dtype)


def get_batch():
    starts = torch.randint(len(tokens) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(tokens[i : i + block_size].astype(np.int64)) for i in starts])
    y = torch.stack(
        [torch.from_numpy(tokens[i + 1 : i + 1 + block_size].astype(np.int64)) for i in starts]
    )
    return (
        x.pin_memory().to(device, non_blocking=True),
        y.pin_memory().to(device, non_blocking=True),
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1))
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            part.view(b, t, 2, c // 2).transpose(1, 2)
            for part in self.qkv(self.norm(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(self.mlp(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(width, vocab, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, idx, targets):
        positions = torch.arange(idx.size(1), device=idx.device)
        x = self.tokens(idx) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))


def main():
    model = Model()
    model.to(device)
    scaler = torch.amp.GradScaler("cuda", enabled=args.dtype == "float16")
    fused = "fused" in inspect.signature(torch.optim.AdamW).parameters
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    compiled = torch.compile(model)
    for iteration in range(args.iters):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * math.cos(iteration / args.iters)
        for _ in range(2):
            x, y = get_batch()
            with ctx:
                loss = compiled(x, y) / 2
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"iter {iteration}: loss {loss.item() * 2:.3f}")
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "checkpoint.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    model.load_state_dict(torch.load(path, map_location=device)["model"])
    print(f"{torch.cuda.get_device_name(0)}, {torch.cuda.max_memory_allocated()} bytes")


if __name__ == "__main__":
    main()
