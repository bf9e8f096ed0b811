"""Files of a run as it sees them: contents, projects with their torch ranges and settings, what modules mean."""
