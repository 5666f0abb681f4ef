"""Tools for tests of apps and plugins: a settable clock, database servers, fixtures and trials."""
