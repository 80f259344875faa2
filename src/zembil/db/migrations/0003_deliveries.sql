-- Deliveries made by hand, test events, and a feed of events that can be followed without missing one.

-- `written_by` is the transaction that wrote an event. Ids are made before the transaction begins, so their order says
-- nothing of what may still come; a transaction older than every running one is over for good.
ALTER TABLE events
    ADD COLUMN is_test    boolean NOT NULL DEFAULT false,   -- tells of nothing that happened, and is not in the feed
    ADD COLUMN written_by bigint  NOT NULL DEFAULT (pg_current_xact_id()::text::bigint);
CREATE INDEX events_written ON events (account_id, written_by);

-- When a redelivery was asked for, in the account's time; every other delivery is as old as its event.
ALTER TABLE pending_deliveries ADD COLUMN redelivered_at timestamptz;
ALTER TABLE deliveries ADD COLUMN redelivered_at timestamptz;

-- The few that failed, and what was done about it.
CREATE INDEX deliveries_to_recover ON deliveries (account_id, endpoint_id, id)
    WHERE status = 'failed' OR redelivery_of IS NOT NULL;
