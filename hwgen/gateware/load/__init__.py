"""Run-time weights: memories whose words are loaded, and the components that check and distribute a load."""
