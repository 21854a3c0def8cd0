"""Programs that hwgen runs on what it has built: synthesis and routing by open tools, and which tools are installed."""
