-- Pipes may be staged: filled out of poppers' sight (listed under shard -1) and published together.

ALTER TABLE queues ADD COLUMN writers TEXT NOT NULL DEFAULT '{}';
ALTER TABLE queues ADD COLUMN publications INTEGER NOT NULL DEFAULT 0;
