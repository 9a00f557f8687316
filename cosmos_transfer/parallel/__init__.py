"""One clip on several processes: the same clip, sooner.

``mesh``      how many processes do what, and the equations that must hold
``job``       joining the other processes, noticing one that died, speaking once
``guidance``  the conditional and the unconditional pass on two groups
``control``   the control branches on different groups
``context``   tokens of Cosmos networks on different processes: by heads (ulysses) or in a ring

``model`` knows nothing of this: it asks a function it was given to run the branches, and another
for the tokens of this process.
"""
