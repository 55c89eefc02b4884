"""The page: its scripts and styles, as they are served, and a file that plays a recorded run."""
