"""The target `dcp`: state dicts through `torch.distributed.checkpoint.state_dict`, without `FSDP.state_dict_type`.

The model stays what it is. `code/state_dicts/` knows what each call becomes.
"""
