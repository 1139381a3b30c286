"""The event stream: typed events, the hash chain, the append-only log, its readers and its verifier."""
