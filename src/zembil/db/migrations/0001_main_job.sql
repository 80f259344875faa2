-- Directory tables: found by a key of their own; few rows, read by everyone.

CREATE TABLE merchants (
    id   uuid PRIMARY KEY,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200)
);

CREATE TABLE accounts (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant_id       uuid     NOT NULL REFERENCES merchants,
    livemode          boolean  NOT NULL,
    clock_offset      interval NOT NULL DEFAULT '0' CHECK (clock_offset >= '0'),
    clock_advanced_at timestamptz,
    UNIQUE (merchant_id, livemode),
    CHECK (NOT livemode OR clock_offset = '0')
);

CREATE INDEX accounts_advanced ON accounts (clock_advanced_at) WHERE clock_advanced_at IS NOT NULL;

CREATE TABLE api_keys (
    secret_hash  bytea  PRIMARY KEY CHECK (octet_length(secret_hash) = 32),
    id           uuid   NOT NULL UNIQUE,
    account_id   bigint NOT NULL REFERENCES accounts,
    name         text   NOT NULL,
    role         text   NOT NULL CHECK (role IN ('admin', 'developer', 'read_only')),
    last_four    text   NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz
);
CREATE INDEX api_keys_account ON api_keys (account_id, id);

-- Account tables: led by account_id. An id is 48 bits of milliseconds and 80 random bits; its milliseconds are created_at.

CREATE TABLE payments (
    account_id            bigint      NOT NULL,
    id                    uuid        NOT NULL,
    amount_santim         bigint      NOT NULL CHECK (amount_santim BETWEEN 1 AND 99999999999),
    expires_at            timestamptz NOT NULL,
    due_at                timestamptz,                      -- when the worker has to push or expire it, in the database's time
    ended_at              timestamptz,
    customer_id           uuid,
    open_charge_id        uuid,                             -- the one charge that may still bring money
    transaction_id        uuid,
    link_secret           bytea       NOT NULL CHECK (octet_length(link_secret) = 16),
    sequence              smallint    NOT NULL DEFAULT 1,   -- of its last event
    charges_sent          smallint    NOT NULL DEFAULT 0 CHECK (charges_sent BETWEEN 0 AND 5),
    status                text        NOT NULL DEFAULT 'pending'
                                      CHECK (status IN ('pending', 'completed', 'failed', 'cancelled')),
    failure_code          text,
    cancellation_reason   text        CHECK (cancellation_reason IN ('customer', 'merchant', 'expired')),
    mobile_money_provider text,                             -- asked for at creation: the prompt is pushed at once
    email text, phone text, name text, description text, reference text, callback_url text,
    metadata              jsonb,
    PRIMARY KEY (account_id, id),
    CHECK ((status = 'pending') = (ended_at IS NULL)),
    CHECK ((status = 'completed') = (transaction_id IS NOT NULL)),
    CHECK ((status = 'failed') = (failure_code IS NOT NULL)),
    CHECK ((status = 'cancelled') = (cancellation_reason IS NOT NULL)),
    CHECK (status = 'pending' OR due_at IS NULL),
    CHECK (open_charge_id IS NULL OR due_at IS NULL)
) WITH (fillfactor = 85);
CREATE INDEX payments_status ON payments (account_id, status, id);
CREATE INDEX payments_due ON payments (due_at) WHERE due_at IS NOT NULL;
CREATE UNIQUE INDEX payments_reference ON payments (account_id, reference)
    WHERE reference IS NOT NULL AND status IN ('pending', 'completed');
CREATE INDEX payments_customer ON payments (account_id, customer_id, id) WHERE customer_id IS NOT NULL;
CREATE INDEX payments_phone ON payments (account_id, phone, id) WHERE phone IS NOT NULL;

CREATE TABLE charges (
    account_id     bigint      NOT NULL,
    id             uuid        NOT NULL,
    payment_id     uuid        NOT NULL,
    rail           text        NOT NULL,
    phone          text        NOT NULL,
    pushed         boolean     NOT NULL,                    -- asked for at creation; nobody is at a page
    state          text        NOT NULL CHECK (state IN ('submitting', 'awaiting_customer', 'in_progress', 'in_doubt',
                                                         'succeeded', 'failed', 'cancelled', 'needs_review')),
    failure_code   text,
    raw_code       text,                                    -- the rail's own word
    rail_reference text,                                    -- theirs; ours is the id
    prompted_at    timestamptz,                             -- payment.pending was told
    confirmed_at   timestamptz,                             -- payment.processing was told
    ended_at       timestamptz,
    ask_at         timestamptz,                             -- when the worker asks the rail, in the database's time
    asked          smallint    NOT NULL DEFAULT 0,          -- how often since it came in doubt
    PRIMARY KEY (account_id, id),
    FOREIGN KEY (account_id, payment_id) REFERENCES payments,
    CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (ended_at IS NOT NULL)),
    CHECK (ended_at IS NULL OR ask_at IS NULL)
);
CREATE UNIQUE INDEX charges_one_success ON charges (account_id, payment_id) WHERE state = 'succeeded';
CREATE UNIQUE INDEX charges_one_open ON charges (account_id, payment_id)
    WHERE state IN ('submitting', 'awaiting_customer', 'in_progress', 'in_doubt', 'needs_review');
