"""What slots report, and what users see."""
