"""Raw bytes to events. Every decoder accepts any input and never raises."""
