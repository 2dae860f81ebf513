"""Makes the text that an index of packages shows from the README; pyproject.toml describes the rest.

An index shows that text without the files beside it: a link to one of them keeps its words and loses its
target.
"""

import re
from pathlib import Path

from setuptools import setup

_LINK_TO_A_FILE = re.compile(r"\[([^\]]*)\]\((?![a-z]+:)[^)]*\)")


def described(readme: str) -> str:
    """Return the README with no link that an index cannot follow."""
    return _LINK_TO_A_FILE.sub(r"\1", readme)


setup(
    long_description=described(Path(__file__).with_name("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
