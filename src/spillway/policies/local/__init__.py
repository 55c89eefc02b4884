"""What the controller of one slot decides: which groups move or spill."""
