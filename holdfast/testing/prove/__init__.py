"""`holdfast prove`: run an app while its processes die, stop and lose the database; compare."""
