from hypothesis import HealthCheck, settings

# A machine that is busy with something else is no reason to fail.
settings.register_profile(
    "core", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("core")
