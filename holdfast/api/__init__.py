"""What speaks HTTP: the application, and the server that runs it inside a harness."""
