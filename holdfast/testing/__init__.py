"""For tests, ours and those of plugin authors: a settable clock, a model of the store, database servers."""
