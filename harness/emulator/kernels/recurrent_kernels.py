"""Host computation of the fused recurrent cells that CUDA has and the CPU has not."""

from __future__ import annotations

import torch


def lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cell: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gates (batch, 4 * hidden) -> new hidden state, new cell state, and activated gates."""
    gates = input_gates + hidden_gates
    if input_bias is not None and hidden_bias is not None:
        gates = gates + input_bias + hidden_bias
    enter, forget, update, leave = gates.chunk(4, 1)
    enter, forget, leave = enter.sigmoid(), forget.sigmoid(), leave.sigmoid()
    update = update.tanh()
    new_cell = forget * cell + enter * update
    workspace = torch.cat((enter, forget, update, leave), 1)
    return leave * new_cell.tanh(), new_cell, workspace


def lstm_cell_backward(
    grad_hidden: torch.Tensor | None,
    grad_cell: torch.Tensor | None,
    cell: torch.Tensor,
    new_cell: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Gradients of the gates, of the old cell state, and of the biases."""
    enter, forget, update, leave = workspace.chunk(4, 1)
    squashed = new_cell.tanh()
    to_hidden = torch.zeros_like(cell) if grad_hidden is None else grad_hidden
    to_cell = to_hidden * leave * (1 - squashed**2)
    if grad_cell is not None:
        to_cell = to_cell + grad_cell
    gates = torch.cat(
        (
            to_cell * update * enter * (1 - enter),
            to_cell * cell * forget * (1 - forget),
            to_cell * enter * (1 - update**2),
            to_hidden * squashed * leave * (1 - leave),
        ),
        1,
    )
    return gates, to_cell * forget, gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gates (batch, 3 * hidden) -> new hidden state, and what backward needs."""
    if input_bias is not None and hidden_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    reset_in, update_in, new_in = input_gates.chunk(3, 1)
    reset_hidden, update_hidden, new_hidden = hidden_gates.chunk(3, 1)
    reset = (reset_in + reset_hidden).sigmoid()
    update = (update_in + update_hidden).sigmoid()
    new = (new_in + reset * new_hidden).tanh()
    workspace = torch.cat((reset, update, new, hidden, new_hidden), 1)
    return new + update * (hidden - new), workspace


def gru_cell_backward(
    grad: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of input gates, hidden gates, old hidden state and both biases."""
    reset, update, new, hidden, new_hidden = workspace.chunk(5, 1)
    to_update = grad * (hidden - new) * update * (1 - update)
    to_new = grad * (1 - update) * (1 - new**2)
    to_reset = to_new * new_hidden * reset * (1 - reset)
    to_input = torch.cat((to_reset, to_update, to_new), 1)
    to_hidden = torch.cat((to_reset, to_update, to_new * reset), 1)
    biases = (to_input.sum(0), to_hidden.sum(0)) if has_bias else (None, None)
    return to_input, to_hidden, grad * update, *biases
