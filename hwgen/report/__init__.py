"""Tables, pictures and the HTML report of a plan, for people."""
