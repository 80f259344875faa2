-- Refunds that are not over: few among all, and counted whenever somebody looks at the metrics.
CREATE INDEX refunds_open ON refunds (account_id, state) WHERE state NOT IN ('completed', 'failed');
