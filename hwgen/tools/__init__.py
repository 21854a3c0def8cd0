"""Open tools that hwgen runs on built designs (synthesis, place and route), and a check for installed tools."""
