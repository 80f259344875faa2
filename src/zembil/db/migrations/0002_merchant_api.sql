-- The whole merchant API: customers, refunds, the ledger, idempotency, keys that roll, endpoints that rotate.

-- People. Until they can sign in, a user is the person in whose name keys are made.
CREATE TABLE users (
    id          uuid PRIMARY KEY,
    merchant_id uuid NOT NULL REFERENCES merchants,
    name        text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    role        text NOT NULL CHECK (role IN ('admin', 'developer', 'read_only'))
);
CREATE INDEX users_merchant ON users (merchant_id, id);
INSERT INTO users (id, merchant_id, name, role) SELECT gen_random_uuid(), id, 'First admin', 'admin' FROM merchants;

ALTER TABLE accounts
    ADD COLUMN late_money          text    NOT NULL DEFAULT 'accept' CHECK (late_money IN ('accept', 'refund')),
    ADD COLUMN allow_self_approval boolean NOT NULL DEFAULT false;
UPDATE accounts SET allow_self_approval = true WHERE NOT livemode;

ALTER TABLE api_keys
    ADD COLUMN user_id      uuid REFERENCES users,
    ADD COLUMN rate_limit   integer CHECK (rate_limit > 0),
    ADD COLUMN last_used_at timestamptz,
    ADD COLUMN created_at   timestamptz NOT NULL DEFAULT now();
UPDATE api_keys k SET user_id = u.id FROM accounts a JOIN users u ON u.merchant_id = a.merchant_id WHERE a.id = k.account_id;
ALTER TABLE api_keys ALTER COLUMN user_id SET NOT NULL;

CREATE TABLE customers (
    account_id  bigint      NOT NULL REFERENCES accounts,
    id          uuid        NOT NULL,
    email text, phone text, name text, external_id text,
    metadata    jsonb       NOT NULL DEFAULT '{}',
    sequence    integer     NOT NULL DEFAULT 1,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (account_id, id),
    CHECK (email IS NOT NULL OR phone IS NOT NULL)
);
CREATE UNIQUE INDEX customers_external_id ON customers (account_id, external_id) WHERE external_id IS NOT NULL;

-- The refund bound stands on the payment's own row: reserved at creation, freed when a refund fails.
ALTER TABLE payments
    ADD COLUMN reserved_santim bigint NOT NULL DEFAULT 0,   -- of refunds that have not failed
    ADD COLUMN refunded_santim bigint NOT NULL DEFAULT 0,   -- of refunds that have completed
    ADD CONSTRAINT payments_refunds CHECK (0 <= refunded_santim AND refunded_santim <= reserved_santim
                                           AND reserved_santim <= amount_santim),
    ADD CONSTRAINT payments_refunds_completed CHECK (status = 'completed' OR reserved_santim = 0);

ALTER TABLE charges
    DROP CONSTRAINT charges_state_check,
    DROP CONSTRAINT charges_check,
    DROP CONSTRAINT charges_check1,
    ADD COLUMN received_santim bigint CHECK (received_santim > 0),   -- what a surplus charge brought
    ADD CONSTRAINT charges_state CHECK (state IN ('submitting', 'awaiting_customer', 'in_progress', 'in_doubt',
                                                  'needs_review', 'succeeded', 'failed', 'cancelled', 'surplus')),
    ADD CONSTRAINT charges_ended CHECK ((state IN ('succeeded', 'failed', 'cancelled', 'surplus')) = (ended_at IS NOT NULL)),
    ADD CONSTRAINT charges_surplus CHECK ((state = 'surplus') = (received_santim IS NOT NULL));
CREATE INDEX charges_surplus_due ON charges (account_id, id) WHERE state = 'surplus';

