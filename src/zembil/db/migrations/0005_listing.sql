-- The list of payments by reference shows also those that have failed or were cancelled, whose references are free again.
CREATE INDEX payments_every_reference ON payments (account_id, reference, id) WHERE reference IS NOT NULL;
