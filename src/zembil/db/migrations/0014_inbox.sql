-- The sandbox's own receiver of webhooks: the last requests that came, to be looked at.

CREATE TABLE inboxes (                                      -- one per sandbox, made when somebody first looks
    account_id bigint PRIMARY KEY REFERENCES accounts,
    token      text   NOT NULL UNIQUE                       -- of its address
);

CREATE TABLE inbox_requests (                               -- the last hundred of each
    account_id bigint NOT NULL REFERENCES inboxes,
    id         uuid   NOT NULL,                             -- begins with when it came
    headers    jsonb  NOT NULL,                             -- pairs of name and value, in their order
    body       bytea  NOT NULL,
    PRIMARY KEY (account_id, id)
);
