-- How many requests each process may still answer for an account or a key: leased in blocks, so that no request needs
-- the database. Not logged: after a crash of PostgreSQL every limit begins anew, and a lease costs no flush.
CREATE UNLOGGED TABLE rate_limit_leases (
    scope        text        NOT NULL,                      -- `account 7` or `key <id>`
    id           uuid        NOT NULL,
    permits      integer     NOT NULL CHECK (permits >= 0),
    counts_until timestamptz NOT NULL,                      -- when the last of its requests is 60 seconds old
    PRIMARY KEY (scope, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
