-- Topics: their records, the segments of their partitions, what is in those, and the progress of their groups. This step
-- only adds.
CREATE TABLE topics (
    name        TEXT PRIMARY KEY,
    incarnation BLOB NOT NULL,
    op          BLOB NOT NULL,
    state       TEXT NOT NULL,
    settings    TEXT NOT NULL,
    groups      TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE segments (
    incarnation   BLOB NOT NULL,
    partition     INTEGER NOT NULL,
    segment       INTEGER NOT NULL,
    first         INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    op            BLOB NOT NULL,
    next          INTEGER NOT NULL,
    size          INTEGER NOT NULL,
    state         TEXT NOT NULL,
    PRIMARY KEY (incarnation, partition, segment)
) WITHOUT ROWID;

CREATE TABLE links (
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

CREATE TABLE topic_writers (
    incarnation BLOB NOT NULL,
    partition   INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    writer      TEXT NOT NULL,
    number      INTEGER NOT NULL,
    last_offset INTEGER NOT NULL,
    PRIMARY KEY (incarnation, partition, segment, writer)
) WITHOUT ROWID;

CREATE TABLE progress (
    group_id  BLOB NOT NULL,
    partition INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    owner     TEXT NOT NULL,
    next      INTEGER NOT NULL,
    PRIMARY KEY (group_id, partition)
) WITHOUT ROWID;
