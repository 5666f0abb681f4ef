"""The HTTP API: the application, and the server that runs it inside a harness."""
