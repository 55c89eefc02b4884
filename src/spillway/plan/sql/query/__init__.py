"""SQL queries as data: text, clauses, names, and the calls of the public API that a query means."""
