"""Open tools that hwgen runs on built designs (synthesis, place and route), and a check of which are installed."""
