-- The embedded store: one file (or none, in memory), the same tables as schema/cassandra.cql.
--
-- Pipe ids are kept as 16 bytes with the time in front, so that they sort by time. Times are milliseconds
-- since 1970 by the store's own clock (table clock). Rows of a pipe are deleted only when it retires.
-- The file's user_version is the version of the schema that a cassq must know to work on the file. cassq runs the
-- numbered files in migrations/sqlite when it opens a file; this is what they add up to.

-- The store's clock: what to add to the machine's elapsed time in one boot. It cannot be set back.
CREATE TABLE IF NOT EXISTS clock (boot TEXT PRIMARY KEY, offset_ms INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS queues (
    name        TEXT PRIMARY KEY,
    incarnation BLOB NOT NULL,
    op          BLOB NOT NULL,
    state       TEXT NOT NULL,
    settings    TEXT NOT NULL,  -- JSON object of integers
    totals      TEXT NOT NULL,  -- JSON object of integers
    counted     TEXT NOT NULL,  -- JSON list of pipe ids
    samples     TEXT NOT NULL,  -- JSON list of [at_ms, pushed, popped, committed]
    writers     TEXT NOT NULL DEFAULT '{}',  -- JSON object: writer -> [last batch decided, manifest or null]
    publications INTEGER NOT NULL DEFAULT 0,
    expired     INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS pipes (
    queue         TEXT NOT NULL,
    shard         INTEGER NOT NULL DEFAULT 0,
    pipe          BLOB NOT NULL,
    pusher        TEXT NOT NULL,
    priority      INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    type          TEXT NOT NULL DEFAULT '',  -- of its messages; '' where they have none
    due_class     INTEGER NOT NULL DEFAULT 0,  -- how long its messages wait until they are due; 0: not at all
    moved_from    BLOB,  -- the pipe that its messages were moved from
    slot          INTEGER NOT NULL DEFAULT -1,  -- of the keys of its messages; -1 where they have none
    PRIMARY KEY (queue, shard, pipe)
) WITHOUT ROWID;

-- One row per batch: the bodies one after the other, cut at `lengths`.
CREATE TABLE IF NOT EXISTS waiting (
    pipe         BLOB NOT NULL,
    first        INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    pushed_at_ms INTEGER NOT NULL,
    lengths      BLOB NOT NULL,  -- count little-endian 32-bit integers
    headers      TEXT,           -- JSON list of objects, or null when no message has any
    bodies       BLOB NOT NULL,
    ttl_ms       INTEGER NOT NULL DEFAULT 0,  -- how long they may wait; 0: as long as the queue says
    dues         BLOB,     -- when each is due, packed; null: at once
    origins      TEXT,     -- which each was first, and when it was pushed; null: this one
    keys         TEXT,     -- JSON list: the key of each; null: none
    PRIMARY KEY (pipe, first)
);

CREATE TABLE IF NOT EXISTS heads (
    pipe        BLOB PRIMARY KEY,
    op          BLOB NOT NULL,
    cursor      INTEGER NOT NULL,
    read_from   INTEGER NOT NULL,
    floor       INTEGER NOT NULL,
    phase       TEXT NOT NULL,
    last        INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    dead        INTEGER NOT NULL,
    purged      INTEGER NOT NULL,
    rolled_back INTEGER NOT NULL,
    expired     INTEGER NOT NULL DEFAULT 0,
    journal     BLOB,    -- of a retired pipe: the incarnation of the topic that its event is in, or is to be
    journal_from INTEGER, -- the offset from which on it is looked for
    journal_kind TEXT    -- what it keeps
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS runs (
    pipe          BLOB NOT NULL,
    first         INTEGER NOT NULL,
    last          INTEGER NOT NULL,
    read_from     INTEGER NOT NULL,
    state         TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    lease_id      BLOB NOT NULL,
    leased_at_ms  INTEGER NOT NULL,
    lease_ms      INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    holder        TEXT NOT NULL,
    rolled_back   INTEGER NOT NULL,
    window_ms     INTEGER NOT NULL DEFAULT 0,  -- of a window: for how long it is handed out
    reason        TEXT NOT NULL DEFAULT '',  -- why it came back last, for people
    past          TEXT NOT NULL DEFAULT '',  -- JSON: the attempts before, where the queue keeps a journal
    PRIMARY KEY (pipe, first)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS marks (
    pipe   BLOB NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    ending TEXT NOT NULL,
    target BLOB,  -- the pipe that they were moved to
    attempt INTEGER NOT NULL DEFAULT 0,  -- in a pipe of a slot: of the run in which they ended
    ended_at_ms INTEGER,  -- where the queue keeps a journal
    PRIMARY KEY (pipe, first)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS dead (
    queue        TEXT NOT NULL,
    shard        INTEGER NOT NULL DEFAULT 0,
    pipe         BLOB NOT NULL,
    seq          INTEGER NOT NULL,
    body         BLOB NOT NULL,
    headers      TEXT NOT NULL,
    pushed_at_ms INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    reason       TEXT NOT NULL,
    died_at_ms   INTEGER NOT NULL,
    removed      INTEGER NOT NULL DEFAULT 0,  -- kept, empty, for a day: it must not come back
    priority     INTEGER NOT NULL DEFAULT 0,
    type         TEXT NOT NULL DEFAULT '',
    key          TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (queue, shard, pipe, seq)
);

-- Traces of removed letters, oldest first: what is forgotten as a pipe is deleted is found without the letters. One
-- with seq 0 stands for all letters of a pipe whose queue was deleted.
CREATE INDEX IF NOT EXISTS dead_removed ON dead (died_at_ms) WHERE removed;

-- What `cassq pipeline rollup` counted. These are figures, not messages: they are kept for thirty days.
CREATE TABLE IF NOT EXISTS statistics (
    queue           TEXT NOT NULL,
    shard           INTEGER NOT NULL DEFAULT 0,
    rolled_up_at_ms INTEGER NOT NULL,
    minute_ms       INTEGER NOT NULL,
    pusher          TEXT NOT NULL,
    holder          TEXT NOT NULL,
    waiting         INTEGER NOT NULL,
    pending         INTEGER NOT NULL,
    returned        INTEGER NOT NULL,
    committed       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    body_bytes      INTEGER NOT NULL,
    body_p50_bytes  INTEGER NOT NULL,
    body_p90_bytes  INTEGER NOT NULL,
    body_p99_bytes  INTEGER NOT NULL,
    oldest_age_ms   INTEGER,  -- null, as the three below, where all of them have ended
    age_p50_ms      INTEGER,
    age_p90_ms      INTEGER,
    age_p99_ms      INTEGER,
    PRIMARY KEY (queue, shard, rolled_up_at_ms, minute_ms, pusher, holder)
) WITHOUT ROWID;

-- Messages that are pushed again and again. `target`: the pipe that the last of them are in, until that is known to be
-- listed.
CREATE TABLE IF NOT EXISTS schedules (
    incarnation BLOB NOT NULL,  -- of the queue
    name        TEXT NOT NULL,
    op          BLOB NOT NULL,
    cron        TEXT NOT NULL,
    timezone    TEXT NOT NULL,
    body        BLOB NOT NULL,
    headers     TEXT NOT NULL,
    ttl_ms      INTEGER NOT NULL,
    priority    INTEGER NOT NULL,
    type        TEXT NOT NULL,
    next_due_ms INTEGER NOT NULL,
    missed      INTEGER NOT NULL,
    target      BLOB,
    PRIMARY KEY (incarnation, name)
) WITHOUT ROWID;

-- Slots of keys: who won each last.
CREATE TABLE IF NOT EXISTS slots (
    incarnation BLOB NOT NULL,  -- of the queue
    slot        INTEGER NOT NULL,
    op          BLOB NOT NULL,
    PRIMARY KEY (incarnation, slot)
) WITHOUT ROWID;

-- Topics: one row each, by the incarnation of which all that follows is kept.
CREATE TABLE IF NOT EXISTS topics (
    name        TEXT PRIMARY KEY,
    incarnation BLOB NOT NULL,
    op          BLOB NOT NULL,
    state       TEXT NOT NULL,
    settings    TEXT NOT NULL,  -- JSON object of integers
    groups      TEXT NOT NULL,  -- JSON object: group -> its id
    subscriptions TEXT NOT NULL DEFAULT '{}'  -- JSON object: queue -> JSON object of what it has
) WITHOUT ROWID;

-- The segments of each partition, with their heads.
CREATE TABLE IF NOT EXISTS segments (
    incarnation   BLOB NOT NULL,
    partition     INTEGER NOT NULL,
    segment       INTEGER NOT NULL,
    first         INTEGER NOT NULL,  -- the offset that it begins with
    created_at_ms INTEGER NOT NULL,
    op            BLOB NOT NULL,
    next          INTEGER NOT NULL,  -- the offset that the next message gets
    size          INTEGER NOT NULL,  -- bytes of bodies and headers
    state         TEXT NOT NULL,
    PRIMARY KEY (incarnation, partition, segment)
) WITHOUT ROWID;

-- One row per batch that is in a log, as in `waiting`; `link_id` is the op that its link gave the head.
CREATE TABLE IF NOT EXISTS links (
    incarnation     BLOB NOT NULL,
    partition       INTEGER NOT NULL,
    segment         INTEGER NOT NULL,
    first           INTEGER NOT NULL,
    count           INTEGER NOT NULL,
    published_at_ms INTEGER NOT NULL,
    link_id         BLOB NOT NULL,
    lengths         BLOB NOT NULL,
    headers         TEXT,
    bodies          BLOB NOT NULL,
    PRIMARY KEY (incarnation, partition, segment, first)
);

-- The last number of each named writer, and the offset that it has.
CREATE TABLE IF NOT EXISTS topic_writers (
    incarnation BLOB NOT NULL,
    partition   INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    writer      TEXT NOT NULL,
    number      INTEGER NOT NULL,
    last_offset INTEGER NOT NULL,
    PRIMARY KEY (incarnation, partition, segment, writer)
) WITHOUT ROWID;

-- How far each group is in each partition.
CREATE TABLE IF NOT EXISTS progress (
    group_id  BLOB NOT NULL,
    partition INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    owner     TEXT NOT NULL,
    next      INTEGER NOT NULL,
    pipe      BLOB,  -- that a relay fills
    before    BLOB,  -- that it filled before
    PRIMARY KEY (group_id, partition)
) WITHOUT ROWID;

-- Small texts of JSON that are kept beside queues.
CREATE TABLE IF NOT EXISTS documents (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    op   BLOB NOT NULL,
    body TEXT NOT NULL,  -- '' where it was deleted
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Component 'added': the last step that only adds. A cassq that does not know it goes on working beside those that do.
CREATE TABLE IF NOT EXISTS schema_version (
    component TEXT PRIMARY KEY,
    version   INTEGER NOT NULL
) WITHOUT ROWID;
