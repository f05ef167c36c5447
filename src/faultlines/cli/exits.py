"""Exit codes, for scripts and launch gates; `faultlines --help` lists them.

0: done; with a gate, every group was compared and no difference can be claimed, all are certified to be within the gap,
or clusters are confirmed. 1: the gate, clusters differ, a group is farther away than the gap, or clusters are not
confirmed; nothing else ends with 1. 2: something given cannot be used, or is too large for this machine's memory or
disk. 3: cannot tell; a gate was asked for, and groups were left out, only one was left, or the data are too few to say.
70: a defect of faultlines. 130: interrupted.
"""

DONE = 0
SPLIT = 1
UNUSABLE = 2
CANNOT_TELL = 3
DEFECT = 70
INTERRUPTED = 130
