//! Rules act for the user: an agent adds and removes none.

use serde_json::json;

use super::{Session, world};
use crate::common::eventually;

/// WN9: neither through a process that the agent started, nor in its terminals.
#[test]
#[cfg(target_os = "linux")]
fn an_agents_processes_and_terminals_add_and_remove_no_rule() {
    let world = world();
    let session = Session::new(&world);
    let program = world.plain_muxtap_command().get_program().to_str().unwrap().to_owned();
    let muxtap = format!("MUXTAP_SOCKET={} {program}", world.daemon_socket().display());
    let work = world.path("work").display().to_string();
    let rule = |name: &str| json!({ "name": name, "ended": true, "notify": true });
    assert_eq!(world.http("POST", "/v1/when", Some(&rule("users"))).status, 200);
    std::fs::write(world.path("work/rule"), "name='agents'\nended=true\nrun=['true']\n").unwrap();
    let tries = |name: &str| {
        format!(
            "cd {work}; until [ -e go ]; do sleep 0.05; done; {{ {muxtap} when add rule; echo $?; {muxtap} when remove users; echo $?; }} > {name} 2>&1; \
             mv {name} {name}.done"
        )
    };
    session.send(&format!("background {}\nopen {}\nask build", tries("child"), tries("terminal")));
    // The question follows the terminal, and keeps the turn open.
    session.question();
    std::fs::write(world.path("work/go"), "").unwrap();
    for name in ["child.done", "terminal.done"] {
        let said = world.path("work").join(name);
        eventually("both are tried", || said.exists());
        let said = std::fs::read_to_string(said).unwrap();
        let refused = said.matches("comes from a process that an agent of this muxtap started").count();
        assert!(refused == 2 && said.matches("\n1\n").count() == 2, "{name}: {said}");
    }
    let rules = world.http("GET", "/v1/when", None).json()["rules"].clone();
    assert_eq!((rules.as_array().unwrap().len(), &rules[0]["rule"]["name"]), (1, &json!("users")), "{rules}");
    session.kill();
}
