"""Programs behind the Makefile: checks, mutants, audit and bill of materials."""
