"""What `make check` and the tests run beside the package."""
