"""FSDP801-803: what torch.cuda.amp and torch.cpu.amp still offer beside torch.amp.

Sources: catalogue amp-autocast, amp-gradscaler, amp-custom-fwd (torch 2.4 cuda/amp/*.py, cpu/amp/*.py: FutureWarning;
the defaults of both spellings in torch/amp/autocast_mode.py).
"""

from __future__ import annotations

from functools import partial

from fsdp_migrate.rules.card import Example, Rule, RuleCard
from fsdp_migrate.targets.modernise.moved.planner import check
from fsdp_migrate.targets.modernise.moved.rows import AUTOCAST, CUSTOM, SCALER
from fsdp_migrate.targets.modernise.moved.table import old_names, traced

_DEPRECATED = "2.4"
_URL = "https://pytorch.org/docs/stable/amp.html"

_IMPORT = "import torch\nimport torch.distributed as dist\n"

_CARDS = (
    RuleCard(
        code=AUTOCAST,
        name="device-autocast",
        summary="`torch.cuda.amp.autocast` or `torch.cpu.amp.autocast`, deprecated since torch 2.4",
        explanation="""\
Both are deprecated since torch 2.4: use `torch.amp.autocast("cuda")` or `torch.amp.autocast("cpu")`. The warning
recommends `torch.amp.autocast('cuda', args...)`, which is wrong for positions: the second position of the new class is
`dtype`, so `autocast(False)` would stay enabled.

The defaults differ, too. Without `dtype` and `cache_enabled` a nested region of the new class inherits them from the
outer region; the old classes always used float16 (bfloat16 on CPU) and True. The fix writes keywords and the dtype,
except in a region that is disabled. It writes `cache_enabled=True` if the file sets the cache somewhere.""",
        applicability="safe or manual",
        deprecated=_DEPRECATED,
        flags=(
            Example(
                before=_IMPORT + "\nwith torch.cuda.amp.autocast():\n    pass\n",
                after=_IMPORT + '\nwith torch.amp.autocast("cuda", dtype=torch.float16):\n    pass\n',
            ),
            Example(
                before=_IMPORT
                + "from torch.cuda.amp import autocast\n\n@autocast(False, torch.bfloat16)\ndef f(x):\n    return x\n",
                after=_IMPORT + "from torch.amp import autocast\n\n"
                '@autocast("cuda", enabled=False, dtype=torch.bfloat16)\n'
                "def f(x):\n    return x\n",
                note="an imported name comes from the new module, and positions become keywords",
            ),
            Example(
                before=_IMPORT + "\ndef region(**options):\n    return torch.cuda.amp.autocast(**options)\n",
                note="the options are not known",
            ),
        ),
        leaves=(
            _IMPORT + '\nwith torch.amp.autocast("cuda"):\n    pass\n',
            _IMPORT + "\ndef is_region(x):\n    return isinstance(x, torch.cuda.amp.autocast)\n",
        ),
        url=_URL,
    ),
    RuleCard(
        code=SCALER,
        name="device-grad-scaler",
        summary="`torch.cuda.amp.GradScaler` or `torch.cpu.amp.GradScaler`, deprecated since torch 2.4",
        explanation="""\
Deprecated since torch 2.4: use `torch.amp.GradScaler("cuda")`, available since 2.3, which takes the device first.
Since 2.3 the old class is a subclass of the new one, and so is `ShardedGradScaler`. `isinstance` tests and annotations
have to name the new class, and the fix changes them (unsafe if the file also uses `ShardedGradScaler`). Tests in files
without torch.distributed are included with `--select FSDP8`. A subclass is rewritten if its base visibly gets keywords
only; otherwise it is manual, because a position would become the device.

If torch 2.1 or 2.2 is supported, too, a class that is imported by name comes from either place: the import tries the
new one first (or tests the version as the file does), and positions become keywords, which both accept.""",
        applicability="safe, unsafe or manual",
        deprecated=_DEPRECATED,
        flags=(
            Example(
                before=_IMPORT + "\nscaler = torch.cuda.amp.GradScaler(1024.0, enabled=True)\n",
                after=_IMPORT + '\nscaler = torch.amp.GradScaler("cuda", 1024.0, enabled=True)\n',
                torch=">=2.3",
            ),
            Example(
                before=_IMPORT + "\nscaler = torch.cuda.amp.GradScaler()\n",
                note="with torch 2.1 and 2.2 in the supported range, which do not have the new class",
            ),
            Example(
                before="import torch.distributed\n"
                "from torch.cuda.amp import GradScaler\n\nscaler = GradScaler(1024.0)\n",
                after="import torch.distributed\n"
                'from torch.amp import GradScaler\n\nscaler = GradScaler("cuda", 1024.0)\n',
                note="imported by name",
                torch=">=2.3",
            ),
            Example(
                before="import torch.distributed\n"
                "from torch.cuda.amp import GradScaler\n\nscaler = GradScaler(1024.0)\n",
                after="import torch.distributed\n"
                "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n"
                "    from torch.cuda.amp import GradScaler\n\nscaler = GradScaler(init_scale=1024.0)\n",
                note="with torch 2.1 and 2.2, the import can try both",
            ),
            Example(
                before=_IMPORT + "\nclass Scaler(torch.cuda.amp.GradScaler):\n    pass\n",
                note="a subclass that is not imported by name",
                torch=">=2.3",
            ),
        ),
        leaves=(_IMPORT + '\nscaler = torch.amp.GradScaler("cuda")\n',),
        url=_URL,
    ),
    RuleCard(
        code=CUSTOM,
        name="device-custom-fwd",
        summary="`torch.cuda.amp.custom_fwd` or `custom_bwd`, deprecated since torch 2.4",
        explanation="""\
Both are deprecated since torch 2.4, which added `torch.amp.custom_fwd` and `torch.amp.custom_bwd`. The new ones need
`device_type=`, and a bare decorator has to become a call; otherwise they raise TypeError.

If older releases are supported, too, decorators that are imported by name come from either place, and a `partial`
passes the device to the new ones.""",
        applicability="safe or manual",
        deprecated=_DEPRECATED,
        flags=(
            Example(
                before=_IMPORT + "\n\nclass Linear(torch.autograd.Function):\n"
                "    @staticmethod\n    @torch.cuda.amp.custom_bwd\n"
                "    def backward(ctx, grad):\n        return grad\n",
                after=_IMPORT + "\n\nclass Linear(torch.autograd.Function):\n"
                '    @staticmethod\n    @torch.amp.custom_bwd(device_type="cuda")\n'
                "    def backward(ctx, grad):\n        return grad\n",
                torch=">=2.4",
            ),
            Example(
                before="import torch.distributed\n"
                "from torch.cuda.amp import custom_fwd\n\nforward = custom_fwd(double)\n",
                after="import torch.distributed\n"
                "try:\n    from torch.amp import custom_fwd\n"
                "except ImportError:\n    from torch.cuda.amp import custom_fwd\n"
                "else:\n    from functools import partial\n"
                '    custom_fwd = partial(custom_fwd, device_type="cuda")\n\nforward = custom_fwd(double)\n',
                note="with torch 2.1 to 2.3 in the supported range",
            ),
        ),
        leaves=(_IMPORT + '\nforward = torch.amp.custom_fwd(device_type="cuda")\n',),
        url=_URL,
    ),
)

RULES = tuple(
    Rule(
        card,
        (),
        check,
        names=partial(old_names, card.code),
        scope="distributed",
        calls=partial(traced, card.code),
    )
    for card in _CARDS
)
