"""Requests that a web page makes by the browser of whoever looks at it.

Owns how they are known, where no key keeps them out: with `--open`. Refuses to trust what a page can write:
browsers set these headers themselves. What must not break: no page of another site reads or changes anything.
"""

import ipaddress

from starlette.requests import Request

from cassq.errors import AccessDeniedError

#: What browsers say of a request that no page made, or one of the same place.
_OWN = {"none", "same-origin"}

#: What most requests have: to read an address takes as long as a good part of a request.
_MOSTLY = {"127.0.0.1", "localhost"}


def check_no_page(request: Request) -> None:
    """Let in what is no web page's.

    Raises: AccessDeniedError: a browser says that a page made it, or its Host is not loopback.
    """
    site = request.headers.get("sec-fetch-site", "none")
    if "origin" in request.headers or site not in _OWN:
        raise AccessDeniedError("without keys no web page is answered: start `cassq serve` without --open")
    if request.scope.get("client") and not _is_loopback(request.headers.get("host", "")):
        # A page may have its own name lead here, and would be of the same place then.
        raise AccessDeniedError("without keys this machine answers as 127.0.0.1, ::1 and localhost alone")


def _is_loopback(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name in _MOSTLY:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"
