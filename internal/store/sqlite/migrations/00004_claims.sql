-- An output may be one resource's alone.

-- +goose Up
ALTER TABLE outputs ADD COLUMN claimed INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX outputs_claimed ON outputs (key) WHERE claimed = 1;
