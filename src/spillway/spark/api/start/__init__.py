"""The start of a query: checks, choices that need a look at the rows, and the stages that it begins."""
