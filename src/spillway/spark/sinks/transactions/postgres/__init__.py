"""PostgreSQL as a sink, through psycopg: COPY from the executors, one transaction on the driver."""
