"""Pictures of all pages for the documentation, made by `make screenshots`."""
