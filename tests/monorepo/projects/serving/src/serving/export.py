from core.dist import FSDP, FlatParameter


def export(model, optim):
    flat = [p for p in model.parameters() if isinstance(p, FlatParameter)]
    return FSDP.full_optim_state_dict(model, optim), len(flat)
