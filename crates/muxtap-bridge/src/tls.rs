//! Certificates: the configured one, or one generated for this machine.

use std::{ffi::OsString, fs, os::unix::fs::MetadataExt as _, path::Path};

use muxtap_net::tls::{self, CertificateFiles, GeneratedCertificate};
use tokio_rustls::TlsAcceptor;

use super::settings::{Tls, state_dir};

/// The certificate's directory, in muxtap's state directory. The daemon's certificates are
/// separate, since they may have other names; so a change of those does not affect the trust in
/// this one.
const DIR: &str = "bridge-tls";

/// Returns the TLS acceptor; `None` without encryption. `host`: the host on which the bridge
/// listens. Error: the reason why no acceptor could be created.
pub fn acceptor(
    settings: &Tls,
    host: &str,
    var: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<TlsAcceptor>, String> {
    let files = match settings {
        Tls::Off => return Ok(None),
        Tls::Files { key, cert } => {
            if !key.is_file() || !cert.is_file() {
                return Err(format!(
                    "HTTPS requested but key.pem/cert.pem not found (looked for {} and {}).",
                    key.display(),
                    cert.display()
                ));
            }
            for file in [key, cert] {
                let mode = fs::metadata(file).map_or(0, |found| found.mode() & 0o7777);
                if mode & 0o002 != 0 {
                    let file = file.display();
                    return Err(format!("cannot use {file}: every user can write it (mode {mode:04o}); chmod o-w it"));
                }
                if file == key && mode & 0o004 != 0 {
                    tracing::warn!("every user can read the key {} (mode {mode:04o}): chmod 600 it", file.display());
                }
            }
            CertificateFiles { cert: cert.clone(), key: key.clone() }
        }
        Tls::Own => made(host, var)?.files,
    };
    tls::acceptor(&files).map(Some).map_err(|error| error.message)
}

/// Returns this machine's certificate; generates it if it is missing.
pub fn made(host: &str, var: &dyn Fn(&str) -> Option<OsString>) -> Result<GeneratedCertificate, String> {
    let dir = state_dir(var)
        .map(|state| state.join(DIR))
        .ok_or("HTTPS requested, but neither XDG_STATE_HOME nor HOME names a directory for the certificate.")?;
    let is_elsewhere =
        host.parse().map_or(host != "localhost", |ip: std::net::IpAddr| !ip.is_loopback() && !ip.is_unspecified());
    let names = if is_elsewhere { vec![host.to_owned()] } else { Vec::new() };
    tls::load_or_generate(&dir, &names).map_err(|error| error.message)
}

/// Returns the text that explains how to trust an authority on each system.
pub fn how_to_trust(authority: &Path) -> String {
    let ca = authority.display();
    format!(
        "The bridge's certificate is signed by an authority that was created on this machine, for this machine only:

  {ca}

It is limited to localhost, 127.0.0.1, ::1 and the HOST of the bridge, and its key was discarded after it signed that
one certificate. Browsers and Excel accept the bridge when the system trusts it:

Debian, Ubuntu (and WSL, for programs that run there):
  sudo cp {ca} /usr/local/share/ca-certificates/muxtap-bridge.crt
  sudo update-ca-certificates

Fedora:
  sudo cp {ca} /etc/pki/ca-trust/source/anchors/muxtap-bridge.pem
  sudo update-ca-trust

Chromium and Chrome on Linux use their own list (package libnss3-tools or nss-tools):
  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n muxtap-bridge -i {ca}

macOS (Safari, Chrome, Excel):
  security add-trusted-cert -r trustRoot -k ~/Library/Keychains/login.keychain-db {ca}

Windows (Edge, Chrome, Excel), when the bridge runs in WSL; in PowerShell, as yourself:
  certutil.exe -user -addstore Root (wsl.exe wslpath -w {ca})

Firefox, where it does not use the system's list: Settings, Privacy & Security, View Certificates, Authorities,
Import, {ca}, \"Trust this CA to identify websites\".
"
    )
}
