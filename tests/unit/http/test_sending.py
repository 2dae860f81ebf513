"""Large answers: sent in pieces, and counted until their clients have taken them."""

import asyncio

import pytest
from starlette.responses import Response, StreamingResponse

from cassq.errors import OverloadedError
from cassq.http.bodies import Budget
from cassq.http.sending import PIECE_BYTES, Sending

SCOPE = {"type": "http", "method": "GET"}


class Client:
    """Takes what is sent, one piece for each call of `take`."""

    def __init__(self):
        self.sent = []
        self._may_go_on = asyncio.Semaphore(0)

    async def send(self, message):
        self.sent.append(message)
        if message["type"] == "http.response.body":
            await self._may_go_on.acquire()

    def take(self):
        self._may_go_on.release()

    @property
    def body(self):
        return b"".join(each.get("body", b"") for each in self.sent)


def large(size=2 * PIECE_BYTES + 1):
    return Response(bytes(range(256)) * (size // 256) + b"!" * (size % 256), headers={"A": "b"})


def test_a_large_answer_comes_in_pieces_each_once_the_one_before_was_taken():
    async def run():
        client, response = Client(), large()
        sending = asyncio.create_task(Sending(Budget()).send(response, SCOPE, None, client.send))
        sizes = []
        while not sending.done():
            for _ in range(3):
                await asyncio.sleep(0)
            sizes.append(len(client.body))
            client.take()
        assert sorted(set(sizes)) == [PIECE_BYTES, 2 * PIECE_BYTES, 2 * PIECE_BYTES + 1]
        assert client.body == response.body
        assert client.sent[0]["status"] == 200
        assert (b"content-length", b"%d" % len(response.body)) in client.sent[0]["headers"]
        assert (b"a", b"b") in client.sent[0]["headers"]
        assert [each["more_body"] for each in client.sent[1:]] == [True, True, False]

    asyncio.run(run())


def test_large_answers_of_an_application_count_until_they_end_and_small_ones_and_streams_never_do():
    budget = Budget(4 * PIECE_BYTES + 4)  # half of it for one

    first, second, small = (Sending(budget) for _ in range(3))
    first.hold(large(), "a")
    with pytest.raises(OverloadedError):
        second.hold(large(), "a")
    small.hold(large(PIECE_BYTES), "a")
    small.hold(StreamingResponse(iter([b""])), "a")
    second.hold(large(), "b")
    with pytest.raises(OverloadedError):
        small.hold(large(), "c")

    first.end()
    first.end()
    small.hold(large(), "a")


def test_an_answer_that_is_held_twice_counts_once():
    sending = Sending(Budget(4 * PIECE_BYTES + 4))
    response = large()
    assert sending.hold(sending.hold(response, "a"), "a") is response
