-- How long the messages of a batch may wait for their consumers, in milliseconds; 0: as long as the queue says. This
-- step only adds.
ALTER TABLE waiting ADD COLUMN ttl_ms INTEGER NOT NULL DEFAULT 0;
