"""Keys: how they are made, written and compared.

Owns their form. A key is `cassq_ID_SECRET`: 64 bits that are public, and 256 random bits that only their
owner has. What is stored is a SHA-256 of both: nobody finds 256 random bits by trying, so a slow hash would
slow down the door alone. What must not break: a secret is never stored, logged or shown again.
"""

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple, Self

_KEY = re.compile(r"cassq_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")

#: What a key is compared with that nobody has: it costs the same.
NOBODY = "0" * 64


class Key(NamedTuple):
    """One key, with its secret."""

    id: str
    secret: str

    def __str__(self) -> str:
        """Return the key as its owner writes it."""
        return f"cassq_{self.id}_{self.secret}"

    def __repr__(self) -> str:
        return f"<Key {self.id}>"

    @classmethod
    def new(cls) -> Self:
        """Return a fresh random key."""
        return cls(secrets.token_hex(8), secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the key that a text is; None where it is none."""
        match = _KEY.fullmatch(text)
        return cls(match[1], match[2]) if match else None

    @property
    def digest(self) -> str:
        """What is stored of it."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def is_of(self, digest: str) -> bool:
        """Tell whether this is the key that a digest was stored of; takes as long whatever differs."""
        return hmac.compare_digest(self.digest, digest)
