<?php
// Is this request an event from Zembil? $headers have lower-case names, $body is file_get_contents('php://input').

// Whether the webhook-signature is right, and not older than five minutes: a copy sent later is refused.
function is_genuine(string $secret, array $headers, string $body, ?int $now = null): bool
{
    $sent_at = $headers['webhook-timestamp'] ?? '';
    $key = base64_decode(substr($secret, strlen('whsec_')));
    $signed = ($headers['webhook-id'] ?? '') . ".$sent_at.$body";
    $expected = 'v1,' . base64_encode(hash_hmac('sha256', $signed, $key, true));
    $given = explode(' ', $headers['webhook-signature'] ?? '');
    $right = array_filter($given, fn (string $one): bool => hash_equals($expected, $one));
    return $right !== [] && abs(($now ?? time()) - (int) $sent_at) <= 300;
}

// Whether the zembil-signature is right. It does not cover the time: keep the ids of events and drop repeats.
function has_zembil_signature(string $secret, array $headers, string $body): bool
{
    $digest = hash_hmac('sha256', $body, $secret);
    $expected = 't=' . ($headers['zembil-timestamp'] ?? '') . ",v1=$digest";
    return hash_equals($expected, $headers['zembil-signature'] ?? '')
        || hash_equals($expected, $headers['zembil-signature-next'] ?? '');
}
