"""The papers' figures: runs, verdicts, plots, the page."""
