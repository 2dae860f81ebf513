"""The queues that cassq is measured beside, each with its own server and its own client library.

One module for each; `roster.py` lists them, `cli.py` is the command. A rival gets the settings and the way of
working that its own documentation recommends for speed, as long as nothing is told as done before it is
confirmed.
"""
