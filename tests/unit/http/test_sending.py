"""Large answers: sent in pieces, and counted until their clients have taken them."""

import asyncio

import pytest
from starlette.responses import Response, StreamingResponse

from cassq.errors import OverloadedError
from cassq.http.sending import PIECE_BYTES, Answers, Sending

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
        sending = asyncio.create_task(Sending(Answers()).send(response, SCOPE, None, client.send))
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
    budget = Answers(4 * PIECE_BYTES + 4)  # half of it for one

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
    sending = Sending(Answers(4 * PIECE_BYTES + 4))
    response = large()
    assert sending.hold(sending.hold(response, "a"), "a") is response


def test_who_holds_nothing_has_one_answer_that_is_larger_than_its_part():
    budget = Answers(2 * PIECE_BYTES)
    first, second, other = (Sending(budget) for _ in range(3))
    first.hold(large(10 * PIECE_BYTES), "a")
    with pytest.raises(OverloadedError):
        second.hold(large(), "a")
    other.hold(large(10 * PIECE_BYTES), "b")
    first.end()
    second.hold(large(), "a")


def test_one_address_without_a_key_leaves_room_for_the_others():
    budget = Answers(20 * PIECE_BYTES, 4 * PIECE_BYTES)
    held = [Sending(budget) for _ in range(4)]
    held[0].hold(large(), "", "10.0.0.1")
    with pytest.raises(OverloadedError):
        held[1].hold(large(), "", "10.0.0.1")
    held[1].end()
    held[1].hold(large(), "", "10.0.0.2")
    held[2].hold(large(), "", "10.0.0.3")
    with pytest.raises(OverloadedError):  # of the half that all have who have no key
        held[3].hold(large(4 * PIECE_BYTES), "", "10.0.0.4")
    for each in held:
        each.end()
    held[3].hold(large(), "", "10.0.0.1")


def test_the_end_of_the_process_ends_an_answer_that_nobody_takes_and_logs_nothing():
    async def run():
        client = Client()
        sending = asyncio.create_task(Sending(Answers()).send(large(), SCOPE, None, client.send))
        for _ in range(3):
            await asyncio.sleep(0)
        sending.cancel()
        await sending
        assert len(client.body) == PIECE_BYTES

    asyncio.run(run())
