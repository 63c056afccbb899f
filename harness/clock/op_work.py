"""What an op asks of the device: its class, FLOPs and bytes, from its arguments and result.

FLOPs come from torch's own registry where it has the op, else from the formulas here. Bytes are
those a fused kernel must move: each distinct element read once, each result written once.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OpKind = Literal[
    "view", "gemm", "grouped_gemm", "attention_forward", "attention_backward", "convolution",
    "elementwise", "transpose", "reduction", "softmax", "gather", "scatter", "sort", "dequantize",
    "optimizer",
]  # fmt: skip
"""Classes of ops that share an efficiency. `view` runs nothing on the device."""


class Matrix(NamedTuple):
    """A matrix product, `batch` times `[rows, inner] x [inner, columns]`."""

    batch: int
    rows: int
    columns: int
    inner: int


class Work(NamedTuple):
    """One op's demand."""

    op: str
    kind: OpKind
    flops: int = 0
    num_bytes: int = 0
    dtype: str = ""
    """Dtype of the matrix product, such as `bfloat16`; empty where there is none."""
    matrix: Matrix | None = None
    num_kernels: int = 1
    depends_on_data: bool = False
    """Equal layouts do not mean equal work, as with lengths in a tensor."""


_MATRIX = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "addmv": (1, 2),
           "mv": (0, 1), "dot": (0, 1), "_int_mm": (0, 1), "_scaled_mm": (0, 1),
           "addmm_activation": (1, 2), "linear": (0, 1)}  # fmt: skip


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOTHING = _names(
    "empty empty_like empty_strided new_empty new_empty_strided detach lift lift_fresh alias "
    "set_ resize_ record_stream _assert_async is_same_size is_pinned _local_scalar_dense"
)
_SOFTMAX = _names("_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data")
_REDUCTION = _names(
    "sum mean prod amax amin max min argmax argmin any all norm linalg_vector_norm var std "
    "var_mean std_mean logsumexp cumsum cumprod native_layer_norm native_layer_norm_backward "
    "_fused_rms_norm _fused_rms_norm_backward native_group_norm native_batch_norm "
    "native_batch_norm_backward cudnn_batch_norm nll_loss_forward nll_loss_backward "
    "nll_loss2d_forward mse_loss count_nonzero histc aminmax cummax equal"
)
_GATHER = _names("embedding index index_select gather take masked_select _unsafe_index")
_SCATTER = _names(
    "index_put _index_put_impl _unsafe_index_put scatter scatter_add scatter_reduce index_add "
    "index_copy index_fill masked_scatter embedding_dense_backward put bincount "
    "_unsafe_masked_index_put_accumulate"
)
_SORT = _names(
    "sort topk kthvalue unique_dim _unique2 unique_consecutive multinomial msort nonzero randperm "
    "searchsorted bucketize median mode"
)
_FACTORIES = _names(
    "zeros ones full arange zeros_like ones_like full_like zero_ fill_ new_zeros new_ones new_full "
    "normal_ uniform_ random_ bernoulli_ exponential_ rand randn randint rand_like randn_like "
    "eye tril_indices triu_indices scalar_tensor linspace"
)
_COPIES = _names("copy_ clone _to_copy cat stack roll flip constant_pad_nd")
_NUM_KERNELS = {
    "nonzero": 4, "sort": 3, "topk": 2, "_unique2": 6, "unique_dim": 8, "unique_consecutive": 5,
    "embedding_dense_backward": 5, "multinomial": 3, "masked_select": 4, "bincount": 3, "histc": 3,
    "_scaled_dot_product_flash_attention_backward": 3, "cumsum": 1, "median": 3, "randperm": 3,
    "_scaled_dot_product_efficient_attention_backward": 2, "masked_scatter": 4, "index_put": 2,
}  # fmt: skip
_TENSORS_PER_KERNEL = 110
"""Tensors whose addresses fit into the arguments of one multi-tensor kernel."""
_SORT_PASSES = 8
"""Times a radix sort moves keys and values."""
_MATRIX_DTYPES = {
    torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32",
    torch.float64: "float64",
}  # fmt: skip


@cache
def runs_nothing(func: Any) -> bool:
    """Whether an op only makes a view or reserves memory, and queues no work."""
    base = func._schema.name.rpartition("::")[2]
    return base in _NOTHING or _is_view(func._schema)


