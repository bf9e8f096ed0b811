"""`python -m fsdp_migrate`."""

from fsdp_migrate.cli import main

if __name__ == "__main__":
    main()
