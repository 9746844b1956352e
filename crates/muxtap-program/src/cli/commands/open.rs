//! `open`: the page with all panes, in a browser.

use std::{
    io::IsTerminal as _,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    process::Stdio,
    time::Duration,
};

use clap::Args;
use muxtap_base::files::{self, Existing};
use qrcode::{QrCode, render::unicode};

use crate::{
    api::{Error, ErrorCode, PageCode, PageCodeRequest, Result},
    cli::{Outcome, caller::Caller, output},
};

/// How long to wait for the program that opens a browser; it continues to run afterwards.
const OPENER_LIMIT: Duration = Duration::from_secs(10);

/// Show all panes in a browser
///
/// Prints a link and opens the page: live views of all panes that muxtap follows, input to one of
/// them, agents' questions, and a workspace. The link works once, within a minute; the browser
/// stays logged in for 30 days after its last visit. Without a TCP port, the daemon opens one on a
/// loopback address while it runs.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap open
  muxtap open --print                 a link for a browser that you open yourself
  muxtap open --read-only --print     a link that can only read
  muxtap open --qr                    for a phone on this network; needs TLS
  muxtap open --revoke                log every browser out")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(in crate::cli) struct Open {
    /// Create a link that can only read
    #[arg(long)]
    read_only: bool,
    /// Print the link without opening a browser
    #[arg(long)]
    print: bool,
    /// Print the link as a QR code, for another device on this network
    ///
    /// Only if muxtap listens beyond this machine, which requires TLS.
    #[arg(long)]
    qr: bool,
    /// Log every browser out and revoke all links
    #[arg(long, conflicts_with_all = ["read_only", "print", "qr"])]
    revoke: bool,
}

impl Open {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let request = PageCodeRequest { read_only: self.read_only, revoke: self.revoke };
        let mut client = caller.client().await?;
        let link: PageCode = client.post("/v1/page/codes", &request).await?;
        if self.revoke {
            if caller.json {
                output::print_json(&serde_json::json!({ "revoked": link.revoked }))?;
            } else {
                output::print(format!("logged out {} browsers\n", link.revoked))?;
            }
            return Ok(0);
        }
        let base = if self.qr { far(&link.urls)? } else { near(&link.urls)? };
        let url = format!("{base}/#code={}", link.code);
        if caller.json {
            output::print_json(&serde_json::json!({ "url": url, "read_only": self.read_only }))?;
        } else {
            output::print(format!("{url}\n"))?;
        }
        if self.qr {
            let code =
                QrCode::new(&url).map_err(|error| Error::internal(format!("cannot draw the QR code: {error}")))?;
            let drawn = code.render::<unicode::Dense1x2>().build();
            if !caller.json {
                output::print(in_ink(&drawn, std::io::stdout().is_terminal()))?;
            }
        } else if !self.print && !caller.json {
            let file = caller.paths.page_link_file();
            if let Err(error) = open_browser(&file, &url).await {
                output::note(&format!("cannot open a browser ({error}); open the link yourself"));
            }
        }
        Ok(0)
    }
}

/// Returns the lines of a QR code; on a terminal dark on white, whatever its colors: some readers
/// reject light on dark.
fn in_ink(drawn: &str, is_terminal: bool) -> String {
    let (ink, end) = if is_terminal { ("\x1b[38;5;16;48;5;231m", "\x1b[m") } else { ("", "") };
    drawn.lines().flat_map(|line| [ink, line, end, "\n"]).collect()
}

/// Returns the address for a browser on this machine.
fn near(urls: &[String]) -> Result<String> {
    let reached = |url: &&String| address(url).is_none_or(|addr| addr.ip().is_loopback());
    if let Some(url) = urls.iter().find(reached) {
        return Ok(url.clone());
    }
    let any = urls.iter().find_map(|url| {
        let addr = address(url)?;
        Some(if addr.ip().is_unspecified() { with_ip(url, addr, [127, 0, 0, 1].into()) } else { url.clone() })
    });
    any.ok_or_else(|| Error::internal("the daemon returned no address"))
}

/// Returns the address for another machine on this network.
fn far(urls: &[String]) -> Result<String> {
    let found = urls.iter().filter(|url| url.starts_with("https:")).find_map(|url| {
        let addr = address(url)?;
        match addr.ip() {
            ip if ip.is_loopback() => None,
            ip if ip.is_unspecified() => Some(with_ip(url, addr, own_ip()?)),
            _ => Some(url.clone()),
        }
    });
    found.ok_or_else(|| {
        Error::new(
            ErrorCode::InvalidArgument,
            "--qr: muxtap listens only on this machine. To listen beyond it, which requires TLS, set \
             `http = [\"0.0.0.0:7717\"]` and `tls = true` in the configuration (`muxtap config`), and restart the \
             daemon with `muxtap stop`. The other device must trust tls/ca.pem, next to the log",
        )
    })
}

fn address(url: &str) -> Option<SocketAddr> {
    url.split_once("://")?.1.trim_end_matches('/').parse().ok()
}

fn with_ip(url: &str, addr: SocketAddr, ip: IpAddr) -> String {
    let scheme = url.split("://").next().unwrap_or("http");
    format!("{scheme}://{}", SocketAddr::new(ip, addr.port()))
}

/// Returns the source address for other networks. Sends nothing.
fn own_ip() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address reserved for documentation (RFC 5737).
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// Opens a browser, with a file that redirects to the link: all users of the machine can read a
/// program's arguments.
async fn open_browser(file: &Path, url: &str) -> Result<()> {
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>muxtap</title><meta http-equiv=\"refresh\" content=\"0;url={url}\">\
         <a href=\"{url}\">muxtap</a>"
    );
    files::write_secret(file, &page, Existing::Replace)
        .map_err(|error| Error::internal(format!("{}: {error}", file.display())))?;
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let child = tokio::process::Command::new(opener)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| Error::not_found(format!("{opener}: {error}")))?;
    match tokio::time::timeout(OPENER_LIMIT, child.wait()).await {
        Ok(Ok(status)) if !status.success() => Err(Error::internal(format!("{opener}: {status}"))),
        // Some openers become the browser.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qr_code_is_dark_on_white_on_any_terminal() {
        assert_eq!(in_ink("██\n▀▄", true), "\x1b[38;5;16;48;5;231m██\x1b[m\n\x1b[38;5;16;48;5;231m▀▄\x1b[m\n");
        assert_eq!(in_ink("██\n▀▄", false), "██\n▀▄\n");
    }

    #[test]
    fn links_lead_to_where_the_browser_is() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let all = urls(&["https://10.0.0.5:7717", "http://127.0.0.1:7718"]);
        assert_eq!(near(&all).unwrap(), "http://127.0.0.1:7718");
        assert_eq!(far(&all).unwrap(), "https://10.0.0.5:7717");
        assert_eq!(near(&urls(&["https://0.0.0.0:1"])).unwrap(), "https://127.0.0.1:1");
        assert!(far(&urls(&["http://127.0.0.1:7718", "https://127.0.0.1:7719"])).is_err());
    }
}
