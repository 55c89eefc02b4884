"""Jobs as data: a file that says what a query reads, computes and writes, checked without Spark."""
