-- Times are nanoseconds since 1970 in UTC, 0 for none. Keys are ids in lower
-- case, compared byte by byte so that a scope is a range of them; the id beside
-- a key keeps the case first written. JSON stands as text, as it was written.

-- +goose Up
CREATE TABLE versions (
  version bigint PRIMARY KEY,
  state   text NOT NULL,
  wrapped bytea NOT NULL,
  created bigint NOT NULL,
  changed bigint NOT NULL
);
CREATE UNIQUE INDEX versions_one ON versions (state) WHERE state IN ('Primary', 'Added');

-- Versions that rows may name: all but the disabled ones. The reference below
-- keeps one here while a row names it, and a row from naming one that is gone.
CREATE TABLE open_versions (version bigint PRIMARY KEY);

CREATE TABLE resources (
  key             text COLLATE "C" PRIMARY KEY,
  id              text NOT NULL,
  type            text COLLATE "C" NOT NULL,
  api_version     text NOT NULL,
  location        text NOT NULL,
  tags            text,
  properties      text,
  status          text,
  secrets         text,
  state           text NOT NULL,
  etag            text NOT NULL,
  application     text NOT NULL,
  application_key text COLLATE "C",
  environment     text NOT NULL,
  environment_key text COLLATE "C",
  owner_cluster   text NOT NULL,
  owner_namespace text NOT NULL,
  owner_kind      text NOT NULL,
  owner_name      text NOT NULL,
  owner_uid       text NOT NULL,
  implicit        boolean NOT NULL,
  system_data     text NOT NULL,
  keyset          bigint REFERENCES open_versions (version)
) WITH (fillfactor = 80);
CREATE INDEX resources_type ON resources (type, key);
CREATE INDEX resources_application ON resources (application_key, key) WHERE application_key IS NOT NULL;
CREATE INDEX resources_environment ON resources (environment_key, key) WHERE environment_key IS NOT NULL;
CREATE INDEX resources_sealed ON resources (key, keyset) WHERE keyset IS NOT NULL;
CREATE INDEX resources_keyset ON resources (keyset) WHERE keyset IS NOT NULL;

-- The queue, the operation statuses and the history at once. Live is ended = 0.
-- Rows of a queue are changed a few times and then rest: room on the page keeps
-- a lease from touching any index, and vacuum comes often.
CREATE TABLE operations (
  seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id           text COLLATE "C" NOT NULL UNIQUE,
  resource_key text COLLATE "C" NOT NULL,
  resource_id  text NOT NULL,
  verb         text NOT NULL,
  api_version  text NOT NULL,
  state        text NOT NULL,
  error        text,
  grp          text COLLATE "C" NOT NULL,
  parent       text COLLATE "C",
  parked       boolean NOT NULL DEFAULT false,
  children     integer NOT NULL DEFAULT 0,
  worker       text NOT NULL DEFAULT '',
  fence        bigint NOT NULL DEFAULT 0,
  lease_until  bigint NOT NULL DEFAULT 0,
  attempts     integer NOT NULL DEFAULT 0,
  created      bigint NOT NULL,
  started      bigint NOT NULL DEFAULT 0,
  ended        bigint NOT NULL DEFAULT 0,
  deadline     bigint NOT NULL,
  cancel_requested bigint NOT NULL DEFAULT 0,
  trace        text NOT NULL DEFAULT ''
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE UNIQUE INDEX operations_live ON operations (resource_key) WHERE ended = 0;
CREATE INDEX operations_waiting ON operations (grp, created, seq) WHERE ended = 0 AND NOT parked;
CREATE INDEX operations_alive ON operations (seq) WHERE ended = 0;
CREATE INDEX operations_resource ON operations (resource_key, seq);
CREATE INDEX operations_group ON operations (grp, seq);
CREATE INDEX operations_parent ON operations (parent, seq) WHERE parent IS NOT NULL;
CREATE INDEX operations_ended ON operations (ended) WHERE ended > 0;
CREATE INDEX operations_deadline ON operations (deadline) WHERE ended = 0 AND deadline > 0;

CREATE TABLE outputs (
  resource_key text COLLATE "C" NOT NULL REFERENCES resources (key) ON DELETE CASCADE,
  key          text COLLATE "C" NOT NULL,
  ordinal      bigint NOT NULL,
  id           text NOT NULL,
  local_id     text NOT NULL,
  state        text NOT NULL,
  managed      boolean NOT NULL,
  depends_on   text,
  handle       text,
  PRIMARY KEY (resource_key, key)
);

CREATE TABLE edges (
  from_key text COLLATE "C" NOT NULL REFERENCES resources (key) ON DELETE CASCADE,
  to_key   text COLLATE "C" NOT NULL,
  kind     text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  to_id    text NOT NULL,
  PRIMARY KEY (from_key, to_key, kind, name)
);
CREATE INDEX edges_to ON edges (to_key, from_key);

CREATE TABLE messages (
  operation text COLLATE "C" NOT NULL REFERENCES operations (id) ON DELETE CASCADE,
  seq       bigint NOT NULL,
  time      bigint NOT NULL,
  text      text NOT NULL,
  PRIMARY KEY (operation, seq)
);

CREATE TABLE manifests (
  namespace_key text COLLATE "C" PRIMARY KEY,
  namespace     text NOT NULL,
  manifest      text NOT NULL
);

CREATE TABLE audit (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  time       bigint NOT NULL,
  principal  text NOT NULL,
  action     text NOT NULL,
  target     text NOT NULL,
  target_key text COLLATE "C" NOT NULL,
  allowed    boolean NOT NULL,
  reason     text NOT NULL,
  source     text NOT NULL,
  request    text NOT NULL
);
CREATE INDEX audit_time ON audit (time, seq);
CREATE INDEX audit_principal ON audit (principal, time, seq);

CREATE TABLE replicas (
  name    text PRIMARY KEY,
  started bigint NOT NULL,
  seen    bigint NOT NULL,
  keyset  bigint NOT NULL
);

-- What each transaction has changed, for the listeners of all processes. The
-- transaction's own number is its place in the feed: a reader takes those below
-- the oldest that still runs, so that one that commits late is not passed over.
CREATE TABLE changes (
  xid     xid8 PRIMARY KEY DEFAULT pg_current_xact_id(),
  at      timestamptz NOT NULL DEFAULT now(),
  payload text NOT NULL                       -- array of changes
);
CREATE INDEX changes_at ON changes (at);
-- The highest number that was removed from the feed.
CREATE TABLE feed (pruned bigint NOT NULL);
INSERT INTO feed VALUES (0);
