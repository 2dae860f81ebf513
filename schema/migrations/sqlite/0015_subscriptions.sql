-- Subscriptions: which queues have a topic's messages; the pipe that a relay fills for one of its partitions, and the one
-- before that. This step only adds.
ALTER TABLE topics ADD COLUMN subscriptions TEXT NOT NULL DEFAULT '{}';
ALTER TABLE progress ADD COLUMN pipe BLOB;
ALTER TABLE progress ADD COLUMN before BLOB;
