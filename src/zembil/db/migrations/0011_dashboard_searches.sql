-- What the dashboard looks for.

-- A customer by e-mail or phone.
CREATE INDEX customers_email ON customers (account_id, email, id) WHERE email IS NOT NULL;
CREATE INDEX customers_phone ON customers (account_id, phone, id) WHERE phone IS NOT NULL;

-- Every delivery of an event. The first ones have ids of the event's millisecond; these are the others.
CREATE INDEX pending_deliveries_again ON pending_deliveries (account_id, event_id) WHERE redelivery_of IS NOT NULL;
CREATE INDEX deliveries_again ON deliveries (account_id, event_id) WHERE redelivery_of IS NOT NULL;
