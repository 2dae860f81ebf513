-- Why a run came back, for people: an error's class and text, or that its lease ended. Empty where nothing was said.
ALTER TABLE runs ADD COLUMN reason TEXT NOT NULL DEFAULT '';

-- Steps that only add: a cassq that does not know them goes on working beside those that do. The file's user_version
-- says which version a cassq has to know at least.
CREATE TABLE schema_version (
    component TEXT PRIMARY KEY,
    version   INTEGER NOT NULL
) WITHOUT ROWID;
