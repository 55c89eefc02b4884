"""The shell around the core that runs it on Spark; the only package that imports pyspark for it."""
