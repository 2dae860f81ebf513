"""What a tracer follows: one trace from a push to the end of its message, with the real OpenTelemetry SDK."""

import asyncio
import logging
import threading
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta

import pytest
from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import cassq
import cassq.aio
from cassq.limits import HEADERS_BYTES_MAX
from cassq.popping import commits
from cassq.tracing import LINKS_MAX, OpenTelemetryTracer

NOW = timedelta(0)


class Spans:
    """A provider of spans, and those that have ended."""

    def __init__(self, **how):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**how)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def own(self):
        return self.provider.get_tracer("the program")

    def ended(self, operation=None):
        ended = self._exporter.get_finished_spans()
        return [each for each in ended if operation in (None, each.name.split()[0])]

    def one(self, operation):
        (found,) = self.ended(operation)
        return found


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture
def queue(spans):
    with cassq.connect("memory:", tracer=OpenTelemetryTracer(spans.provider)) as store:
        yield store.queue("q", lease=timedelta(minutes=5))


def pop(queue, count=1):
    with queue.popper() as popper:
        popped = popper.pop_many(count, timeout=60)
        while len(popped) < count:
            popped += popper.pop_many(count - len(popped), timeout=60)
        yield from popped


def parent_of(span):
    return span.parent and (span.parent.trace_id, span.parent.span_id)


def name_of(span):
    return span.context.trace_id, span.context.span_id


