"""Whether a model may have batch normalisation, which FSDP1 keeps in float32 where it has a policy to wrap it by."""

from __future__ import annotations

import ast
import re

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import canonical
from fsdp_migrate.facts.project_code import Code, Sort
from fsdp_migrate.targets.fsdp2.reachable import reachable

CLASS = "torch.nn.modules.batchnorm._BatchNorm"
# What a file writes that has such modules, or takes modules from a package that has them.
_WORDS = re.compile(
    rb"batch_?norm|\b(?:torchvision|timm|transformers|diffusers|monai|mmcv|mmengine|open_clip|torch_geometric"
    rb"|segmentation_models_pytorch|torchaudio|fairseq|fastai|speechbrain|nemo|lightly|kornia)\b",
    re.IGNORECASE,
)
_LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel", "ForSeq2SeqLM", "ForMaskedLM")


def may_have_batch_norm(facts: ModuleFacts, model: ast.expr, code: Code) -> bool:
    """Whether nothing says that a model has none: by all the modules that its class can take others from."""
    origins = code.origins(facts, model)
    if not origins:
        return True
    for origin in origins:
        name = origin.name or ""
        if origin.sort is Sort.ELSEWHERE and _is_language_model(name):
            continue
        is_known = origin.sort is Sort.INSTANCE or name.startswith("torch.nn.")
        if not is_known or _speaks_of_it(origin.facts):
            return True
    return False


def _is_language_model(name: str) -> bool:
    parts = canonical(name).split(".")
    return parts[0] == "transformers" and any(part.endswith(_LANGUAGE_MODELS) for part in parts)


def _speaks_of_it(facts: ModuleFacts) -> bool:
    """Whether a module, or one of the project that it imports, has one of the words."""
    return any(_WORDS.search(one.source.data) for one in reachable(facts))
