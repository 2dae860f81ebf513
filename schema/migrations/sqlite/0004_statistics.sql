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
