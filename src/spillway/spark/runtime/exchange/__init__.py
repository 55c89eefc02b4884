"""How rows come to the slots: as lanes, in Arrow batches, to the executor that has the state."""
