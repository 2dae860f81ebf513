-- How many messages were dropped because they had waited for longer than the queue's ttl. This step only adds.
ALTER TABLE queues ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE heads ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
