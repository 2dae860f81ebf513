"""All routes of the service, with the right that each needs.

Owns the one table that answers requests and makes the OpenAPI document; a capability adds its rows here. What
must not break: a route without a right lets everybody in.
"""

from typing import Any

from starlette.responses import Response

from cassq.gate.applications import Right
from cassq.http import (
    following,
    forms,
    group_forms,
    groups,
    lease_forms,
    leasing,
    letter_forms,
    letters,
    messages,
    queues,
    topics,
    watching,
)
from cassq.http.problems import RefusedError
from cassq.http.routes import Call, Route, answer

#: So old at most is the last answer of the database in a process that is ready.
READY_S = 5.0

_MANY = ("application/octet-stream", messages.NDJSON)
_QUEUE = "/v1/queues/{queue}"
_TOPIC = "/v1/topics/{topic}"
_GROUP = f"{_TOPIC}/groups/{{group}}"


async def _tell_alive(_: Call) -> Response:
    return answer(forms.Health("alive"))


async def _tell_ready(call: Call) -> Response:
    if call.service.is_leaving:
        raise RefusedError(503, "ending", "the process is about to end")
    await call.service.know(READY_S)
    return answer(forms.Health("ready"))


QUEUES = [
    Route(
        *("GET", "/v1/queues", Right.LOOK, queues.list_all, "List queues"),
        {200: forms.Names},
        query=forms.NamesQuery,
    ),
    Route(
        *("PUT", _QUEUE, Right.STEER, queues.create, "Create a queue, or open it with the same settings"),
        {200: forms.Settings, 201: forms.Settings},
        body=forms.QueueChanges,
    ),
    Route("GET", _QUEUE, Right.LOOK, queues.show, "Tell the settings of a queue", {200: forms.Settings}),
    Route(
        *("PATCH", _QUEUE, Right.STEER, queues.alter, "Give a queue other settings while it is in use"),
        {200: forms.Settings},
        body=forms.QueueChanges,
    ),
    Route(
        "DELETE", _QUEUE, Right.STEER, queues.delete, "Delete a queue with its messages", {200: forms.Done}
    ),
    Route(
        *("POST", f"{_QUEUE}/messages", Right.PUSH, messages.push, "Push a message, or with NDJSON many"),
        {201: forms.Pushed},
        query=forms.PushQuery,
        media=_MANY,
    ),
    Route(
        *("GET", f"{_QUEUE}/messages", Right.LOOK, queues.peek, "Show what waits; takes nothing"),
        {200: forms.Messages},
        query=forms.Limit,
    ),
    Route(
        *("GET", f"{_QUEUE}/messages/{{id}}", Right.LOOK, queues.status, "Tell what became of a message"),
        {200: forms.MessageStatus},
    ),
    Route(
        *("DELETE", f"{_QUEUE}/messages/{{id}}", Right.STEER, queues.cancel, "Cancel a message"),
        {200: forms.Cancelled},
        query=forms.CancelQuery,
    ),
    Route(
        "GET", f"{_QUEUE}/stats", Right.LOOK, queues.stats, "Tell figures of a queue", {200: dict[str, Any]}
    ),
    Route(
        *("GET", f"{_QUEUE}/pipes", Right.LOOK, queues.pipes, "Tell figures of each live pipe"),
        {200: dict[str, Any]},
    ),
    Route(
        *("GET", f"{_QUEUE}/runs", Right.LOOK, queues.runs, "Tell who has which messages"),
        {200: dict[str, Any]},
        query=forms.Limit,
    ),
    Route(
        *("GET", f"{_QUEUE}/rollups", Right.LOOK, queues.rollups, "Tell what was counted on a day"),
        {200: dict[str, Any]},
        query=forms.Day,
    ),
    Route(
        *("GET", f"{_QUEUE}/tail", Right.LOOK, watching.tail, "Watch a queue by server-sent events"),
        {200: following.EVENTS},
    ),
    Route("POST", f"{_QUEUE}/pause", Right.STEER, queues.pause, "Stop deliveries", {200: forms.Done}),
    Route("POST", f"{_QUEUE}/resume", Right.STEER, queues.resume, "Let deliveries go on", {200: forms.Done}),
    Route(
        *("POST", f"{_QUEUE}/purge", Right.STEER, queues.purge, "End all messages that no consumer has"),
        {200: forms.Done},
        body=forms.Confirmation,
    ),
]

LETTERS = [
    Route(
        *("GET", f"{_QUEUE}/dead", Right.LOOK, letters.list_all, "Show dead letters"),
        {200: letter_forms.Letters},
        query=letter_forms.LettersQuery,
    ),
    Route(
        *("DELETE", f"{_QUEUE}/dead", Right.STEER, letters.discard, "Remove dead letters for ever"),
        {200: forms.Done},
        query=letter_forms.DiscardQuery,
    ),
    Route(
        *("POST", f"{_QUEUE}/dead/redrive", Right.STEER, letters.redrive, "Push dead letters again"),
        {200: messages.NDJSON},
        body=letter_forms.Redrive,
    ),
]

