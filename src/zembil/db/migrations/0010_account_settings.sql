-- What an admin settles under Settings → Account.

ALTER TABLE merchants
    ADD COLUMN name_am   text CHECK (char_length(name_am) BETWEEN 1 AND 200),   -- for pages in Amharic
    ADD COLUMN time_zone text NOT NULL DEFAULT 'Africa/Addis_Ababa';

ALTER TABLE accounts
    ADD COLUMN payment_lifetime_seconds integer NOT NULL DEFAULT 3600
                                        CHECK (payment_lifetime_seconds BETWEEN 300 AND 2592000),
    ADD COLUMN self_approval_asked_by   uuid REFERENCES users,   -- who asked for the other setting; a second admin agrees
    ADD COLUMN self_approval_asked_at   timestamptz,
    ADD CONSTRAINT accounts_self_approval_asked
        CHECK ((self_approval_asked_by IS NULL) = (self_approval_asked_at IS NULL));
