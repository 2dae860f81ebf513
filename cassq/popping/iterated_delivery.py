"""A delivery in a loop over a popper.

Owns which errors such a loop goes on after. What must not break: only what the delivery itself raised is
swallowed; errors of the consumer's own work propagate, also those of another queue.
"""

import logging
from types import TracebackType

from cassq.errors import DeliveryExpiredError, OutcomeUnknownError, UnavailableError
from cassq.popping.delivery import Delivery

_log = logging.getLogger("cassq.popper")

#: What a delivery raises whose message comes again, or may.
COMES_AGAIN = (DeliveryExpiredError, OutcomeUnknownError, UnavailableError)


class _IteratedDelivery(Delivery):
    """A delivery whose consumer takes the next one when this one comes again."""

    __slots__ = ()

    # No context manager: in a loop over a popper it would cost more than a grouped commit.
    def commit(self) -> None:
        try:
            super().commit()
        except COMES_AGAIN as error:
            error.__dict__["raised_by"] = self
            raise

    def extend(self) -> None:
        try:
            super().extend()
        except COMES_AGAIN as error:
            error.__dict__["raised_by"] = self
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            super().__exit__(kind, error, traceback)
        except (DeliveryExpiredError, OutcomeUnknownError) as late:
            error = late
        if error is None or error.__dict__.get("raised_by") is not self:
            return False
        _log.warning("message %s comes again, or may: %s", self.message_id, error)
        return True


def go_on_after(delivery: Delivery) -> Delivery:
    """Return the delivery for a consumer that goes on with the next message when this one comes again."""
    delivery.__class__ = _IteratedDelivery
    return delivery
