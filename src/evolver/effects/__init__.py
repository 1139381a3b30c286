"""Changes outside the worktree, each with what undoes it.

`registry` says what may be run and what reverts it, `machine` which state follows which, `plan` what exactly was agreed to,
`approval` who agreed, `runner` runs and compensates, `journal` finds what a dead run left to compensate.
"""
