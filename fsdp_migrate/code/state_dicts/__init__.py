"""State-dict calls of FSDP1, and what they become in `torch.distributed.checkpoint.state_dict`.

`rewriting.py` has what targets ask for. Where a docstring or comment says [08], it means a pair of programs that were
run before and after on two ranks, on torch 2.2 to 2.13, and compared: keys, tensors, devices, and how training went on.
"""