def work_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Work:
    """The demand of one call. `args` and `result` hold tensors of any kind that has a shape."""
    schema = func._schema
    name = schema.name
    space, _, base = name.rpartition("::")
    tensors = [*_tensors(args), *_tensors(kwargs.values())]
    results = list(_tensors((result,)))
    if runs_nothing(func):
        return Work(name, "view")
    if _is_attention(space, base):
        named = _named(schema, args, kwargs)
        flops, depends_on_data = attention_flops(func, named, args, kwargs, result)
        return Work(
            name,
            "attention_backward" if "backward" in base or "bwd" in base else "attention_forward",
            flops,
            _moved(tensors, results),
            _dtype_name(tensors),
            num_kernels=_NUM_KERNELS.get(base, 1),
            depends_on_data=depends_on_data,
        )
    if base in _MATRIX and space == "aten":
        left, right = (args[place] for place in _MATRIX[base])
        matrix = _matrix(base, left, right)
        return Work(
            name,
            "gemm",
            2 * math.prod(matrix),
            _moved(tensors, results),
            _dtype_name([left]),
            matrix,
        )
    if "grouped_mm" in base:
        return _grouped(name, args, tensors, results)
    if "convolution" in base:
        flops = _registered(func, args, kwargs, result) or 0
        return Work(name, "convolution", flops, _moved(tensors, results), _dtype_name(tensors))
    kind = _kind(base, tensors)
    num_bytes = _bytes_of_kind(kind, base, args, tensors, results)
    num_kernels = _NUM_KERNELS.get(base.rstrip("_"), 1)
    if kind == "optimizer":
        num_kernels = -(-len(tensors) // _TENSORS_PER_KERNEL)
    return Work(name, kind, 0, num_bytes, num_kernels=num_kernels)


def _kind(base: str, tensors: Sequence[Any]) -> OpKind:
    plain = base.rstrip("_")
    if base.startswith(("_fused_ada", "_fused_sgd", "_foreach_", "_amp_foreach")):
        return "optimizer"
    if "dequantize" in base or "dequant" in base:
        return "dequantize"
    if base in _SOFTMAX:
        return "softmax"
    if plain in _REDUCTION:
        return "reduction"
    if plain in _GATHER:
        return "gather"
    if plain in _SCATTER:
        return "scatter"
    if plain in _SORT:
        return "sort"
    if base in _COPIES and any(_is_transposed(tensor) for tensor in tensors):
        return "transpose"
    return "elementwise"


def _bytes_of_kind(
    kind: OpKind, base: str, args: Sequence[Any], tensors: Sequence[Any], results: Sequence[Any]
) -> int:
    written = sum(_bytes(tensor) for tensor in results)
    if base in _FACTORIES:
        return written or (_bytes(args[0]) if args and isinstance(args[0], torch.Tensor) else 0)
    if kind == "gather":
        indices = sum(_bytes(tensor) for tensor in tensors[1:])
        return 2 * written + indices
    if kind == "scatter":
        # The table is the result; only rows that are named are read and written.
        named = sum(_bytes(tensor) for tensor in tensors[1:])
        base_bytes = _bytes(tensors[0]) if tensors else 0
        whole = 0 if base.endswith("_") else written + base_bytes
        return 3 * named + whole
    if kind == "sort":
        return _SORT_PASSES * sum(_bytes(tensor) for tensor in (*tensors[:1], *results))
    if kind == "optimizer":
        # Each list is read; parameters, moments and the like are also written.
        return round(1.75 * sum(_bytes(tensor) for tensor in tensors))
    return _moved(tensors, results)


def _is_attention(space: str, base: str) -> bool:
    return "math" not in base and any(
        word in f"{space}::{base}" for word in ("attention", "attn", "flash")
    )


def _named(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name."""
    given = {a.name: value for a, value in zip(schema.arguments, args, strict=False)}
    return {**given, **kwargs}


def attention_flops(
    func: Any,
    named: dict[str, Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    result: Any,
) -> tuple[int, bool]:
    """FLOPs of an attention kernel, and whether they depend on the values of its arguments.

    Packed documents attend within themselves: their lengths are read from the boundaries where the
    values are known. A causal kernel skips the half it does not need.
    """
    backward = "backward" in func._schema.name or "bwd" in func._schema.name
    query, key, value = (_first(named, *names) for names in _ATTENTION_ARGUMENTS)
    causal = bool(_first(named, "is_causal", "causal"))
    window = named.get("window_size")
    if window is not None and len(window) == 2:
        causal = causal or tuple(window) == (-1, 0)
    boundaries = [_first(named, *names) for names in _BOUNDARY_ARGUMENTS]
    packed = boundaries[0] is not None and boundaries[0].numel() > 1
    products = 5 if backward else 2
    if packed:
        lengths = [_differences(b) for b in boundaries if b is not None]
        heads, size = query.shape[-2], query.shape[-1]
        if any(known is None for known in lengths):
            pairs = query.shape[-3] * key.shape[-3]
        else:
            pairs = sum(q * k for q, k in zip(lengths[0] or [], lengths[-1] or [], strict=False))
        flops = products * 2 * heads * size * pairs
    else:
        registered = _registered(func, args, kwargs, result)
        if registered is None:
            # torch's own ops take heads before length, flash kernels length before heads.
            heads_first = func._schema.name.startswith("aten::")
            rows_at = -2 if heads_first else -3
            rows, columns = query.shape[rows_at], key.shape[rows_at]
            rest = query.numel() // max(rows * query.shape[-1], 1)
            registered = products * rest * rows * columns * (query.shape[-1] + value.shape[-1])
        flops = registered
    return (flops // 2 if causal else flops), packed


_ATTENTION_ARGUMENTS = (("query", "q"), ("key", "k"), ("value", "v"))
_BOUNDARY_ARGUMENTS = (
    ("cu_seqlens_q", "cu_seq_q", "cum_seq_q"),
    ("cu_seqlens_k", "cu_seq_k", "cum_seq_k"),
)


def _first(named: dict[str, Any], *names: str) -> Any:
    for name in names:
        if named.get(name) is not None:
            return named[name]
    return None


def _differences(boundaries: Any) -> list[int] | None:
    """Lengths between boundaries, where their values are known on the host."""
    # An emulated tensor says what the host knows of it; any other tensor is its own value.
    known = getattr(boundaries, "known_value", boundaries)
    if known is None or known.is_meta:
        return None
    differences: list[int] = known.diff().tolist()
    return differences


def _registered(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int | None:
    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return None
    if func._schema.name.startswith("aten::_scaled_dot_product"):
        args = _ungrouped(args)
    return int(formula(*args, **kwargs, out_val=result))


def _ungrouped(args: Sequence[Any]) -> list[Any]:
    """Shapes in the place of `[B, H, T, D]`, with as many key as query heads: those compute as
    much, and the formulas of torch 2.10 take no fewer."""
    heads = max(arg.shape[1] for arg in args if isinstance(arg, torch.Tensor) and arg.dim() == 4)
    return [
        torch.Size((arg.shape[0], heads, *arg.shape[2:]))
        if isinstance(arg, torch.Tensor) and arg.dim() == 4
        else arg
        for arg in args
    ]


def _matrix(base: str, left: Any, right: Any) -> Matrix:
    if base == "linear":
        inner = left.shape[-1]
        return Matrix(1, left.numel() // max(inner, 1), right.shape[0], inner)
    if left.dim() == 3:
        return Matrix(left.shape[0], left.shape[1], right.shape[2], left.shape[2])
    rows = left.shape[0] if left.dim() == 2 else 1
    columns = right.shape[-1] if right.dim() == 2 else 1
    return Matrix(1, rows, columns, left.shape[-1])


def _grouped(
    name: str, args: Sequence[Any], tensors: Sequence[Any], results: Sequence[Any]
) -> Work:
    left, right = args[0], args[1]
    out = results[0]
    if left.dim() == right.dim() == 2:
        groups, rows, columns, inner = out.shape[0], out.shape[1], out.shape[2], left.shape[1]
        matrix = Matrix(groups, rows, columns, max(inner // max(groups, 1), 1))
    elif left.dim() == 2:
        groups, columns = right.shape[0], right.shape[2]
        matrix = Matrix(groups, max(left.shape[0] // max(groups, 1), 1), columns, left.shape[1])
    else:
        matrix = _matrix("bmm", left, right) if right.dim() == 3 else Matrix(
            left.shape[0], left.shape[1], right.shape[1], left.shape[2]
        )  # fmt: skip
    return Work(
        name, "grouped_gemm", 2 * math.prod(matrix), _moved(tensors, results),
        _dtype_name([left]), matrix,
    )  # fmt: skip


def _tensors(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _moved(tensors: Sequence[Any], results: Sequence[Any]) -> int:
    return sum(_bytes(tensor) for tensor in (*tensors, *results))


def _bytes(tensor: Any) -> int:
    """Bytes of the distinct elements: an expanded dimension counts once."""
    count = 1
    for length, step in zip(tensor.shape, tensor.stride(), strict=True):
        if step or length == 0:
            count *= length
    return count * int(tensor.element_size())


def _is_transposed(tensor: Any) -> bool:
    """Whether neighbours in memory are not neighbours in the last dimension."""
    return tensor.dim() > 1 and tensor.numel() > 1 and not tensor.is_contiguous() and (
        tensor.stride()[-1] != 1 or tensor.shape[-1] < _LONG_RUN
    )  # fmt: skip


_LONG_RUN = 256
"""Elements that lie together in a permuted tensor, from which on a copy is as fast as any."""


def _dtype_name(tensors: Sequence[Any]) -> str:
    for tensor in tensors:
        if tensor.dtype.is_floating_point:
            if tensor.dtype.itemsize == 1:
                return "float8"
            return _MATRIX_DTYPES.get(tensor.dtype, "float32")
    return "int"


def _is_view(schema: Any) -> bool:
    aliases = [result.alias_info for result in schema.returns]
    return (bool(aliases) and all(a is not None and not a.is_write for a in aliases)) or (
        schema.name in ("aten::_unsafe_view", "aten::_reshape_alias")
    )  # fmt: skip
