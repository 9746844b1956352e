//! The daemon's membership in a fleet (`docs/fleet.md`).

use std::{path::Path, sync::Arc};

use muxtap_engine::{Engine, FleetHosts, audit};
use muxtap_fleet::{Fleet, Member, Offered, Settings, State, audit::Log};
use muxtap_http as http;
use muxtap_peer::{Boxed, FleetStream, Peers};
use muxtap_tmux::Transport;

use crate::api::{Error, FleetHost, Result, Tier};

/// Joins the fleet, and copies the audit log there if the settings say so. `log`: its file.
///
/// It joins now or when it can be reached. From then on targets can name its hosts, and its
/// members can use this one as far as the settings offer.
pub(super) fn join(
    settings: &Settings,
    log: Option<&Path>,
    app: &http::App,
    peers: &Peers,
    engine: &Engine,
) -> Result<()> {
    let (spawner, known) = (engine.clone(), engine.clone());
    let routes = http::MemberRoutes::new(app.clone());
    let on_link = move |link| {
        let Offered { pipe, tier, member } = link;
        spawner.spawn(routes.clone().serve(pipe, member, tier));
    };
    let on_host = move |host: &Member| {
        // A host of the configuration has the name already, or too many are known.
        if let Err(error) = Transport::in_fleet(&host.name).and_then(|transport| known.add_transport(transport)) {
            tracing::debug!("fleet: {error}");
        }
    };
    let fleet = Fleet::join(settings.clone(), on_link, on_host, engine.end());
    let fleet = fleet.map_err(|error| Error::new(error.code, format!("[fleet] {error}")))?;
    // Requests that may name a host wait for this.
    engine.set_fleet_hosts(FleetHosts::Joining);
    let (known, mut state, end) = (engine.clone(), fleet.state(), engine.end());
    engine.spawn(async move {
        let joined = async {
            loop {
                match &*state.borrow_and_update() {
                    State::Connecting | State::Disconnected(_) => {}
                    State::Joined => return known.set_fleet_hosts(FleetHosts::Known),
                    State::Out(_) => known.set_fleet_hosts(FleetHosts::Out),
                }
                if state.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = joined => {}
            () = end.cancelled() => {}
        }
    });
    if settings.audit
        && let (Some(path), Some(written)) = (log, engine.audit_changes())
    {
        fleet.copy_audit(Log { files: audit::log_files, path: path.to_owned(), written });
    }
    peers.set_fleet(Arc::new(Joined(fleet)));
    Ok(())
}

/// Notes that this daemon could not join its fleet: its status says so, and requests to hosts of the
/// fleet fail.
pub(super) fn stay_outside(error: &Error, peers: &Peers) {
    tracing::warn!("{error}");
    peers.set_fleet(Arc::new(Outside(error.clone())));
}

/// A fleet that this daemon could not join, and why.
struct Outside(Error);

impl muxtap_peer::Fleet for Outside {
    fn open<'a>(&'a self, _: &'a str, _: Tier) -> Boxed<'a, Result<FleetStream>> {
        Box::pin(async { Err(self.0.clone()) })
    }

    fn known(&self, _: &str) -> Option<FleetHost> {
        None
    }

    fn look(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn problem(&self) -> Option<String> {
        Some(self.0.message.clone())
    }
}

struct Joined(Fleet);

impl muxtap_peer::Fleet for Joined {
    fn open<'a>(&'a self, host: &'a str, tier: Tier) -> Boxed<'a, Result<FleetStream>> {
        Box::pin(async move {
            let opened = self.0.open(host, tier).await?;
            Ok(FleetStream { io: Box::new(opened.pipe), version: opened.version, takes_keys: opened.takes_keys })
        })
    }

    fn known(&self, host: &str) -> Option<FleetHost> {
        let Member { version, labels, offer, .. } = self.0.known(host)?;
        Some(FleetHost { labels, offer, version })
    }

    fn look(&self) -> Boxed<'_, ()> {
        // Hosts that are found are remembered.
        Box::pin(async { drop(self.0.hosts().await) })
    }

    fn problem(&self) -> Option<String> {
        self.0.problem()
    }
}
