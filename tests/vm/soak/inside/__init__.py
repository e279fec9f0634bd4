"""What a soak runs in the guest, beside the agent; each says what it finds in lines of JSON."""
