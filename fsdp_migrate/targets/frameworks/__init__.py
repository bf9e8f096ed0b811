"""Rules about what frameworks are told of FSDP: in calls, in YAML and by flags."""