CREATE TABLE refunds (
    account_id      bigint   NOT NULL,
    id              uuid     NOT NULL,
    payment_id      uuid     NOT NULL,
    charge_id       uuid     NOT NULL,                      -- the charge whose money is returned
    of_surplus      boolean  NOT NULL DEFAULT false,        -- of money that was never the payment's
    amount_santim   bigint   NOT NULL CHECK (amount_santim > 0),
    state           text     NOT NULL CHECK (state IN ('pending_approval', 'approved', 'submitting', 'in_progress',
                                                       'in_doubt', 'needs_review', 'completed', 'failed')),
    reason          text,
    metadata        jsonb,
    failure_code    text,
    failure_message text,
    raw_code        text,
    rail_reference  text,
    requested_by    text     NOT NULL,                      -- a user, or `system`
    approved_by     text,
    self_approval   boolean  NOT NULL DEFAULT false,        -- whether the account allowed it then
    approved_at     timestamptz,
    submitted_at    timestamptz,                            -- when it was last sent, in the account's time
    taken_at        timestamptz,                            -- when the rail first said that it has it
    completed_at    timestamptz,
    sequence        smallint NOT NULL DEFAULT 1,
    ask_at          timestamptz,                            -- when the worker sends it or asks, in the database's time
    asked           smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, id),
    FOREIGN KEY (account_id, payment_id) REFERENCES payments,
    CHECK (approved_by IS NULL OR approved_by <> requested_by OR self_approval OR requested_by = 'system'),
    CHECK ((approved_by IS NULL) = (approved_at IS NULL)),
    CHECK (state IN ('pending_approval', 'failed') OR approved_by IS NOT NULL),
    CHECK ((state = 'completed') = (completed_at IS NOT NULL)),
    CHECK ((state = 'failed') = (failure_code IS NOT NULL))
);
CREATE INDEX refunds_payment ON refunds (account_id, payment_id, id);
CREATE INDEX refunds_state ON refunds (account_id, state, id);
CREATE INDEX refunds_due ON refunds (ask_at) WHERE ask_at IS NOT NULL;
CREATE UNIQUE INDEX refunds_of_surplus ON refunds (account_id, charge_id) WHERE of_surplus;

CREATE TABLE ledger_entries (                               -- append-only: one debit, one credit, one positive amount
    account_id    bigint      NOT NULL,
    id            uuid        NOT NULL,
    source_id     uuid        NOT NULL,                     -- the charge or the refund that it books
    kind          text        NOT NULL,
    debit         text        NOT NULL,
    credit        text        NOT NULL,
    amount_santim bigint      NOT NULL CHECK (amount_santim > 0),
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (account_id, id),
    UNIQUE (account_id, source_id, kind),
    CHECK (debit <> credit)
);

CREATE TABLE ledger_balances (                              -- kept by the statement that posts an entry
    account_id     bigint   NOT NULL,
    ledger_account text     NOT NULL,
    slot           smallint NOT NULL,
    debit_santim   bigint   NOT NULL DEFAULT 0,
    credit_santim  bigint   NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, ledger_account, slot)
) WITH (fillfactor = 50);

CREATE TABLE idempotency_keys (
    account_id  bigint      NOT NULL,
    key         text        NOT NULL,
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    resource_id uuid,                                       -- the payment that it created; its answer is made again
    status      smallint,                                   -- otherwise the answer is kept
    answer      bytea,
    is_sealed   boolean     NOT NULL DEFAULT false,         -- it holds a secret
    created_at  timestamptz NOT NULL,                       -- in the account's time; kept 24 hours
    PRIMARY KEY (account_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys USING brin (created_at) WITH (pages_per_range = 16);

ALTER TABLE webhook_endpoints
    ADD COLUMN sealed_next_secret bytea,                    -- during a rotation
    ADD COLUMN rotates_at         timestamptz,              -- when the next secret takes over
    ADD COLUMN failing_since      timestamptz,
    ADD COLUMN failed_in_a_row    integer NOT NULL DEFAULT 0;

ALTER TABLE pending_deliveries ADD COLUMN redelivery_of uuid;
ALTER TABLE deliveries ADD COLUMN redelivery_of uuid;
