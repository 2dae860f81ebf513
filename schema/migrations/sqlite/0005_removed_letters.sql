-- Traces of removed letters, oldest first: what is forgotten as a pipe is deleted is found without the letters.
CREATE INDEX IF NOT EXISTS dead_removed ON dead (died_at_ms) WHERE removed;
