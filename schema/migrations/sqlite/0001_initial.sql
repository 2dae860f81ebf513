-- The first schema of the embedded store; schema/sqlite.sql tells what each table is for.

CREATE TABLE clock (boot TEXT PRIMARY KEY, offset_ms INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE queues (
    name        TEXT PRIMARY KEY,
    incarnation BLOB NOT NULL,
    op          BLOB NOT NULL,
    state       TEXT NOT NULL,
    settings    TEXT NOT NULL,
    totals      TEXT NOT NULL,
    counted     TEXT NOT NULL,
    samples     TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE pipes (
    queue         TEXT NOT NULL,
    shard         INTEGER NOT NULL DEFAULT 0,
    pipe          BLOB NOT NULL,
    pusher        TEXT NOT NULL,
    priority      INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (queue, shard, pipe)
) WITHOUT ROWID;

CREATE TABLE waiting (
    pipe         BLOB NOT NULL,
    first        INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    pushed_at_ms INTEGER NOT NULL,
    lengths      BLOB NOT NULL,
    headers      TEXT,
    bodies       BLOB NOT NULL,
    PRIMARY KEY (pipe, first)
);

CREATE TABLE heads (
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
    rolled_back INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE runs (
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
    PRIMARY KEY (pipe, first)
) WITHOUT ROWID;

CREATE TABLE marks (
    pipe   BLOB NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    ending TEXT NOT NULL,
    PRIMARY KEY (pipe, first)
) WITHOUT ROWID;

CREATE TABLE dead (
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
    removed      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, shard, pipe, seq)
);
