"""One training step of a causal language model on packed rows, in the parts the harness times."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.workload import PackedDocuments
from scenarios.loss import chunked_loss
from scenarios.masks import packed_masks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

    from harness.record.records import ScenarioRecord
    from scenarios.batches import HostBatch


class ModelWorkload:
    """Implements `Workload` and `HasOptimizer` for a model in train mode and host batches.

    Each forward moves the batch anew and makes a new `PackedDocuments`, as a training loop does.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Sequence[HostBatch],
        record: ScenarioRecord,
        *,
        device: torch.device,
        learning_rate: float,
        loss_chunk_tokens: int,
    ) -> None:
        self.model = model
        self.device = device
        self.num_batches = len(batches)
        self.num_tokens = batches[0].input_ids.shape[1]
        self._batches = [_pinned(batch) if device.type == "cuda" else batch for batch in batches]
        self._record = record
        self._loss_chunk_tokens = loss_chunk_tokens
        self._taken = _taken_arguments(model)
        self._index = 0
        self._loss: torch.Tensor | None = None
        self.optimizer = torch.optim.AdamW(
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            lr=learning_rate,
            # One kernel for all parameters where torch has it; `meta` has none.
            fused=True if device.type in ("cpu", "cuda") else None,
        )

    def describe(self) -> ScenarioRecord:
        """What was built, for the record."""
        return self._record

    def select_batch(self, index: int) -> None:
        """Use batch `index % num_batches` from the next `forward` on."""
        self._index = index % self.num_batches

    def forward(self) -> torch.Tensor:
        """Move the batch, compute and return the loss, 0-dim, on the device, not read."""
        batch = self._batches[self._index]
        input_ids = self._move(batch.input_ids)
        positions = self._move(batch.position_ids)
        labels = self._move(batch.labels)
        documents = PackedDocuments(batch.lengths, self._move(batch.lengths_tensor))
        arguments = {
            "input_ids": input_ids,
            "position_ids": positions,
            "attention_mask": packed_masks(self.model, input_ids, positions),
            "use_cache": False,
            "packed_documents": documents,
        }
        if self._taken is not None:
            arguments = {name: arguments[name] for name in self._taken if name in arguments}
        if self._loss_chunk_tokens:
            hidden = self.model.base_model(**arguments).last_hidden_state
            self._loss = chunked_loss(
                self.model.get_output_embeddings(),
                hidden,
                labels,
                num_predicted=batch.num_predicted,
                chunk_tokens=self._loss_chunk_tokens,
            )
        else:
            counted = {} if self._taken else {"num_items_in_batch": batch.num_predicted}
            self._loss = self.model(**arguments, labels=labels, **counted).loss
        assert self._loss is not None
        return self._loss

    def backward(self) -> None:
        """Backpropagate the loss of the last `forward`; raises `RuntimeError` without one."""
        if self._loss is None:
            raise RuntimeError("backward needs a forward before it")
        loss, self._loss = self._loss, None
        torch.autograd.backward(loss)

    def optimizer_step(self) -> None:
        """Step AdamW and clear the gradients."""
        self.optimizer.step()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Clear the gradients without a step."""
        self.optimizer.zero_grad(set_to_none=True)

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        # A copy even where the batch is on the device already: its identity must be new each step.
        return tensor.to(self.device, non_blocking=self.device.type == "cuda", copy=True)


def _taken_arguments(model: PreTrainedModel) -> frozenset[str] | None:
    """What the model's forward takes, or `None` where it takes any keyword."""
    parameters = inspect.signature(model.forward).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return frozenset(parameters)


def _pinned(batch: HostBatch) -> HostBatch:
    names = ("input_ids", "position_ids", "labels", "lengths_tensor")
    return replace(batch, **{name: getattr(batch, name).pin_memory() for name in names})