LEASES = [
    Route(
        *("POST", f"{_QUEUE}/lease", Right.POP, leasing.lease, "Lease messages, or wait for some"),
        {200: (lease_forms.Leases, messages.NDJSON, leasing.BYTES), 204: None},
        body=lease_forms.Wanted,
    ),
    Route(
        *("POST", f"{_QUEUE}/commit", Right.POP, leasing.commit, "Commit leases"),
        {200: lease_forms.Outcomes},
        body=lease_forms.GivenLeases,
    ),
    Route(
        *("POST", f"{_QUEUE}/settle", Right.POP, leasing.settle, "End a lease of which not all is committed"),
        {200: lease_forms.Outcome},
        body=lease_forms.Settlement,
    ),
    Route(
        *("POST", f"{_QUEUE}/extend", Right.POP, leasing.extend, "Have leases run for longer"),
        {200: lease_forms.Extensions},
        body=lease_forms.GivenLeases,
    ),
]

TOPICS = [
    Route(
        *("GET", "/v1/topics", Right.LOOK, topics.list_all, "List topics"),
        {200: forms.Names},
        query=forms.NamesQuery,
    ),
    Route(
        *("PUT", _TOPIC, Right.STEER, topics.create, "Create a topic, or open it with the same settings"),
        {200: forms.Settings, 201: forms.Settings},
        body=forms.TopicChanges,
    ),
    Route("GET", _TOPIC, Right.LOOK, topics.show, "Tell the settings of a topic", {200: forms.Settings}),
    Route(
        *("PATCH", _TOPIC, Right.STEER, topics.alter, "Give a topic other settings while it is in use"),
        {200: forms.Settings},
        body=forms.TopicChanges,
    ),
    Route(
        "DELETE", _TOPIC, Right.STEER, topics.delete, "Delete a topic with its messages", {200: forms.Done}
    ),
    Route(
        *(
            "POST",
            f"{_TOPIC}/messages",
            Right.PUSH,
            messages.publish,
            "Publish a message, or with NDJSON many",
        ),
        {201: forms.Published},
        query=forms.PublishQuery,
        media=_MANY,
    ),
    Route(
        *("GET", f"{_TOPIC}/messages", Right.POP, topics.read, "Read a page of a partition"),
        {200: forms.Page},
        query=forms.ReadQuery,
    ),
    Route(
        *("GET", f"{_TOPIC}/follow", Right.POP, following.follow, "Follow a topic by server-sent events"),
        {200: following.EVENTS},
        query=forms.FollowQuery,
    ),
    Route(
        "GET",
        f"{_TOPIC}/stats",
        Right.LOOK,
        topics.stats,
        "Tell figures of a topic",
        {200: forms.TopicFigures},
    ),
]

GROUPS = [
    Route(
        *("GET", f"{_TOPIC}/groups", Right.LOOK, groups.list_all, "List the groups of a topic"),
        {200: forms.Names},
        query=forms.NamesQuery,
    ),
    Route(
        *("PUT", _GROUP, Right.STEER, groups.declare, "Create a group, or leave the one that is there"),
        {200: group_forms.Group, 201: group_forms.Group},
        body=group_forms.Declared,
    ),
    Route("GET", _GROUP, Right.LOOK, groups.show, "Tell how far a group is", {200: group_forms.Group}),
    Route(
        "DELETE", _GROUP, Right.STEER, groups.delete, "Delete a group with its progress", {200: forms.Done}
    ),
    Route(
        *("POST", f"{_GROUP}/reset", Right.STEER, groups.reset, "Have a group go on somewhere else"),
        {200: group_forms.Group},
        body=group_forms.Reset,
    ),
    Route(
        *("POST", f"{_GROUP}/lease", Right.POP, groups.lease, "Lease the next messages of one partition"),
        {200: group_forms.GroupLease, 204: None},
        body=group_forms.GroupWanted,
    ),
    Route(
        *("POST", f"{_GROUP}/commit", Right.POP, groups.commit, "Say that what was leased is done"),
        {200: group_forms.GroupEnd},
        body=group_forms.GivenGroupLease,
    ),
    Route(
        *("POST", f"{_GROUP}/release", Right.POP, groups.release, "Give back what was leased"),
        {200: group_forms.GroupEnd},
        body=group_forms.GivenGroupLease,
    ),
]

HEALTH = [
    Route("GET", "/healthz", None, _tell_alive, "Tell that the process lives", {200: forms.Health}),
    Route("GET", "/readyz", None, _tell_ready, "Tell whether the database answers", {200: forms.Health}),
]

ROUTES = [*QUEUES, *LETTERS, *LEASES, *TOPICS, *GROUPS, *HEALTH]
