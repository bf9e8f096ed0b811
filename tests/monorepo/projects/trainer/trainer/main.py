from . import loading


def resume(model, optimizer, path):
    optimizer.load_state_dict(loading.read(model, path))
