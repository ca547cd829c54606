-- Outputs lie in the order of their keys, with no second tree that leads there:
-- reads that go from resource to resource walk along them.

-- +goose Up
CREATE TABLE ordered (
  resource_key TEXT NOT NULL REFERENCES resources (key) ON DELETE CASCADE,
  key          TEXT NOT NULL,
  ordinal      INTEGER NOT NULL,              -- the order planned
  id           TEXT NOT NULL,
  local_id     TEXT NOT NULL,
  state        TEXT NOT NULL,
  managed      INTEGER NOT NULL,
  depends_on   TEXT,                          -- array of ids
  handle       TEXT,
  PRIMARY KEY (resource_key, key)
) WITHOUT ROWID;
INSERT INTO ordered SELECT resource_key, key, ordinal, id, local_id, state, managed, depends_on, handle
  FROM outputs ORDER BY resource_key, key;
DROP TABLE outputs;
ALTER TABLE ordered RENAME TO outputs;
