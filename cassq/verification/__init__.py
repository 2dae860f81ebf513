"""Whether a run that was written down kept the promises."""
