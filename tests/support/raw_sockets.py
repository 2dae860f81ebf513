"""What a client does that speaks no HTTP."""


def ask(raw, text):
    """Send bytes, and return all that is answered until the connection ends."""
    raw.sendall(text)
    answer = b""
    while part := receive(raw):
        answer += part
    return answer


def receive(raw):
    try:
        return raw.recv(65_536)
    except ConnectionResetError:
        return b""
