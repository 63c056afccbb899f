"""Stand-ins for attention packages: values, gradients, shapes, waits, and that they go away."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.audit.emulated.emulated_audit import EmulatedAudit, audit_callable
from harness.emulator.kernels.packed_kernels import (
    Attention,
    Packed,
    packed_backward,
    packed_forward,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("flash_attn") is not None, reason="the real flash_attn is installed"
)

HEADS, KV_HEADS, SIZE = 4, 2, 8


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int], window: int | None
) -> torch.Tensor:
    """Document by document, by torch's own attention in float64, differentiable."""
    outputs, start = [], 0
    for length in lengths:
        part = slice(start, start + length)
        rows, columns = torch.arange(length)[:, None], torch.arange(length)[None, :]
        mask = columns <= rows
        if window is not None:
            mask &= columns >= rows - window
        one = torch.nn.functional.scaled_dot_product_attention(
            q[part].transpose(0, 1)[None], k[part].transpose(0, 1)[None],
            v[part].transpose(0, 1)[None], attn_mask=mask, enable_gqa=True,
        )  # fmt: skip
        outputs.append(one[0].transpose(0, 1))
        start += length
    return torch.cat(outputs)


def random_qkv(num_tokens: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(num_tokens)
    shapes = [(num_tokens, heads, SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    window=st.none() | st.integers(0, 4),
)
def test_packed_attention_is_attention_of_each_document(
    lengths: list[int], window: int | None
) -> None:
    q, k, v = (tensor.double().requires_grad_() for tensor in random_qkv(sum(lengths)))
    expected = reference(q, k, v, lengths, window)
    grad = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, (q, k, v), grad)
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    how = Attention(SIZE**-0.5, causal=True, left=-1 if window is None else window)

    single = [tensor.detach().float() for tensor in (q, k, v)]
    out, _ = packed_forward(Packed(*single, bounds, bounds), how)
    grads = packed_backward(grad.float(), Packed(*single, bounds, bounds), how)

    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
    for got, want in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-4)


def test_a_soft_cap_has_the_gradient_of_its_formula() -> None:
    q, k, v = (tensor[None].double().requires_grad_() for tensor in random_qkv(6))
    how = Attention(SIZE**-0.5, causal=False, softcap=1.5)
    keys, values = (x.repeat_interleave(HEADS // KV_HEADS, dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) * how.scale
    weights = torch.softmax(1.5 * torch.tanh(scores / 1.5), -1)
    expected = torch.einsum("bhqk,bkhd->bqhd", weights, values)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (q, k, v), grad)

    single = [tensor.detach().float() for tensor in (q, k, v)]
    out, _ = packed_forward(Packed(*single), how)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
    grads = packed_backward(grad.float(), Packed(*single), how)
    for got, want in zip(grads, wanted, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("longest_on_device", [False, True])
def test_a_length_on_the_device_is_read_by_forward_and_backward(
    mode: Any, longest_on_device: bool
) -> None:
    def build() -> Any:
        from flash_attn import flash_attn_varlen_func

        q, k, v = (tensor.cuda().bfloat16().requires_grad_() for tensor in random_qkv(12))
        bounds = torch.tensor([0, 5, 12], dtype=torch.int32, device="cuda")

        def step() -> None:
            longest = bounds.diff().max() if longest_on_device else 7
            out = flash_attn_varlen_func(q, k, v, bounds, bounds, longest, longest, causal=True)
            assert out.shape == q.shape
            out.sum().backward()
            assert k.grad is not None
            assert k.grad.shape == k.shape

        return step

    report = audit_callable(build, build=True, mode=mode)
    assert report.syncs_per_step == (4 if longest_on_device else 0)
    assert {site.phase for site in report.sites} == (
        {"forward", "backward"} if longest_on_device else set()
    )


def test_they_are_packages_inside_and_gone_outside() -> None:
    with EmulatedAudit():
        import flash_attn
        import flash_attn_interface  # noqa: F401  # that it can be imported is the point
        from flash_attn.bert_padding import pad_input, unpad_input
        from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

        assert is_flash_attn_2_available()
        assert is_flash_attn_3_available()
        assert importlib.metadata.version("flash-attn") == flash_attn.__version__
        mask = torch.tensor([[1, 1, 0], [1, 1, 1]], device="cuda")
        rows = torch.randn(2, 3, 4, device="cuda")
        tokens, indices, bounds, longest, _ = unpad_input(rows, mask)
        assert (tokens.shape[0], bounds.tolist(), longest) == (5, [0, 2, 5], 3)
        back = pad_input(tokens, indices, 2, 3)
        assert torch.equal(back, rows * mask[..., None])
    assert importlib.util.find_spec("flash_attn") is None
    assert not is_flash_attn_2_available()
    assert not is_flash_attn_3_available()
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("flash-attn")


@pytest.mark.parametrize(
    ("gpu", "dtype", "says"),
    [("T4", torch.float16, "Ampere"), ("H100", torch.float32, "fp16 and bf16")],
)
def test_the_limits_of_the_package_hold(gpu: str, dtype: torch.dtype, says: str) -> None:
    with EmulatedAudit(gpu=gpu):
        from flash_attn import flash_attn_func

        q = torch.randn(1, 4, 2, 8, device="cuda", dtype=dtype)
        with pytest.raises(RuntimeError, match=says):
            flash_attn_func(q, q, q)


@pytest.mark.parametrize("mode", ["values", "shapes"])
def test_flex_attention_runs_and_its_formula_makes_nobody_wait(mode: Any) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def build() -> Any:
        q = torch.randn(1, 2, 128, 16, device="cuda", requires_grad=True)

        def causal(b: Any, h: Any, row: Any, column: Any) -> Any:
            return row >= column

        compiled = torch.compile(flex_attention)

        def step() -> None:
            mask = create_block_mask(causal, None, None, 128, 128, device="cuda")
            out = compiled(q, q, q, block_mask=mask)
            assert out.shape == q.shape
            out.sum().backward()

        return step

    report = audit_callable(build, build=True, mode=mode)
    assert report.syncs_per_step == 0
    assert any("flex_attention ran by its formula" in note for note in report.notes)


def test_flex_attention_computes_attention() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 8)
    with EmulatedAudit(mode="values"):
        device = q.cuda()
        got = flex_attention(device, device, device).cpu()
    torch.testing.assert_close(got, torch.nn.functional.scaled_dot_product_attention(q, q, q))
