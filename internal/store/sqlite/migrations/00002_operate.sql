-- Versions of the data keyset, logs and cancellation of operations, the audit,
-- and indexes for lists of operations and for what uses what.

-- +goose Up
CREATE TABLE versions (
  version INTEGER PRIMARY KEY,
  state   TEXT NOT NULL,                      -- store.KeysetState
  wrapped BLOB NOT NULL,
  created INTEGER NOT NULL,
  changed INTEGER NOT NULL
);
INSERT INTO versions SELECT 1, 'Primary', keyset, 0, 0 FROM keysets WHERE name = 'data';
DROP TABLE keysets;
CREATE UNIQUE INDEX versions_one ON versions (state) WHERE state IN ('Primary', 'Added');

-- Versions that rows may name: all but the disabled ones. A version leaves this
-- table only when no row names it.
CREATE TABLE open_versions (version INTEGER PRIMARY KEY);
INSERT INTO open_versions SELECT version FROM versions;

ALTER TABLE resources ADD COLUMN keyset INTEGER REFERENCES open_versions (version); -- NULL: nothing is sealed
UPDATE resources SET keyset = (SELECT min(version) FROM open_versions) WHERE secrets IS NOT NULL OR instr(properties, '"$sealed"') > 0;
CREATE INDEX resources_sealed ON resources (key, keyset) WHERE keyset IS NOT NULL;
CREATE INDEX resources_keyset ON resources (keyset) WHERE keyset IS NOT NULL;

ALTER TABLE operations ADD COLUMN cancel_requested INTEGER NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN trace TEXT NOT NULL DEFAULT ''; -- traceparent
CREATE INDEX operations_resource ON operations (resource_key, row);
CREATE INDEX operations_group ON operations (grp, row);
CREATE INDEX operations_parent ON operations (parent, row) WHERE parent IS NOT NULL;
CREATE INDEX operations_alive ON operations (row) WHERE ended = 0;
CREATE INDEX operations_ended ON operations (ended) WHERE ended > 0;
CREATE INDEX operations_deadline ON operations (deadline) WHERE ended = 0 AND deadline > 0;

CREATE TABLE messages (
  operation TEXT NOT NULL REFERENCES operations (id) ON DELETE CASCADE,
  seq       INTEGER NOT NULL,
  time      INTEGER NOT NULL,
  text      TEXT NOT NULL,
  PRIMARY KEY (operation, seq)
) WITHOUT ROWID;

CREATE TABLE audit (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  time       INTEGER NOT NULL,
  principal  TEXT NOT NULL,
  action     TEXT NOT NULL,
  target     TEXT NOT NULL,
  target_key TEXT NOT NULL,                   -- lower case
  allowed    INTEGER NOT NULL,
  reason     TEXT NOT NULL,
  source     TEXT NOT NULL,
  request    TEXT NOT NULL
);
CREATE INDEX audit_time ON audit (time, seq);
CREATE INDEX audit_principal ON audit (principal, time, seq);

CREATE TABLE replicas (
  name    TEXT NOT NULL PRIMARY KEY,
  started INTEGER NOT NULL,
  seen    INTEGER NOT NULL,
  keyset  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX edges_to ON edges (to_key, from_key);
