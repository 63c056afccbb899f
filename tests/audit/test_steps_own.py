"""Whole steps with known waits: which line waits, how, in which phase and how often."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint

from harness.audit.emulated.emulated_audit import audit_callable

if TYPE_CHECKING:
    from collections.abc import Callable

Wait = tuple[str, str, str, str]
"""(op, kind, phase, part of the line)."""

READ = "aten::_local_scalar_dense"


class CountedExperts(nn.Module):
    """Tokens sorted by expert, counts read once per layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        weight, pick = self.gate(h).softmax(-1).max(-1)
        counts = pick.bincount(minlength=4)
        order = pick.argsort()
        parts = h[order].split(counts.tolist())
        out = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return h + torch.zeros_like(h).index_copy(0, order, out) * weight[:, None]


class PolledExperts(CountedExperts):
    """One count read per expert."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        pick = self.gate(h).argmax(-1)
        counts, out = F.one_hot(pick, 4).sum(0), h
        for number, expert in enumerate(self.experts):
            if counts[number] > 0:
                rows = torch.where(pick == number)[0]
                out = out.index_add(0, rows, expert(h[rows]))
        return out


class Unpadding(nn.Module):
    """Finds sequence starts anew in every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, h: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        starts = (position == 0).nonzero().flatten()
        longest = torch.cat([starts, starts.new_full((1,), len(position))]).diff().max().item()
        return h + self.linear(h) / longest


def _layers(kind: type[nn.Module], number: int, *more: torch.Tensor) -> Callable[[], Any]:
    torch.manual_seed(0)
    layers = nn.ModuleList(kind() for _ in range(number)).to("cuda")
    x = torch.randn(64, 16, device="cuda")

    def step() -> None:
        h = x
        for layer in layers:
            h = layer(h, *more)
        h.mean().backward()
        layers.zero_grad()

    return step


def counted_experts() -> Callable[[], Any]:
    return _layers(CountedExperts, 2)


def polled_experts() -> Callable[[], Any]:
    return _layers(PolledExperts, 2)


def unpadding() -> Callable[[], Any]:
    return _layers(Unpadding, 3, (torch.arange(64) % 16).to("cuda"))


def masked_both_ways() -> Callable[[], Any]:
    before, after = nn.Linear(4, 4).to("cuda"), nn.Linear(4, 4).to("cuda")
    x = torch.randn(8, 4, device="cuda")
    mask = torch.arange(8, device="cuda") % 2 == 0

    def step() -> None:
        h = before(x)
        out = torch.zeros_like(h)
        out[mask] = after(h[mask])
        out.sum().backward()

    return step


def mask_in_checkpoint() -> Callable[[], Any]:
    linear = nn.Linear(4, 4).to("cuda")
    x = torch.randn(6, 4, device="cuda")
    mask = torch.arange(6, device="cuda") % 2 == 0

    def block(h: torch.Tensor) -> torch.Tensor:
        kept = linear(h)[mask]
        return kept.exp()

    def step() -> None:
        checkpoint(block, x, use_reentrant=False).sum().backward()

    return step


