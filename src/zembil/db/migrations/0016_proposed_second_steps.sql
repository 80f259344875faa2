-- A secret for the second step waits in the session that began to set it up, not with the person: of two sessions none
-- confirms the other's.
ALTER TABLE sessions
    ADD COLUMN proposed_totp bytea;                         -- sealed, bound to this row
UPDATE users SET sealed_totp = NULL WHERE totp_since IS NULL AND sealed_totp IS NOT NULL;
