//! The requests that a replaced daemon may pass on.

use axum::http::Method;

/// The routes whose handlers do not look at the caller's process, with their methods. The next daemon
/// would take this one for that process: an agent could answer its own question through it. So a route
/// that is not listed is not passed on.
const PASSED_ON: [(&str, &str); 62] = [
    ("/", "GET"),
    ("/docs", "GET"),
    ("/health", "GET"),
    ("/metrics", "GET"),
    ("/openapi.json", "GET"),
    ("/page/{file}", "GET"),
    ("/v1/agent-sessions", "GET"),
    ("/v1/agent-sessions/earlier", "POST"),
    ("/v1/agent-sessions/{id}", "GET DELETE"),
    ("/v1/agent-sessions/{id}/events", "GET"),
    ("/v1/agent-sessions/{id}/interrupt", "POST"),
    ("/v1/agent-sessions/{id}/prompts", "POST"),
    ("/v1/agent-sessions/{id}/questions", "GET"),
    ("/v1/agent-sessions/{id}/stream", "GET"),
    ("/v1/agent-sessions/{id}/wait", "POST"),
    ("/v1/agents", "GET"),
    ("/v1/capability", "POST"),
    ("/v1/config", "GET"),
    ("/v1/environment", "GET"),
    ("/v1/events", "GET"),
    ("/v1/format", "GET"),
    ("/v1/groups", "GET"),
    ("/v1/groups/{name}", "PUT DELETE"),
    ("/v1/groups/{name}/input", "POST"),
    ("/v1/hosts", "GET POST"),
    ("/v1/hosts/{name}", "DELETE"),
    ("/v1/layouts", "GET POST"),
    ("/v1/layouts/{name}", "DELETE"),
    ("/v1/layouts/{name}/restore", "POST"),
    ("/v1/page/codes", "POST"),
    ("/v1/page/files", "GET PUT"),
    ("/v1/page/login", "POST"),
    ("/v1/page/logout", "POST"),
    ("/v1/panes", "GET POST"),
    ("/v1/panes/{id}", "GET PATCH DELETE"),
    ("/v1/panes/{pane}/agent", "GET"),
    ("/v1/panes/{pane}/alis", "GET"),
    ("/v1/panes/{pane}/capture", "GET"),
    ("/v1/panes/{pane}/commands", "GET"),
    ("/v1/panes/{pane}/format", "GET"),
    ("/v1/panes/{pane}/input", "POST"),
    ("/v1/panes/{pane}/output", "GET"),
    ("/v1/panes/{pane}/run", "POST"),
    ("/v1/recordings", "GET POST"),
    ("/v1/recordings/{id}", "GET DELETE"),
    ("/v1/servers", "GET"),
    ("/v1/sessions", "GET POST"),
    ("/v1/sessions/{id}", "GET PATCH DELETE"),
    ("/v1/snapshots", "GET POST"),
    ("/v1/snapshots/{name}", "GET PUT DELETE"),
    ("/v1/snapshots/{name}/diff", "GET"),
    ("/v1/snapshots/{name}/restore", "POST"),
    ("/v1/status", "GET"),
    ("/v1/status/events", "GET"),
    ("/v1/stop", "POST"),
    ("/v1/tools/{name}", "POST"),
    ("/v1/waits", "GET POST"),
    ("/v1/waits/{id}", "GET DELETE"),
    ("/v1/when", "GET"),
    ("/v1/when-log", "GET"),
    ("/v1/windows", "GET POST"),
    ("/v1/windows/{id}", "GET PATCH DELETE"),
];

/// Returns whether a request may be passed on to the daemon that has taken over.
pub(super) fn may_be_passed_on(method: &Method, path: &str) -> bool {
    // A GET route also handles HEAD.
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    PASSED_ON.iter().any(|(route, methods)| *route == path && methods.split(' ').any(|one| one == method))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The others: their handlers look at the caller's process, or the connection becomes another one.
    const OWN: [(&str, &str); 21] = [
        ("/api/device-sessions", "POST"),
        ("/api/device-sessions/current", "DELETE"),
        ("/api/device-sessions/refresh", "POST"),
        ("/v1/agent-sessions", "POST"),
        ("/v1/agent-sessions/{id}", "PATCH"),
        ("/v1/agent-sessions/{id}/questions/{question}", "POST"),
        ("/v1/approvals", "GET"),
        ("/v1/approvals/events", "GET"),
        ("/v1/approvals/{id}", "POST"),
        ("/v1/devices", "GET"),
        ("/v1/devices/ws", "GET"),
        ("/v1/devices/{id}", "GET"),
        ("/v1/devices/{id}/rpc", "POST"),
        ("/v1/devices/{id}/workspace", "GET PUT"),
        ("/v1/mcp", "GET"),
        ("/v1/page/ws", "GET"),
        ("/v1/panes/{pane}/agent", "POST"),
        ("/v1/peer", "GET"),
        ("/v1/stream", "GET"),
        ("/v1/when", "POST"),
        ("/v1/when/{name}", "DELETE"),
    ];

    fn each(routes: &[(&'static str, &'static str)]) -> BTreeSet<(&'static str, &'static str)> {
        let each = routes.iter().flat_map(|(path, methods)| methods.split(' ').map(|method| (*path, method)));
        each.collect()
    }

    /// T58.
    #[test]
    fn it_is_decided_for_each_route_whether_it_may_be_passed_on() {
        let source = include_str!("../lib.rs");
        let mut routes = BTreeSet::new();
        for route in source.split(".route(\"").skip(1) {
            let (path, handlers) = route.split_once('"').unwrap();
            let handlers = handlers.lines().next().unwrap();
            for (call, method) in
                [("get(", "GET"), ("post(", "POST"), ("put(", "PUT"), ("patch(", "PATCH"), ("delete(", "DELETE")]
            {
                if [" ", ".", "::"].iter().any(|before| handlers.contains(&format!("{before}{call}"))) {
                    routes.insert((path, method));
                }
            }
        }
        // They are not held back.
        routes.retain(|(path, _)| !super::super::OWN.contains(path));
        let (passed, own) = (each(&PASSED_ON), each(&OWN));
        assert!(passed.is_disjoint(&own));
        assert_eq!(passed.union(&own).copied().collect::<BTreeSet<_>>(), routes);
        for (path, method) in passed {
            assert!(may_be_passed_on(&method.parse().unwrap(), path), "{method} {path}");
        }
        for (path, method) in own.into_iter().chain([("/mcp", "POST"), ("/mcp", "GET"), ("unknown route", "GET")]) {
            assert!(!may_be_passed_on(&method.parse().unwrap(), path), "{method} {path}");
        }
        assert!(may_be_passed_on(&Method::HEAD, "/v1/panes") && !may_be_passed_on(&Method::HEAD, "/v1/approvals"));
    }
}
