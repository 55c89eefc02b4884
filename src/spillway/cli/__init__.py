"""The command line: one module for each command, assembled in `spillway.cli.main`."""
