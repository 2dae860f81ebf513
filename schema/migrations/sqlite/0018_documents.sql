-- Small texts of JSON that are kept beside queues. This step only adds.
CREATE TABLE IF NOT EXISTS documents (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    op   BLOB NOT NULL,
    body TEXT NOT NULL,  -- '' where it was deleted
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
