"""The target `dcp`: state dicts through `torch.distributed.checkpoint.state_dict`, without `FSDP.state_dict_type`.

The model stays what it is. Where a docstring or comment says [08], it means a pair of programs that were run before
and after on two ranks, on torch 2.2 to 2.13, and compared: keys, tensors, devices, and how training went on.
"""
