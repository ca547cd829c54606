-- An output may be one resource's alone.

-- +goose Up
ALTER TABLE outputs ADD COLUMN claimed boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX outputs_claimed ON outputs (key) WHERE claimed;
