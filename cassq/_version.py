"""The version of cassq, in one place."""

VERSION = "0.1.0"
