"""The SQL expressions of users: what Spark reads in them, which columns they need, row by row or not."""
