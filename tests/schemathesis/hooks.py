"""What generated requests are kept from: waiting longer than the test has patience."""

import schemathesis

PATIENCE_MS = 300
# A longer time must be refused immediately.
LONGEST_MS = 86_400_000


@schemathesis.hook
def map_body(context, body):
    path = context.operation.path
    if isinstance(body, dict) and (path.endswith("/run") or path == "/v1/waits"):
        limit = body.get("timeout_ms")
        # A value that is not a number of milliseconds is kept: it must be refused.
        if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and PATIENCE_MS < limit <= LONGEST_MS):
            body = {**body, "timeout_ms": PATIENCE_MS}
    return body


@schemathesis.hook
def map_query(context, query):
    if query:
        for name in ("timeout_ms", "wait_ms"):
            limit = query.get(name)
            if isinstance(limit, int) and not isinstance(limit, bool) and PATIENCE_MS < limit <= LONGEST_MS:
                query[name] = PATIENCE_MS
    return query
