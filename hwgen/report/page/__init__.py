"""Writer of ``report.html``, a page for a browser with all results of a design.

The page sends no request to any server.

Each section is a plain document (values that JSON can hold), made by its own module. `html` builds the page from them.
"""