def test_one_trace_goes_from_a_push_through_the_work_to_the_commit(queue, spans):
    with spans.own.start_as_current_span("order"):
        message_id = queue.push(b"12345")
    for delivery in pop(queue):
        with delivery, spans.own.start_as_current_span("mail"):
            queue.push(b"an answer")
    order, push, answer = spans.one("order"), *spans.ended("push")
    process, commit, mail = spans.one("process"), spans.one("commit"), spans.one("mail")
    assert [parent_of(each) for each in (push, process, mail, answer, commit)] == [
        name_of(each) for each in (order, push, process, mail, process)
    ]
    assert [each.kind for each in (push, process, commit)] == [
        SpanKind.PRODUCER,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    assert dict(push.attributes) == {
        "messaging.system": "cassq",
        "messaging.operation.name": "push",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
        "messaging.message.id": str(message_id),
        "messaging.message.body.size": 5,
    }
    assert process.attributes["messaging.message.id"] == str(message_id)
    assert process.attributes["cassq.attempt"] == 1
    assert commit.attributes["messaging.operation.type"] == "settle"
    assert all(each.status.status_code is StatusCode.UNSET for each in spans.ended())


def test_a_pop_is_told_when_it_found_something_with_links_to_the_pushes(queue, spans):
    with queue.popper() as popper:
        assert popper.pop(timeout=0) is None
        waiting = popper.pop_soon()
        assert waiting.cancel()
        queue.push(b"x")
        soon = popper.pop_soon().result()
        queue.push(b"y")
        found = popper.pop(timeout=60)
        popper.commit_many([*soon, found])
    popped = spans.ended("pop")
    assert [[link.context.span_id for link in each.links] for each in popped] == [
        [push.context.span_id] for push in spans.ended("push")
    ]
    assert popped[0].attributes["messaging.message.id"] == str(soon[0].message_id)
    assert popped[0].attributes["messaging.client.id"] == popper.name
    commit = spans.one("commit")
    assert commit.attributes["messaging.batch.message_count"] == 2
    assert len(commit.links) == 2


def test_what_is_pushed_together_has_one_push(queue, spans):
    ids = queue.push_many([b"1", (b"2", {"a": "b"}), bytearray(b"3")])
    deliveries = list(pop(queue, 3))
    assert [each.body for each in deliveries] == [b"1", b"2", b"3"]
    assert {each.headers["traceparent"] for each in deliveries} == {deliveries[0].headers["traceparent"]}
    assert deliveries[1].headers["a"] == "b"
    push = spans.one("push")
    assert push.attributes["messaging.batch.message_count"] == len(ids) == 3
    assert f"{push.context.span_id:016x}" in deliveries[0].headers["traceparent"]


def test_a_pop_of_many_links_to_some_of_the_pushes(queue, spans):
    for _ in range(LINKS_MAX + 5):
        queue.push_soon(b"x").result()
    popped = 0
    with queue.popper() as popper:
        while popped < LINKS_MAX + 5:
            popped += len(popper.pop_many(LINKS_MAX + 5, timeout=60))
    assert max(len(each.links) for each in spans.ended("pop")) <= LINKS_MAX


def test_a_future_of_a_push_is_told_when_it_ends(queue, spans):
    with spans.own.start_as_current_span("order"):
        message_id = queue.push_soon(b"x").result()
    queue.close()
    push = spans.one("push")
    assert parent_of(push) == name_of(spans.one("order"))
    assert push.attributes["messaging.message.id"] == str(message_id)


def test_work_within_the_programs_own_span_is_of_the_messages_trace_and_links_to_that(queue, spans):
    queue.push(b"x")
    with spans.own.start_as_current_span("job"):
        for delivery in pop(queue):
            with delivery:
                pass
    process, job = spans.one("process"), spans.one("job")
    assert parent_of(process) == name_of(spans.one("push"))
    assert [link.context.span_id for link in process.links] == [job.context.span_id]


def test_a_message_without_a_push_to_name_is_processed_where_the_program_is(spans):
    with cassq.connect("memory:") as untraced:
        pass
    with cassq.connect("memory:", tracer=OpenTelemetryTracer(spans.provider)) as store:
        queue = store.queue("q")
        queue.push(b"x", {"traceparent": "not of this world"})
        with spans.own.start_as_current_span("job"):
            for delivery in pop(queue):
                with delivery:
                    assert delivery.headers == {"traceparent": "not of this world"}
    assert parent_of(spans.one("process")) == name_of(spans.one("job"))
    assert untraced.is_closed


def test_a_message_keeps_the_context_that_it_has(queue, spans):
    own = f"00-{'1' * 32}-{'2' * 16}-01"
    queue.push(b"x", {"traceparent": own})
    for delivery in pop(queue):
        with delivery:
            assert dict(delivery.headers) == {"traceparent": own}
    assert spans.one("process").context.trace_id == int("1" * 32, 16)


def test_headers_without_room_stay_as_they_are(queue):
    large = {"a": "x" * (HEADERS_BYTES_MAX - 1)}
    queue.push(b"x", large)
    queue.push_many([(b"x", large)])
    assert [dict(each.headers) for each in pop(queue, 2)] == [large, large]


@pytest.mark.parametrize(
    "headers", [7, "ab", [], {"a": 1}, {1: "a"}, {"": "x"}, {"a": "b\n"}, {"a": "x" * 70_000}]
)
def test_bad_headers_are_refused_as_without_a_tracer(queue, headers):
    with cassq.connect("memory:") as store:
        plain = store.queue("q")
        for call in (
            lambda to: to.push(b"x", headers),
            lambda to: to.push_soon(b"x", headers),
            lambda to: to.push_many([(b"x", headers)]),
        ):
            with pytest.raises(cassq.UsageError) as told:
                call(plain)
            with pytest.raises(type(told.value)) as traced:
                call(queue)
            assert str(traced.value) == str(told.value)


@pytest.mark.parametrize("messages", [7, b"x", "ab", [7], ["x"], [(b"x",)], [(b"x", {}, 1)], [None]])
def test_bad_messages_are_refused_as_without_a_tracer(queue, messages):
    with cassq.connect("memory:") as store, pytest.raises(cassq.UsageError) as told:
        store.queue("q").push_many(messages)
    with pytest.raises(cassq.UsageError) as traced:
        queue.push_many(messages)
    assert str(traced.value) == str(told.value)


def test_a_push_that_fails_is_told_with_its_code_and_without_its_body(queue, spans):
    with pytest.raises(cassq.InvalidOptionError):
        queue.push("secret")
    with pytest.raises(cassq.InvalidOptionError):
        queue.push_soon("secret")
    with pytest.raises(cassq.InvalidOptionError):
        queue.push_many(["secret"])
    for push in spans.ended("push"):
        assert push.attributes["error.type"] == "invalid-option"
        assert push.status.status_code is StatusCode.ERROR
        assert "secret" not in push.to_json()
    assert len(spans.ended("push")) == 3


def test_work_that_fails_is_told_with_its_exception(queue, spans):
    queue.push(b"x")
    (delivery,) = pop(queue)
    with pytest.raises(ZeroDivisionError), delivery:
        1 / 0  # noqa: B018
    process = spans.one("process")
    assert process.attributes["error.type"] == "ZeroDivisionError"
    assert [each.name for each in process.events] == ["exception"]
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_each_attempt_is_a_part_of_the_same_trace(queue, spans):
    queue.push(b"x")
    with queue.popper() as popper:
        popper.pop(timeout=60).rollback(NOW)
        with popper.pop(timeout=60) as delivery:
            assert delivery.attempt == 2
    process = spans.one("process")
    assert process.attributes["cassq.attempt"] == 2
    assert parent_of(process) == name_of(spans.one("push"))


def test_a_commit_that_fails_is_told_and_fails_the_work(queue, spans, monkeypatch):
    def fail(_commit):
        raise cassq.DeliveryExpiredError("too late")

    monkeypatch.setattr(commits.Commit, "try_once", fail)
    queue.push(b"x")
    (delivery,) = pop(queue)
    with pytest.raises(cassq.DeliveryExpiredError), delivery:
        pass
    assert spans.one("commit").attributes["error.type"] == "delivery-expired"
    assert spans.one("process").attributes["error.type"] == "delivery-expired"


def test_a_loop_over_a_popper_traces_each_message(queue, spans):
    queue.push_many([b"x"] * 5)
    popper = queue.popper(commit="grouped")
    for number, delivery in enumerate(popper):
        with delivery:
            pass
        if number == 4:
            popper.close()
    told = Counter(each.name for each in spans.ended())
    # A grouped commit ends at once, and nobody called for a pop.
    assert told == {"push q": 1, "process q": 5}
    assert {parent_of(each) for each in spans.ended("process")} == {name_of(spans.one("push"))}


def test_a_loop_that_awaits_traces_each_message(spans):
    async def main():
        tracer = OpenTelemetryTracer(spans.provider)
        async with cassq.aio.connect("memory:", tracer=tracer) as store:
            queue = await store.queue("q")
            await queue.push_many([b"x"] * 3)
            async with queue.popper(commit="grouped") as popper:
                left = 3
                async for delivery in popper:
                    async with delivery:
                        left -= 1
                    if not left:
                        break

    asyncio.run(main())
    assert Counter(each.name for each in spans.ended()) == {"push q": 1, "process q": 3}


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_workers_handler_is_called_within_the_work_on_its_message(spans, is_awaited):
    with cassq.connect("memory:", tracer=OpenTelemetryTracer(spans.provider)) as store:
        queue = store.queue("q", retry_delay=NOW)
        ids = {body: queue.push(body) for body in (b"good", b"bad", b"reject")}
        worker = cassq.Worker(store, concurrency=2)
        seen = {}

        def handle(delivery):
            seen[delivery.body] = trace.get_current_span().get_span_context().span_id
            if delivery.body == b"reject":
                raise cassq.Reject("no customer")
            if delivery.body == b"bad" and delivery.attempt == 1:
                raise ValueError("bad")

        async def handle_async(delivery):
            await asyncio.sleep(0)
            handle(delivery)

        worker.on("q")(handle_async if is_awaited else handle)
        thread = threading.Thread(target=worker.run)
        thread.start()
        stopping = threading.Thread(target=lambda: _stop_when_empty(queue, worker))
        stopping.start()
        thread.join()
        stopping.join()
    # Of two attempts on two threads the first may be told as ended after the second
    works = sorted(spans.ended("process"), key=lambda work: work.start_time)
    by_message = {
        body: [w for w in works if w.attributes["messaging.message.id"] == str(i)] for body, i in ids.items()
    }
    assert [w.attributes.get("error.type") for w in by_message[b"bad"]] == ["ValueError", None]
    assert [w.attributes.get("error.type") for w in by_message[b"reject"]] == [None]
    assert by_message[b"good"][0].context.span_id == seen[b"good"]
    assert {parent_of(each) for each in works} == {name_of(each) for each in spans.ended("push")}
    committed = {parent_of(each) for each in spans.ended("commit")}
    assert committed == {name_of(by_message[b"good"][0]), name_of(by_message[b"bad"][1])}


def _stop_when_empty(queue, worker):
    pause = threading.Event()
    while (figures := queue.stats()).committed < 2 or figures.dead < 1:
        pause.wait(0.01)
    worker.stop()


def test_a_program_that_awaits_is_traced_too(spans):
    async def main():
        tracer = OpenTelemetryTracer(spans.provider)
        async with cassq.aio.connect("memory:", tracer=tracer) as store:
            queue = await store.queue("q")
            with spans.own.start_as_current_span("order"):
                await queue.push(b"good")
                await queue.push_many([b"bad"])
            async with queue.popper() as popper:
                for _ in range(2):
                    delivery = await popper.pop(60)
                    try:
                        async with delivery:
                            with spans.own.start_as_current_span(delivery.body.decode()):
                                assert delivery.body == b"good"
                    except AssertionError:
                        pass
                    assert trace.get_current_span() is trace.INVALID_SPAN

    asyncio.run(main())
    order = spans.one("order")
    good, bad = sorted(spans.ended("process"), key=lambda each: len(each.attributes))
    assert bad.attributes["error.type"] == "AssertionError"
    assert {parent_of(each) for each in spans.ended("push")} == {name_of(order)}
    assert parent_of(spans.one("good")) == name_of(good)
    assert parent_of(spans.one("bad")) == name_of(bad)
    assert parent_of(spans.one("commit")) == name_of(good)
    assert {each.context.trace_id for each in spans.ended() if "pop" not in each.name} == {
        order.context.trace_id
    }


def test_what_is_not_sampled_carries_its_context_all_the_same():
    spans = Spans(sampler=ALWAYS_OFF)
    with cassq.connect("memory:", tracer=OpenTelemetryTracer(spans.provider)) as store:
        queue = store.queue("q")
        queue.push(b"x")
        for delivery in pop(queue):
            with delivery:
                flags = int(delivery.headers["traceparent"].rpartition("-")[2], 16)
                assert not flags & trace.TraceFlags.SAMPLED
    assert spans.ended() == []


def test_without_an_sdk_nothing_is_added_to_messages():
    with cassq.connect("memory:", tracer=OpenTelemetryTracer()) as store:
        queue = store.queue("q")
        queue.push(b"x")
        queue.push_many([(b"x", {"a": "b"})])
        for delivery in pop(queue, 2):
            with delivery:
                assert "traceparent" not in delivery.headers


def test_an_error_of_a_sampler_fails_no_operation(caplog):
    class Broken(Sampler):
        def should_sample(self, *_args, **_kwargs):
            raise RuntimeError("broken")

        def get_description(self):
            return "broken"

    spans = Spans(sampler=Broken())
    with cassq.connect("memory:", tracer=OpenTelemetryTracer(spans.provider)) as store:
        queue = store.queue("q")
        queue.push(b"x")
        queue.push_many([b"y"])
        for delivery in pop(queue, 2):
            with delivery:
                pass
        assert queue.stats().committed == 2
    assert {each.name for each in caplog.records if each.levelno >= logging.ERROR} == {"cassq.tracing"}


def test_dead_letters_that_are_put_back_keep_the_trace_of_their_push(queue, spans):
    queue.push(b"x")
    for delivery in pop(queue):
        delivery.reject("no customer")
    (letter,) = queue.dead.peek(10)
    queue.dead.put_back(letter.message_id)
    for delivery in pop(queue):
        with delivery:
            pass
    assert len(spans.ended("push")) == 1
    assert parent_of(spans.one("process")) == name_of(spans.one("push"))


@pytest.mark.parametrize("tracer", [7, OpenTelemetryTracer])
def test_what_is_no_tracer_is_refused(tracer):
    with pytest.raises(cassq.InvalidOptionError, match="tracer="):
        cassq.connect("memory:", tracer=tracer)


def test_what_is_handed_on_names_the_push_that_handed_it_on(queue, spans):
    queue.push(b"x", {"a": "b"})
    (delivery,) = pop(queue)
    with delivery:
        queue.push(delivery.body, delivery.headers)
        queue.push_many([(delivery.body, delivery.headers)])
    first, *others = spans.ended("push")
    for number, again in enumerate(pop(queue, 2)):
        assert again.headers["a"] == "b"
        with again:
            pass
        assert parent_of(spans.ended("process")[-1]) == name_of(others[number])
    assert {each.context.trace_id for each in others} == {first.context.trace_id}


def test_where_there_is_room_for_one_header_the_other_is_left_out(queue, spans):
    state = ",".join(f"v{number}={'x' * 200}" for number in range(32))
    remote = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": state}
    around = TraceContextTextMapPropagator().extract(remote)
    large = {"a": "x" * (HEADERS_BYTES_MAX - 500)}
    token = attach(around)
    try:
        queue.push(b"x", large)
        queue.push(b"y")
    finally:
        detach(token)
    tight, roomy = pop(queue, 2)
    assert set(tight.headers) == {"a", "traceparent"}
    assert roomy.headers["tracestate"] == state


@pytest.mark.parametrize("headers", [{"tracestate": "a=b"}, {"traceparent": f"00-{'3' * 32}-{'4' * 16}-01"}])
def test_a_message_of_another_trace_keeps_its_headers(queue, headers):
    queue.push(b"x", headers)
    (delivery,) = pop(queue)
    assert dict(delivery.headers) == headers


def test_each_work_tells_how_its_message_ended(queue, spans):
    queue.push_many([b"x"] * 5)
    done, back, given, rejected, left = pop(queue, 5)
    with done:
        pass
    with back:
        back.rollback(NOW)
    with given:
        given.give_back()
    with rejected:
        rejected.reject("no customer")
    left.begin_work().end()
    told = [each.attributes["cassq.ending"] for each in spans.ended("process")]
    assert told == ["committed", "rolled back", "given back", "rejected", "none"]


class TestBlocks:
    """They are left in another order, thread or task than they were entered in."""

    @pytest.fixture(autouse=True)
    def nothing_is_logged(self, caplog):
        yield
        assert caplog.records == []
        assert trace.get_current_span() is trace.INVALID_SPAN

    def test_a_delivery_that_is_entered_twice_is_worked_on_once(self, queue, spans):
        queue.push(b"x")
        (delivery,) = pop(queue)
        with delivery, delivery:
            pass
        delivery.__exit__(None, None, None)
        assert len(spans.ended("process")) == 1
        queue.push(b"y")
        assert spans.ended("push")[-1].parent is None

    def test_they_may_overlap(self, queue, spans):
        queue.push_many([b"x"] * 2)
        one, two = pop(queue, 2)
        with ExitStack() as outer:
            outer.enter_context(one)
            inner = outer.pop_all()
            with two:
                inner.close()
                queue.push(b"within the second")
            queue.push(b"outside")
        within, outside = spans.ended("push")[1:]
        assert parent_of(within) == name_of(spans.ended("process")[1])
        assert outside.parent is None

    def test_one_that_another_thread_leaves_is_over_for_the_first(self, queue, spans):
        queue.push(b"x")
        (delivery,) = pop(queue)
        with ExitStack() as stack:
            stack.enter_context(delivery)
            thread = threading.Thread(target=stack.pop_all().close)
            thread.start()
            thread.join()
            queue.push(b"outside")
        assert spans.ended("push")[-1].parent is None
        assert spans.one("process").attributes["cassq.ending"] == "committed"

    def test_an_asynchronous_generator_that_is_left_alone_leaves_nothing_behind(self, spans):
        async def main():
            tracer = OpenTelemetryTracer(spans.provider)
            async with cassq.aio.connect("memory:", tracer=tracer) as store:
                queue = await store.queue("q")
                await queue.push_many([b"x"] * 2)
                async with queue.popper() as popper:
                    left = asyncio.Event()

                    async def bodies():
                        try:
                            async for delivery in popper:
                                async with delivery:
                                    yield delivery.body
                        finally:
                            left.set()

                    async for _ in bodies():
                        break
                    await left.wait()
                    await queue.push(b"outside")

        asyncio.run(main())
        assert spans.ended("push")[-1].parent is None


def test_a_handlers_exception_may_be_left_out(spans):
    tracer = OpenTelemetryTracer(spans.provider, has_exceptions=False)
    with cassq.connect("memory:", tracer=tracer) as store:
        queue = store.queue("q")
        queue.push(b"x")
        (delivery,) = pop(queue)
        with pytest.raises(ValueError, match="secret"), delivery:
            raise ValueError("secret")
    process = spans.one("process")
    assert process.attributes["error.type"] == "ValueError"
    assert "secret" not in process.to_json()


def test_an_exception_that_cannot_be_shown_ends_the_work_all_the_same(queue, spans):
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("not to be shown")

    queue.push(b"x")
    (delivery,) = pop(queue)
    with pytest.raises(MuteError), delivery:
        raise MuteError
    assert spans.one("process").attributes["error.type"] == "MuteError"


def test_a_workers_commit_that_fails_fails_the_work(spans, monkeypatch):
    def fail(_commit):
        raise cassq.DeliveryExpiredError("too late")

    with cassq.connect("memory:", tracer=OpenTelemetryTracer(spans.provider)) as store:
        queue = store.queue("q", lease=timedelta(minutes=5))
        queue.push(b"x")
        worker = cassq.Worker(store, concurrency=1)
        worker.on("q")(lambda _: worker.stop())
        monkeypatch.setattr(commits.Commit, "try_once", fail)
        worker.run()
    assert spans.one("process").attributes["error.type"] == "delivery-expired"


@pytest.mark.parametrize("provider", [7, OpenTelemetryTracer(), "none"])
def test_what_is_no_provider_is_refused(provider):
    with pytest.raises(cassq.InvalidOptionError, match="provider="):
        OpenTelemetryTracer(provider)
