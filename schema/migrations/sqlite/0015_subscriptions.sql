-- Subscriptions: which queues have a topic's messages, and the pipe that a relay fills for one of its partitions. This step
-- only adds.
ALTER TABLE topics ADD COLUMN subscriptions TEXT NOT NULL DEFAULT '{}';
ALTER TABLE progress ADD COLUMN pipe BLOB;
