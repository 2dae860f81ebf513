-- Messages that are pushed again and again. This step only adds.
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
