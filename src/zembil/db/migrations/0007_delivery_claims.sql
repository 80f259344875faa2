-- A row of the queue is either waiting or in flight, and each has an index of its own: what is due is found without
-- passing over what is in flight, and what is in flight is counted without reading what waits.
DROP INDEX pending_deliveries_due;
CREATE INDEX pending_deliveries_due ON pending_deliveries (account_id, endpoint_id, due_at) WHERE in_flight_until IS NULL;
CREATE INDEX pending_deliveries_in_flight ON pending_deliveries (account_id, endpoint_id)
    WHERE in_flight_until IS NOT NULL;

-- How far back history reaches: everything told before has been dropped, by the month.
CREATE TABLE dropped_months (
    until      timestamptz PRIMARY KEY,                     -- the first instant that is kept
    dropped_at timestamptz NOT NULL DEFAULT now()
);
