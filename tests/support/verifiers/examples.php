<?php
// Reads cases from standard input and answers what examples/webhooks/verify.php says of each.
require __DIR__ . '/../../../examples/webhooks/verify.php';

$cases = json_decode(file_get_contents('php://stdin'), true, flags: JSON_THROW_ON_ERROR);
echo json_encode(array_map(fn (array $case): array => [
    is_genuine($case['secret'], $case['headers'], $case['body'], $case['now']),
    has_zembil_signature($case['secret'], $case['headers'], $case['body']),
], $cases));
