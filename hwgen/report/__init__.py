"""Reports for people: tables, pictures and HTML pages of plans, checks, sweeps and comparisons."""
