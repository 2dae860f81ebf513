-- The slot of the keys of a pipe's messages; -1 where they have none. The key of each message of a batch; the attempt in
-- which messages with keys ended; and what a dead letter had, so that it is pushed again with it. This step only adds.
ALTER TABLE pipes ADD COLUMN slot INTEGER NOT NULL DEFAULT -1;
ALTER TABLE waiting ADD COLUMN keys TEXT;
ALTER TABLE marks ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN key TEXT NOT NULL DEFAULT '';
