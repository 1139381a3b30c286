"""The locked worktree of one run: the only object that may change what the user has.

The facade over manifest, vault, control guard, preserve, restore and verify; `iteration.py`, `recovery.py` and `resume.py`
know nothing below it.
"""
