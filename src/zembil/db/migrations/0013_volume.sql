-- The money of completed payments, counted where the payments are: by the hour in which they were created.
ALTER TABLE payment_counts ADD COLUMN completed_santim bigint NOT NULL DEFAULT 0;
INSERT INTO payment_counts AS c (account_id, hour, slot, completed_santim)
SELECT account_id, hour, 0, sum(amount_santim) FROM (
    SELECT account_id, amount_santim, unnest(ARRAY['-infinity', date_trunc('hour', to_timestamp(
        ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000))]) AS hour
    FROM payments WHERE status = 'completed'
) completed GROUP BY account_id, hour
ON CONFLICT (account_id, hour, slot) DO UPDATE SET completed_santim = excluded.completed_santim;
