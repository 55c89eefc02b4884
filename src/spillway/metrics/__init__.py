"""What slots report and what users see of it."""
