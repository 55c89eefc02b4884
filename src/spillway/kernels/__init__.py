"""The numba kernels: arrays in, arrays out, no objects, no I/O.

Each has a plain NumPy twin in the tests, and also runs with the JIT off (`NUMBA_DISABLE_JIT=1`). numba
caches compiled code on disk, so only the first Python worker compiles (compiler.py).
"""
