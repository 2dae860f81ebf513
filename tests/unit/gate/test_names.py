"""How queues of applications are named."""

import pytest

from cassq.errors import InvalidNameError
from cassq.gate.names import full_name, own_name


def test_an_application_has_what_begins_with_its_name_and_a_dot():
    assert full_name("shop", "orders.eu") == "shop.orders.eu"
    assert own_name("shop", "shop.orders.eu") == "orders.eu"
    assert own_name("shop", "shopping.orders") is None
    assert own_name("shop", "shop") is None


def test_an_operator_names_all_in_full():
    assert full_name(None, "orders") == own_name(None, "orders") == "orders"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../orders", "a/b", "a%2fb", "a\0", "ü", ".orders", "a" * 124, "a\n"]
)
def test_no_name_leads_out_of_an_application(name):
    with pytest.raises(InvalidNameError):
        full_name("shop", name)
