-- A customer is updated as often as its merchant likes, so the number of an event is as wide as the customer's own. A
-- payment and a refund have a few events each.
ALTER TABLE events ALTER COLUMN sequence TYPE integer;
