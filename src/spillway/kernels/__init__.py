"""The numba kernels: arrays in, arrays out, no objects, no I/O.

Each has a plain NumPy twin in the tests and runs with the JIT off (`NUMBA_DISABLE_JIT=1`) too.
Compiled code is kept on disk by numba, so that a Python worker compiles nothing after the first.
"""
