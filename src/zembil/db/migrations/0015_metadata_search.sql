-- Payments by what their merchant wrote beside them. Each entry is written at once: an index that lets them gather in a
-- list holds up one payment for all when the list is full, for most of a second.
CREATE INDEX payments_metadata ON payments USING gin (metadata jsonb_path_ops) WITH (fastupdate = off);
