"""The pure core: values in, values out. No clock, file, thread, logger or coroutine lives here."""
