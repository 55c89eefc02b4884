"""Sinks that keep the number of a batch in the same transaction as its rows.

    target.py      the port of such a place, and the one sink that writes to all of them
    changes.py     what a batch does to rows that are there: append, or merge by key
    lakehouse.py   Delta Lake and Iceberg, by SQL statements that Spark runs
    delta.py, iceberg.py   how each of them keeps the number
    postgres/      PostgreSQL: COPY from the executors, one transaction on the driver

After any failure every batch is there once. See docs/guide/connectors.md.
"""
