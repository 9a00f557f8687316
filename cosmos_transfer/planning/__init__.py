"""What a job costs before it runs, and what can be done about it.

``memory``             peak memory of a request, stage by stage
``pruned_checkpoint``  a smaller checkpoint, and what it costs in quality
"""
