"""The commands of the laboratory, found by `spillway` through an entry point."""
