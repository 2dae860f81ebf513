-- Slots of keys: who won each last. This step only adds.
CREATE TABLE IF NOT EXISTS slots (
    incarnation BLOB NOT NULL,  -- of the queue
    slot        INTEGER NOT NULL,
    op          BLOB NOT NULL,
    PRIMARY KEY (incarnation, slot)
) WITHOUT ROWID;
