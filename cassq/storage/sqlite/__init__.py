"""SQLite, or memory, behind the storage port."""
