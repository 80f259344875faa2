-- What was asked of the API, for its merchant to look up. The id is the request's own, which every answer carries, and
-- begins with the time: rows stand in partitions of a day, which are dropped when they are old.
CREATE TABLE api_requests (
    account_id      bigint   NOT NULL,
    id              uuid     NOT NULL,
    key_id          uuid     NOT NULL,
    method          text     NOT NULL,
    path            text     NOT NULL,
    query           text,
    status          smallint NOT NULL,
    duration_ms     integer  NOT NULL,
    idempotency_key text,
    object_id       text,                                   -- what was made or changed: pay_…, ref_…
    request_body    text,                                   -- redacted
    refusal         text,                                   -- the answer, where it was no success
    PRIMARY KEY (account_id, id)
) PARTITION BY RANGE (id);
CREATE INDEX api_requests_idempotency_key ON api_requests (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX api_requests_object ON api_requests (account_id, object_id, id) WHERE object_id IS NOT NULL;
CREATE INDEX api_requests_refused ON api_requests (account_id, id) WHERE status >= 400;
