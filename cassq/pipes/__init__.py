"""Pipes: what an owner, a holder and an onlooker do with one."""
