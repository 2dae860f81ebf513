-- A run may be a window: numbers that are not pushed yet, of which its holder hands out what comes.

ALTER TABLE runs ADD COLUMN window_ms INTEGER NOT NULL DEFAULT 0;
