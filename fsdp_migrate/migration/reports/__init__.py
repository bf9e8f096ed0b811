"""The reports of a migration, a module for each format. They decide nothing."""
