-- The journal: when each message ended; the attempts of a run before the one that counts; and, in the head of a retired pipe,
-- what its events keep. This step only adds.
ALTER TABLE heads ADD COLUMN journal_kind TEXT;
ALTER TABLE runs ADD COLUMN past TEXT NOT NULL DEFAULT '';
ALTER TABLE marks ADD COLUMN ended_at_ms INTEGER;
