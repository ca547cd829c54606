-- Times are nanoseconds since 1970 in UTC, 0 for none. Keys are ids in lower
-- case: what is compared and indexed; the id beside a key keeps the case first
-- written. JSON stands as text.

-- +goose Up
CREATE TABLE resources (
  row             INTEGER PRIMARY KEY,
  key             TEXT NOT NULL UNIQUE,
  id              TEXT NOT NULL,
  type            TEXT NOT NULL,              -- lower case; see store.TypeOf
  api_version     TEXT NOT NULL,
  location        TEXT NOT NULL,
  tags            TEXT,
  properties      TEXT,
  status          TEXT,
  secrets         TEXT,                       -- sealed
  state           TEXT NOT NULL,
  etag            TEXT NOT NULL,
  application     TEXT NOT NULL,
  application_key TEXT,                       -- NULL for none
  environment     TEXT NOT NULL,
  environment_key TEXT,
  owner_cluster   TEXT NOT NULL,
  owner_namespace TEXT NOT NULL,
  owner_kind      TEXT NOT NULL,
  owner_name      TEXT NOT NULL,
  owner_uid       TEXT NOT NULL,
  implicit        INTEGER NOT NULL,
  system_data     TEXT NOT NULL
);
CREATE INDEX resources_type ON resources (type, key);
CREATE INDEX resources_application ON resources (application_key, key) WHERE application_key IS NOT NULL;
CREATE INDEX resources_environment ON resources (environment_key, key) WHERE environment_key IS NOT NULL;

-- The queue, the operation statuses and the history at once. Live is ended = 0.
CREATE TABLE operations (
  row          INTEGER PRIMARY KEY,           -- the order of acceptance
  id           TEXT NOT NULL UNIQUE,
  resource_key TEXT NOT NULL,
  resource_id  TEXT NOT NULL,
  verb         TEXT NOT NULL,
  api_version  TEXT NOT NULL,
  state        TEXT NOT NULL,
  error        TEXT,
  grp          TEXT NOT NULL,
  parent       TEXT,                          -- NULL for none
  parked       INTEGER NOT NULL,
  children     INTEGER NOT NULL,
  worker       TEXT NOT NULL,
  fence        INTEGER NOT NULL,
  lease_until  INTEGER NOT NULL,
  attempts     INTEGER NOT NULL,
  created      INTEGER NOT NULL,
  started      INTEGER NOT NULL,
  ended        INTEGER NOT NULL,
  deadline     INTEGER NOT NULL
);
-- One live operation a resource: the rule that holds even where code is wrong.
CREATE UNIQUE INDEX operations_live ON operations (resource_key) WHERE ended = 0;
CREATE INDEX operations_waiting ON operations (grp, created) WHERE ended = 0 AND parked = 0;
CREATE INDEX operations_children ON operations (parent) WHERE ended = 0 AND parent IS NOT NULL;
CREATE INDEX operations_leased ON operations (lease_until) WHERE ended = 0 AND lease_until > 0;

CREATE TABLE outputs (
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
);

CREATE TABLE edges (
  from_key TEXT NOT NULL REFERENCES resources (key) ON DELETE CASCADE,
  to_key   TEXT NOT NULL,                     -- may name what is not there
  kind     TEXT NOT NULL,
  name     TEXT NOT NULL,
  to_id    TEXT NOT NULL,
  PRIMARY KEY (from_key, to_key, kind, name)
) WITHOUT ROWID;

CREATE TABLE manifests (
  namespace TEXT NOT NULL PRIMARY KEY COLLATE NOCASE,
  manifest  TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE keysets (
  name   TEXT NOT NULL PRIMARY KEY,
  keyset BLOB NOT NULL
) WITHOUT ROWID;
