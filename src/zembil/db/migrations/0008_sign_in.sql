-- People sign in: e-mail and password, a second step, sessions, and links that work once.

-- A user without a password was invited and has not come yet, or exists only as the name behind keys.
ALTER TABLE users
    ADD COLUMN email             text CHECK (char_length(email) <= 254),   -- in lower case
    ADD COLUMN password_hash     text,
    ADD COLUMN sealed_totp       bytea,                     -- the secret of the second step, bound to this row
    ADD COLUMN totp_since        timestamptz,               -- when it was confirmed; before that it is not asked for
    ADD COLUMN totp_last_step    bigint   NOT NULL DEFAULT 0,   -- of the last code that was accepted: each works once
    ADD COLUMN totp_failed       smallint NOT NULL DEFAULT 0,   -- wrong codes in a row
    ADD COLUMN totp_locked_until timestamptz,
    ADD COLUMN removed_at        timestamptz,
    ADD CONSTRAINT users_totp CHECK (totp_since IS NULL OR sealed_totp IS NOT NULL);
CREATE UNIQUE INDEX users_email ON users (email) WHERE email IS NOT NULL AND removed_at IS NULL;

CREATE TABLE recovery_codes (                               -- instead of a code, once each, when the phone is lost
    user_id   uuid  NOT NULL REFERENCES users,
    code_hash bytea NOT NULL CHECK (octet_length(code_hash) = 32),
    PRIMARY KEY (user_id, code_hash)
);

CREATE TABLE sessions (
    token_hash      bytea       PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    id              uuid        NOT NULL UNIQUE,            -- by which it is listed and ended
    user_id         uuid        NOT NULL REFERENCES users,
    awaits_code     boolean     NOT NULL,                   -- the first step is done, the second is not
    has_second_step boolean     NOT NULL,
    address         text        NOT NULL,
    browser         text        NOT NULL,
    seen_at         timestamptz NOT NULL DEFAULT now(),     -- to the minute
    expires_at      timestamptz NOT NULL,
    CHECK (NOT (awaits_code AND has_second_step))
);
CREATE INDEX sessions_user ON sessions (user_id, id);
CREATE INDEX sessions_expired ON sessions (expires_at);

CREATE TABLE user_links (                                   -- deleted when used
    token_hash bytea       PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    user_id    uuid        NOT NULL REFERENCES users,
    kind       text        NOT NULL CHECK (kind IN ('sign_in', 'invitation', 'password_reset')),
    expires_at timestamptz NOT NULL
);
CREATE INDEX user_links_user ON user_links (user_id);
CREATE INDEX user_links_expired ON user_links (expires_at);

-- Sign-ins that have not succeeded. Not logged: after a crash of PostgreSQL the count begins anew.
CREATE UNLOGGED TABLE failed_sign_ins (
    scope     bytea       NOT NULL CHECK (octet_length(scope) = 32),    -- an e-mail or an address, hashed
    failed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX failed_sign_ins_scope ON failed_sign_ins (scope, failed_at);
CREATE INDEX failed_sign_ins_age ON failed_sign_ins (failed_at);