def hooks_that_read() -> Callable[[], Any]:
    linear = nn.Linear(4, 4).to("cuda")
    x = torch.randn(2, 4, device="cuda")

    def refuse_nan(gradient: torch.Tensor) -> None:
        if torch.isnan(gradient).any():
            raise ValueError

    def note_largest(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        output.abs().max().item()

    linear.register_forward_hook(note_largest)
    linear.weight.register_hook(refuse_nan)

    def step() -> None:
        linear(x).sum().backward()

    return step


def packed_sequence() -> Callable[[], Any]:
    lstm = nn.LSTM(4, 8, batch_first=True).to("cuda")
    x = torch.randn(3, 5, 4, device="cuda")
    lengths = torch.tensor([3, 5, 2], device="cuda")

    def step() -> None:
        packed = rnn.pack_padded_sequence(x, lengths.cpu(), True, enforce_sorted=False)
        out, _ = rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        out.sum().backward()

    return step


def offloaded_layer() -> Callable[[], Any]:
    layer = nn.Linear(4, 4)
    x = torch.randn(2, 4, device="cuda")

    def step() -> None:
        layer.to("cuda")
        with torch.no_grad():
            layer(x)
        layer.to("cpu")

    return step


def device_learning_rate() -> Callable[[], Any]:
    layer = nn.Linear(4, 4).to("cuda")
    rate = torch.tensor(1e-3, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate, foreach=False)
    x = torch.randn(2, 4, device="cuda")

    def step() -> None:
        layer(x).sum().backward()
        optimizer.step()

    return step


def images_in_text() -> Callable[[], Any]:
    table, project = nn.Embedding(32, 16).to("cuda"), nn.Linear(8, 16).to("cuda")
    ids = torch.arange(12, device="cuda")[None]
    pixels = torch.randn(4, 8, device="cuda")

    def step() -> None:
        embedded, images = table(ids), project(pixels)
        slots = ((ids >= 3) & (ids < 7))[..., None].expand_as(embedded)
        if embedded[slots].numel() != images.numel():
            raise ValueError
        embedded.masked_scatter(slots, images).square().mean().backward()

    return step


def clean_step() -> Callable[[], Any]:
    net = nn.Sequential(nn.Embedding(32, 16), nn.Dropout(0.1), nn.Linear(16, 32)).to("cuda")
    optimizer = torch.optim.AdamW(net.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    ids = torch.randint(0, 32, (2, 8), device="cuda")
    total = torch.zeros((), device="cuda")

    def step() -> None:
        labels = ids.clone()
        labels[labels == 3] = -100
        loss = F.cross_entropy(net(ids).flatten(0, 1), labels.flatten(), label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        total.add_(loss.detach())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    return step


def mask(phase: str, op: str, line: str) -> Wait:
    return (f"aten::{op}", "bool_mask_index", phase, line)


STEPS: dict[Callable[[], Callable[[], Any]], dict[Wait, float]] = {
    counted_experts: {
        ("aten::bincount", "dynamic_output_size", "forward", "counts = pick.bincount"): 4,
        ("aten::_to_copy", "d2h_copy", "forward", "counts.tolist()"): 2,
    },
    polled_experts: {
        (READ, "expert_poll", "forward", "if counts[number] > 0:"): 8,
        ("aten::nonzero", "expert_poll", "forward", "rows = torch.where"): 8,
    },
    unpadding: {
        ("aten::nonzero", "per_layer_rebuild", "forward", "starts = "): 3,
        (READ, "scalar_read", "forward", "longest = "): 3,
    },
    masked_both_ways: {
        mask("forward", "index", "out[mask] = after(h[mask])"): 1,
        mask("forward", "index_put_", "out[mask] = after(h[mask])"): 1,
        mask("backward", "index", "out[mask] = after(h[mask])"): 1,
        mask("backward", "index_put", "out[mask] = after(h[mask])"): 1,
    },
    mask_in_checkpoint: {
        mask("forward", "index", "kept = linear(h)[mask]"): 1,
        mask("recompute", "index", "kept = linear(h)[mask]"): 1,
        mask("backward", "index_put", "kept = linear(h)[mask]"): 1,
    },
    hooks_that_read: {
        (READ, "scalar_read", "forward", "output.abs().max().item()"): 1,
        (READ, "bool_branch", "backward", "if torch.isnan(gradient).any():"): 1,
    },
    packed_sequence: {
        ("aten::_to_copy", "d2h_copy", "forward", "packed = "): 1,
        ("aten::_to_copy", "pageable_h2d", "forward", "packed = "): 1,
        ("aten::_to_copy", "d2h_copy", "forward", "out, _ = "): 1,
    },
    offloaded_layer: {
        ("aten::_to_copy", "pageable_h2d", "forward", 'layer.to("cuda")'): 2,
        ("aten::_to_copy", "d2h_copy", "forward", 'layer.to("cpu")'): 2,
    },
    device_learning_rate: {(READ, "implicit_scalar_arg", "optimizer", "optimizer.step()"): 2},
    images_in_text: {
        mask("forward", "index", "if embedded[slots].numel()"): 1,
        mask("backward", "masked_scatter_backward", "embedded.masked_scatter("): 1,
    },
    clean_step: {},
}
"""Step -> syncs of each wait of one call, in steady state."""


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("build", STEPS, ids=lambda build: build.__name__)
def test_every_wait_of_a_step(build: Callable[[], Callable[[], Any]], mode: Any) -> None:
    expected = STEPS[build]
    report = audit_callable(build, build=True, mode=mode)

    found: Counter[Wait] = Counter()
    for site in report.sites:
        known = [w for w in expected if site.code is not None and w[3] in site.code]
        fits = [w for w in known if w[:3] == (site.op, site.kind, site.phase)]
        assert fits, f"not expected: {site.op} {site.kind} {site.phase} {site.code}"
        found[fits[0]] += site.count_per_step * site.syncs_per_call  # type: ignore[assignment]
    assert found == expected
    assert report.syncs_per_step == sum(expected.values())
