"""A simulated cluster in virtual time, under the same policies and protocols that Spark runs under."""
