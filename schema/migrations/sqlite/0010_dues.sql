-- When each message of a batch is due, packed; and, where a batch was written again in another pipe, the id that each
-- message had first, and when it was pushed. Null: at once, and this one. This step only adds.
ALTER TABLE waiting ADD COLUMN dues BLOB;
ALTER TABLE waiting ADD COLUMN origins TEXT;
-- How long the messages of a pipe wait until they are due; the pipe that they were moved from; and the one that they
-- were moved to.
ALTER TABLE pipes ADD COLUMN due_class INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pipes ADD COLUMN moved_from BLOB;
ALTER TABLE marks ADD COLUMN target BLOB;
