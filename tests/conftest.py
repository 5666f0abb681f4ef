"""Every test may use the fixtures that plugin authors get."""

pytest_plugins = ["holdfast.testing.fixtures"]
