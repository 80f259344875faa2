-- Who did what that somebody may have to answer for, and refunds that an operator has to see to.

-- Written once, in the transaction of what it tells of. An entry's id is of the database's time, which is when it was.
-- The worker then puts each account's entries in a chain: a seal is the SHA-256 of the seal before and of the entry, so
-- none can be changed or taken out of the middle unseen. Sealing apart lets those who write not wait for each other.
CREATE TABLE audit_entries (
    account_id bigint NOT NULL REFERENCES accounts,
    id         uuid   NOT NULL,
    actor_kind text   NOT NULL CHECK (actor_kind IN ('user', 'operator', 'system')),
    actor      text   NOT NULL,                             -- usr_…, or an operator's name
    key_id     uuid,                                        -- the API key through which a user did it
    action     text   NOT NULL,
    object     text   NOT NULL,                             -- the id of what it was done to, as it is shown
    details    jsonb  NOT NULL DEFAULT '{}',                -- never a secret
    number     bigint,                                      -- its place in the chain
    seal       bytea  CHECK (octet_length(seal) = 32),
    PRIMARY KEY (account_id, id),
    UNIQUE (account_id, number),
    CHECK ((number IS NULL) = (seal IS NULL))
);
CREATE INDEX audit_entries_to_seal ON audit_entries (account_id, id) WHERE number IS NULL;

-- No program of ours changes an entry; unless it connects as a superuser, none can.
REVOKE UPDATE, DELETE, TRUNCATE ON audit_entries FROM CURRENT_USER;
GRANT UPDATE (number, seal) ON audit_entries TO CURRENT_USER;

ALTER TABLE refunds
    ADD COLUMN sent_in_vain    smallint NOT NULL DEFAULT 0, -- how often it certainly did not arrive
    ADD COLUMN late_success_at timestamptz;                 -- when the rail said that it went, after it had failed
-- One that failed may be made again, by an operator.
DROP INDEX refunds_of_surplus;
CREATE UNIQUE INDEX refunds_of_surplus ON refunds (account_id, charge_id) WHERE of_surplus AND state <> 'failed';
CREATE INDEX refunds_doubtful ON refunds (account_id, id)
    WHERE state IN ('in_doubt', 'needs_review') OR (state = 'failed' AND (of_surplus OR late_success_at IS NOT NULL));
