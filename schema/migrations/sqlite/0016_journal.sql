-- The journal: in the head of a retired pipe, the incarnation of the topic that its event is in, or is to be, and the offset
-- from which on it is looked for there. This step only adds.
ALTER TABLE heads ADD COLUMN journal BLOB;
ALTER TABLE heads ADD COLUMN journal_from INTEGER;
