"""The OpenAPI document of the service: it is valid, has every route, and the service does what it says."""

import json

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from openapi_spec_validator import validate
from schemathesis.specs.openapi.checks import positive_data_acceptance
from support.serving import Serving, keys_of

import cassq
from cassq.http.openapi import make_document
from cassq.http.table import ROUTES

DOCUMENT = make_document(ROUTES)

#: For each route: more would take longer than a test may.
EXAMPLES = 6

#: These answer until their client leaves, or do not need to be tried with what nobody sends.
APART = {"/v1/topics/{topic}/follow", "/v1/queues/{queue}/tail"}


#: The key of the service that is called; the schema below is made before there is one.
KEYS = []


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('service')}/orders.db"
    KEYS[:] = keys_of(url, "shop")
    with cassq.connect(url) as store:  # examples like short names
        store.queue("shop.0").push(b"x")
        store.topic("shop.0").publish(b"x")
        store.topic("shop.0").declare_group("0")
    made = Serving(url)
    yield made
    made.end()


def test_the_document_is_valid():
    validate(DOCUMENT)


def test_the_document_has_every_route_and_who_may_use_it():
    for route in ROUTES:
        told = DOCUMENT["paths"][route.path][route.method.lower()]
        assert ("security" in told) is (route.right is None)
        assert set(told["responses"]) == {*map(str, route.answers), "default"}
    operations = [told for path in DOCUMENT["paths"].values() for told in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({told["operationId"] for told in operations}) == len(ROUTES)


def test_the_service_tells_this_document(serving):
    assert httpx.get(f"{serving.base}/openapi.json").json() == DOCUMENT


schema = schemathesis.openapi.from_dict(DOCUMENT).exclude(path=list(APART))


@schemathesis.serializer("application/x-ndjson")
def to_lines(_context, value):
    """Send what an example has for many messages as it is."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@schema.auth()
class Bearer:
    """Sends the key, but where an example is to come without one."""

    def get(self, _case, _context):
        return "the key"

    def set(self, case, _key, _context):
        case.headers["Authorization"] = f"Bearer {KEYS[0] if KEYS else 'that is made later'}"


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_every_answer_is_as_the_document_says(serving, case):
    # Which names exist, and which settings go together, a document cannot tell.
    case.call_and_validate(base_url=serving.base, excluded_checks=[positive_data_acceptance])
