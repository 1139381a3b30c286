"""Undoing what a changes log lists: files from backups, created files, commands, commits, artifacts.

    report = rollback_changes(".bug-changes.json", confirm=None)

`rollback.py` is the whole operation for a log of its own, `prepare.py` the part of it that a loop needs beside its own
restore, `recorder.py` writes such logs. The log is written by an agent, so nothing in it is believed.
"""
