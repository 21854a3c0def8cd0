"""``report.html``: what is known of an accelerator as one page for a browser, which asks no server for anything.

Each section is a plain document (values that JSON holds), made by a module of its own; `html` makes the page of them.
"""
