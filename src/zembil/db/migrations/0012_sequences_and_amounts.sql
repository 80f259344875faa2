-- A customer is updated as often as its merchant likes, so the number of an event is as wide as the customer's own. A
-- payment and a refund have a few events each.
ALTER TABLE events ALTER COLUMN sequence TYPE integer;

-- What came is on record as soon as it came: another amount than the payment asks for waits for an operator.
ALTER TABLE charges
    DROP CONSTRAINT charges_surplus,
    ADD CONSTRAINT charges_surplus CHECK (state <> 'surplus' OR received_santim IS NOT NULL),
    ADD CONSTRAINT charges_received CHECK (received_santim IS NULL OR state IN ('surplus', 'needs_review'));
