"""The model that scenarios train: small, nested, odd sizes so that shards are padded, one frozen layer, a buffer."""

from __future__ import annotations

import torch
from torch import nn

TOKENS = 13
WIDTH = 7


class Mixer(nn.Module):
    """The inner unit: wrapped by itself, inside a wrapped layer."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map (batch, length, WIDTH) to the same shape."""
        return torch.tanh(self.project(hidden))


class Layer(nn.Module):
    """A residual layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mixer = Mixer()
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map (batch, length, WIDTH) to the same shape."""
        mixed: torch.Tensor = hidden + self.output(self.mixer(self.norm(hidden))) * self.scale
        return mixed


class Network(nn.Module):
    """Predicts the tokens it is given: an embedding, two layers, a frozen layer, a free parameter, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.frozen = Layer().requires_grad_(False)
        self.gain = nn.Parameter(torch.ones(WIDTH))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map (batch, length) tokens to (batch, length, TOKENS) logits."""
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(self.frozen(hidden) * self.gain)
        return logits


def batch(step: int, rank: int, device: torch.device) -> torch.Tensor:
    """The tokens that `rank` trains on at `step`: shape (4, 5)."""
    generator = torch.Generator().manual_seed(10_007 * step + rank)
    return torch.randint(0, TOKENS, (4, 5), generator=generator).to(device)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Cross entropy of predicting `tokens` from themselves."""
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.view(-1, TOKENS), tokens.view(-1))


def groups(parameters: list[tuple[str, nn.Parameter]]) -> list[dict[str, object]]:
    """Two parameter groups of different learning rate and weight decay.

    Grouped by name, so that it works for flat parameters too: the second layer, and every bias that has a name of
    its own.
    """
    second = {name for name, _ in parameters if ".1." in f".{name}" or name.endswith("bias")}
    return [
        {"params": [p for name, p in parameters if name not in second], "lr": 1e-2, "weight_decay": 0.1},
        {"params": [p for name, p in parameters if name in second], "lr": 5e-3, "weight_decay": 0.0},
    ]


def make_optimizer(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    """The axis `optimizer`: AdamW, or SGD with momentum."""
    parameters = groups(list(model.named_parameters()))
    if kind == "SGD":
        return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=1e-2)
