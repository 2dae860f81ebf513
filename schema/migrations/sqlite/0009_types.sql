-- The type of a pipe's messages; '' where they have none. And what a dead letter had, so that it is pushed again with
-- it. This step only adds.
ALTER TABLE pipes ADD COLUMN type TEXT NOT NULL DEFAULT '';
ALTER TABLE dead ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN type TEXT NOT NULL DEFAULT '';
