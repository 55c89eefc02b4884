from __future__ import annotations

from hypothesis import HealthCheck, settings

# The first call of a kernel may compile it, so no deadline.
settings.register_profile(
    "spillway", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("spillway")
