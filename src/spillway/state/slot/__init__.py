"""The state of one slot during one batch."""
