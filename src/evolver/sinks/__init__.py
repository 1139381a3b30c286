"""Where events are forwarded. The log is the spool: a sink that is away delays nothing and loses nothing."""
