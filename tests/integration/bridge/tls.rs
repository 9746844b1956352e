//! HTTPS with a configured certificate and with a generated one.

use std::path::Path;

use serde_json::Value;

use crate::common::{World, is_installed, run};

use super::{Bridge, ORIGIN, command};

/// Sends a request by curl, which checks the certificate against this authority.
fn curl(world: &World, ca: &Path, url: &str) -> crate::common::Answer {
    let mut curl = world.command("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "20", "--header"])
        .arg(format!("Origin: {ORIGIN}"));
    run(curl.arg("--cacert").arg(ca).arg(url))
}

#[test]
fn a_certificate_is_made_and_trusted_by_its_authority() {
    let world = World::new();
    let ca = world.path("state/muxtap/bridge-tls/ca.pem");
    for how in ["flag", "environment"] {
        let mut start = command(&world, &[("TMUX_BRIDGE_MODE", "stub")]);
        if how == "flag" {
            start.arg("--https");
        } else {
            start.env("HTTPS", "1");
        }
        let bridge = Bridge::start(&world, &mut start);
        assert_eq!(bridge.lines[0], format!("tmux bridge listening on https://localhost:{}", bridge.port));
        assert!(bridge.lines[2].starts_with("health: https://localhost:"));
        if !is_installed("curl") {
            return;
        }
        for host in ["localhost", "127.0.0.1"] {
            let health = curl(&world, &ca, &format!("https://{host}:{}/health", bridge.port));
            assert_eq!(health.text(), r#"{"ok":true,"mode":"stub","backend":"stub","sessions":0}"#, "{health:?}");
        }
        // Plain HTTP gets no response on that port, and affects no other client.
        let mut plain = bridge.client();
        plain.send("GET", "/health", &[("Origin", ORIGIN)], b"");
        assert!(plain.receive().is_none());
        assert_eq!(curl(&world, &ca, &format!("https://localhost:{}/health", bridge.port)).status, 0);
        assert_eq!(bridge.stop().status, 0);
    }
    // The instructions for trusting the certificate need no bridge, and name the file.
    let told = run(world.plain_muxtap_command().args(["bridge", "trust"]));
    assert_eq!(told.status, 0, "{told:?}");
    for word in [
        ca.to_str().unwrap(),
        "update-ca-certificates",
        "update-ca-trust",
        "security add-trusted-cert",
        "certutil.exe",
        "Firefox",
    ] {
        assert!(told.text().contains(word), "{word}: {}", told.text());
    }
}

#[test]
fn trust_makes_the_certificate_that_a_bridge_will_use() {
    let world = World::new();
    assert_eq!(run(world.plain_muxtap_command().args(["bridge", "trust"])).status, 0);
    let cert = world.path("state/muxtap/bridge-tls/cert.pem");
    let before = std::fs::read(&cert).unwrap();
    let bridge = Bridge::start(&world, command(&world, &[("TMUX_BRIDGE_MODE", "stub")]).arg("--https"));
    assert_eq!(std::fs::read(&cert).unwrap(), before);
    drop(bridge);
}

#[test]
fn certificates_that_are_given_are_used() {
    let world = World::new();
    if !is_installed("curl") || !is_installed("openssl") {
        return;
    }
    let dir = world.path("certs");
    std::fs::create_dir(&dir).unwrap();
    let made = run(world.command("openssl").current_dir(&dir).args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]));
    assert_eq!(made.status, 0, "{made:?}");
    let (dir_text, key, cert) = (dir.display().to_string(), dir.join("key.pem"), dir.join("cert.pem"));
    let one_by_one =
        [("PI_FOR_EXCEL_KEY_PATH", key.to_str().unwrap()), ("PI_FOR_EXCEL_CERT_PATH", cert.to_str().unwrap())];
    for vars in [&[("PI_FOR_EXCEL_CERT_DIR", dir_text.as_str())][..], &one_by_one] {
        let bridge = Bridge::start(&world, command(&world, vars).env("TMUX_BRIDGE_MODE", "stub").arg("--https"));
        let health = curl(&world, &cert, &format!("https://localhost:{}/health", bridge.port));
        assert_eq!(health.json()["mode"], Value::from("stub"), "{health:?}");
    }
    assert!(!world.path("state/muxtap/bridge-tls").exists(), "none is made");
}
