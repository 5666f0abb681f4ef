"""The files of deploy/ are tried with the programs they are for."""
