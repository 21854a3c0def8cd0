"""``report.html``: one page for a browser with all results of an accelerator. The page sends no request to any server.

Each section is a plain document (values that JSON can hold), made by its own module. `html` builds the page from them.
"""
