"""Train a small language model under FSDP1, on CPUs: torchrun --nproc-per-node 2 train.py"""

import os

import torch
import torch.distributed as dist
from checkpoint import load, save
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

FILE = "last.pt"


class Model(nn.Module):
    """Predicts the next token."""

    def __init__(self, vocabulary=64, width=32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(width, 2, 64, 0.0) for _ in range(2)))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        logits = self.head(self.blocks(self.embedding(tokens[:, :-1])))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    blocks = ModuleWrapPolicy({nn.TransformerEncoderLayer})
    model = FSDP(Model(), auto_wrap_policy=blocks, device_id=torch.device("cpu"), use_orig_params=True)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if os.path.exists(FILE):
        load(model, optim, FILE)
    for _ in range(6):
        loss = model(torch.randint(64, (4, 17)))
        loss.backward()
        model.clip_grad_norm_(1.0)
        optim.step()
        optim.zero_grad()
    save(model, optim, FILE)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