CREATE INDEX charges_payment ON charges (account_id, payment_id);
CREATE INDEX charges_phone ON charges (account_id, phone, id);
CREATE UNIQUE INDEX charges_rail_reference ON charges (account_id, rail, rail_reference) WHERE rail_reference IS NOT NULL;
CREATE INDEX charges_due ON charges (ask_at) WHERE ask_at IS NOT NULL;

CREATE TABLE payment_counts (                               -- exact totals: sum over slots; '-infinity' is all time
    account_id bigint      NOT NULL,
    hour       timestamptz NOT NULL,
    slot       smallint    NOT NULL,
    pending    bigint      NOT NULL DEFAULT 0,
    completed  bigint      NOT NULL DEFAULT 0,
    failed     bigint      NOT NULL DEFAULT 0,
    cancelled  bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, hour, slot)
) WITH (fillfactor = 50);

CREATE TABLE webhook_endpoints (
    account_id    bigint  NOT NULL REFERENCES accounts,
    id            uuid    NOT NULL,
    url           text    NOT NULL,
    events        text[]  NOT NULL CHECK (cardinality(events) > 0),   -- {*} is every type
    description   text,
    enabled       boolean NOT NULL DEFAULT true,
    sealed_secret bytea   NOT NULL,
    PRIMARY KEY (account_id, id)
);

-- Events, deliveries and attempts are kept by month. Their ids carry the database's time, also in a sandbox whose clock
-- was moved, so a month is a month.

CREATE TABLE events (                                       -- append-only
    account_id bigint      NOT NULL,
    id         uuid        NOT NULL,
    object_id  uuid        NOT NULL,
    sequence   smallint    NOT NULL,
    type       text        NOT NULL,
    created_at timestamptz NOT NULL,                        -- in the account's time, as the payload shows it
    payload    bytea       NOT NULL,                        -- the bytes that every receiver gets
    PRIMARY KEY (account_id, id)
) PARTITION BY RANGE (id);
CREATE INDEX events_object ON events (account_id, object_id, sequence);

CREATE TABLE pending_deliveries (                           -- the queue: a row is something to send
    account_id      bigint      NOT NULL,
    endpoint_id     uuid        NOT NULL,
    id              uuid        NOT NULL,
    event_id        uuid        NOT NULL,
    due_at          timestamptz NOT NULL,                   -- of the next attempt, in the database's time
    attempts_made   smallint    NOT NULL DEFAULT 0 CHECK (attempts_made BETWEEN 0 AND 3),
    in_flight_until timestamptz,                            -- an attempt is under way, at the longest until then
    PRIMARY KEY (account_id, endpoint_id, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX pending_deliveries_due ON pending_deliveries (account_id, endpoint_id, due_at);

CREATE TABLE deliveries (                                   -- the last word on a delivery, written once
    account_id    bigint   NOT NULL,
    id            uuid     NOT NULL,
    endpoint_id   uuid     NOT NULL,
    event_id      uuid     NOT NULL,
    status        text     NOT NULL CHECK (status IN ('succeeded', 'failed', 'cancelled')),
    attempts_made smallint NOT NULL CHECK (attempts_made BETWEEN 0 AND 3),
    PRIMARY KEY (account_id, id)
) PARTITION BY RANGE (id);
CREATE INDEX deliveries_endpoint ON deliveries (account_id, endpoint_id, id);

CREATE TABLE delivery_attempts (                            -- written before it leaves, completed when it is over
    account_id    bigint      NOT NULL,
    delivery_id   uuid        NOT NULL,
    number        smallint    NOT NULL CHECK (number BETWEEN 1 AND 3),
    started_at    timestamptz NOT NULL,
    latency_ms    integer,
    status_code   smallint,
    error         text,                                     -- NULL with a status code: the receiver answered
    response_body bytea CHECK (octet_length(response_body) <= 4096),
    PRIMARY KEY (account_id, delivery_id, number)
) PARTITION BY RANGE (delivery_id);

-- A net below the months: a row whose month is missing is kept here and never lost.
CREATE TABLE events_default PARTITION OF events DEFAULT;
CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT;
CREATE TABLE delivery_attempts_default PARTITION OF delivery_attempts DEFAULT;
