//! Groups of panes that get the same input.
//!
//! A group is an option of its tmux server (`@muxtap-group-NAME`): it ends with the server, as the
//! ids of its panes do, and every muxtap that reads this server knows the group.

use futures_util::future::BoxFuture;
use muxtap_engine::{Server, ValueList, is_pattern};
use tokio::sync::Semaphore;

use super::{
    answers::{GroupAnswer, GroupInput, GroupInputAnswer, GroupList, GroupRequest},
    limits::GROUP_PANES,
    store::check_name,
};

use muxtap_api::{Error, ErrorCode, InputAnswer, Result, Tier};
use muxtap_core::protocol::{command::Command, ids::PaneId};

/// The prefix of the options' names.
const OPTION: &str = "@muxtap-group-";
/// The word that marks a group whose panes tmux synchronizes.
const SYNCHRONIZED: &str = "synchronized";

/// Returns the group that a target names, `%NAME` or `HOST/%NAME`, as `NAME` or `HOST/NAME`.
///
/// To tmux a target that begins with `%` is always a pane's id, and cannot be a session.
pub fn name_in(target: &str) -> Option<String> {
    let (host, group) = target.split_once('/').map_or(("", target), |(host, group)| (host, group));
    let name = group.strip_prefix('%')?;
    let is_group = !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit());
    let host = if host.is_empty() { String::new() } else { format!("{host}/") };
    is_group.then(|| format!("{host}{name}"))
}

/// Checks a group's name, which is also an option's name and must differ from a pane's id.
fn check(name: &str) -> Result<()> {
    check_name(name)?;
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(Error::invalid(format!("name: invalid group name {name:?}: must begin with a letter")));
    }
    if let Some(other) = name.chars().find(|&each| !each.is_ascii_alphanumeric() && !matches!(each, '-' | '_')) {
        return Err(Error::invalid(format!(
            "name: invalid character {other:?} in {name:?}; a group's name has ASCII letters, digits, `-` and `_`"
        )));
    }
    Ok(())
}

/// A group, as its option holds it.
struct Group {
    name: String,
    panes: Vec<PaneId>,
    synchronize: bool,
}

/// Returns the groups of a server.
async fn read(server: &Server) -> Result<Vec<Group>> {
    let printed = server.printed(Command::new("show-options").flag("-s")).await?;
    let group = |line: &str| {
        let (name, value) = line.strip_prefix(OPTION)?.split_once(' ')?;
        let words = || value.trim_matches('"').split(' ');
        // Text that another program wrote into such an option is ignored.
        check(name).ok()?;
        Some(Group {
            name: name.to_owned(),
            panes: words().filter_map(|word| word.parse().ok()).collect(),
            synchronize: words().any(|word| word == SYNCHRONIZED),
        })
    };
    Ok(printed.lines().filter_map(group).collect())
}

async fn find(server: &Server, name: &str) -> Result<Option<Group>> {
    check(name)?;
    Ok(read(server).await?.into_iter().find(|group| group.name == name))
}

async fn found(server: &Server, name: &str) -> Result<Group> {
    find(server, name).await?.ok_or_else(|| {
        Error::not_found(format!(
            "no group {name:?} on this server; `muxtap group list` shows its groups, and a group of another host is \
             HOST/%{name}"
        ))
    })
}

async fn answer(server: &Server, groups: Vec<Group>) -> Result<Vec<GroupAnswer>> {
    let panes = server.panes().await?;
    let is_there = |id: PaneId| panes.iter().any(|pane| pane.id == id && !pane.dead && !pane.earlier_server);
    let answer = |group: Group| GroupAnswer {
        gone: group.panes.iter().copied().filter(|id| !is_there(*id)).collect(),
        name: group.name,
        host: server.host_name().map(str::to_owned),
        panes: group.panes,
        synchronize: group.synchronize,
    };
    Ok(groups.into_iter().map(answer).collect())
}

/// Lists the groups of a server, by name.
pub async fn list(server: &Server) -> Result<GroupList> {
    let mut groups = read(server).await?;
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(GroupList { groups: answer(server, groups).await? })
}

/// Sets the panes of a group, instead of its earlier ones.
///
/// Errors: `INVALID_ARGUMENT`, `NOT_FOUND`, `RESOURCE_LIMIT`.
pub fn set<'a>(server: &'a Server, name: &'a str, request: &'a GroupRequest) -> BoxFuture<'a, Result<GroupAnswer>> {
    Box::pin(set_here(server, name, request))
}

async fn set_here(server: &Server, name: &str, request: &GroupRequest) -> Result<GroupAnswer> {
    server.engine().authorize(Tier::Create)?;
    let before = find(server, name).await?;
    let panes = resolved(server, &request.targets).await?;
    let mut orders = before.as_ref().map(unsynchronize).unwrap_or_default();
    if request.synchronize {
        orders.extend(panes.iter().map(|pane| synchronize(*pane, Some("on"))));
    }
    let mut words: Vec<String> = panes.iter().map(ToString::to_string).collect();
    words.extend(request.synchronize.then(|| SYNCHRONIZED.to_owned()));
    let option = format!("{OPTION}{name}");
    orders.push(Command::new("set-option").flag("-s").end_of_flags().arg(option).arg(words.join(" ")));
    server.orders("group", name, orders).await?;
    let group = Group { name: name.to_owned(), panes, synchronize: request.synchronize };
    answer(server, vec![group]).await?.pop().ok_or_else(|| Error::internal("no group"))
}

async fn resolved(server: &Server, targets: &[String]) -> Result<Vec<PaneId>> {
    let mut panes = Vec::new();
    for target in targets {
        if is_pattern(target) {
            let scopes = server.scopes(std::slice::from_ref(target)).await?;
            let all = server.panes().await?;
            let fitting: Vec<PaneId> = all
                .iter()
                .filter(|pane| !pane.dead && !pane.earlier_server && scopes.include(*pane))
                .map(|pane| pane.id)
                .collect();
            if fitting.is_empty() {
                return Err(Error::not_found(format!("no pane matches `{target}`")));
            }
            panes.extend(fitting);
        } else {
            panes.push(server.pane(target).await?.id());
        }
    }
    let mut seen = std::collections::HashSet::new();
    panes.retain(|pane| seen.insert(*pane));
    match panes.len() {
        0 => Err(Error::invalid("targets: empty; expected the group's panes")),
        many if many > GROUP_PANES => Err(Error::new(
            ErrorCode::ResourceLimit,
            format!("targets: {many} panes; a group has at most {GROUP_PANES}"),
        )),
        _ => Ok(panes),
    }
}

/// Returns the command that sets or unsets a pane's own option. A missing pane is not an error.
fn synchronize(pane: PaneId, value: Option<&str>) -> Command {
    let command = Command::new("set-option").flag("-q -p");
    let command = if value.is_none() { command.flag("-u") } else { command };
    let command = command.opt("-t", pane.to_string()).arg("synchronize-panes");
    value.map_or(command.clone(), |value| command.arg(value))
}

fn unsynchronize(group: &Group) -> Vec<Command> {
    if group.synchronize { group.panes.iter().map(|pane| synchronize(*pane, None)).collect() } else { Vec::new() }
}

/// Removes a group; its panes stay. Error: `NOT_FOUND`.
pub async fn remove(server: &Server, name: &str) -> Result<()> {
    server.engine().authorize(Tier::Create)?;
    let group = found(server, name).await?;
    let mut orders = unsynchronize(&group);
    orders.push(Command::new("set-option").flag("-s -u").end_of_flags().arg(format!("{OPTION}{name}")));
    server.orders("group", name, orders).await.map(drop)
}

/// Sends input to all panes of a group.
///
/// Either each pane got the input, or the error's message and details (`sent`, `failed`) name the
/// panes.
///
/// Errors: `NOT_FOUND` if the group or one of its panes does not exist: then nothing was sent; the
/// error of the first pane that refused the input; `INVALID_ARGUMENT`, `READ_ONLY`.
pub fn input<'a>(
    server: &'a Server,
    name: &'a str,
    request: &'a GroupInput,
) -> BoxFuture<'a, Result<GroupInputAnswer>> {
    Box::pin(input_here(server, name, request))
}

async fn input_here(server: &Server, name: &str, request: &GroupInput) -> Result<GroupInputAnswer> {
    server.engine().authorize(Tier::Input)?;
    let group = found(server, name).await?;
    let Some(group) = answer(server, vec![group]).await?.pop() else { return Err(Error::internal("no group")) };
    if !group.gone.is_empty() {
        let gone = words(&group.gone);
        let message = format!("nothing was sent: {gone} of group {name:?} no longer exists; set the group again");
        return Err(Error::not_found(message).with_details(serde_json::json!({ "sent": [], "gone": group.gone })));
    }
    let (sent, failed) = send(server, &group, request).await?;
    let Some((_, first)) = failed.first() else { return Ok(GroupInputAnswer { panes: sent }) };
    let not: Vec<String> = failed.iter().map(|(pane, error)| format!("{pane}: {}", error.message)).collect();
    let sent: Vec<PaneId> = sent.iter().map(|sent| sent.pane).collect();
    let to = if sent.is_empty() { "to no pane".to_owned() } else { format!("to {}", words(&sent)) };
    let why = |(pane, error): &(PaneId, Error)| serde_json::json!({ "pane": pane, "error": error });
    let why: Vec<_> = failed.iter().map(why).collect();
    let details = serde_json::json!({ "sent": sent, "failed": why });
    let message = format!("group {name:?}: the input was sent {to}; not to {}", not.join("; "));
    Err(Error::new(first.code, message).with_details(details))
}

/// A permit to suspend the synchronization of panes.
static SENDING: Semaphore = Semaphore::const_new(1);

type Sent = (Vec<InputAnswer>, Vec<(PaneId, Error)>);

/// Sends input to each pane, once. Runs to its end even if the future is dropped.
///
/// tmux copies input for a synchronized pane to the others in its window, as it does with a
/// person's keys. Panes of the group that would get it twice are therefore not synchronized in the
/// meantime.
async fn send(server: &Server, group: &GroupAnswer, request: &GroupInput) -> Result<Sent> {
    // Two concurrent calls would each take the other's change for the user's setting.
    let permit = SENDING.acquire().await.map_err(|_| Error::unavailable("muxtap is stopping"))?;
    let doubled = doubled(server, &group.panes).await?;
    let (server, group, request) = (server.clone(), group.clone(), request.clone());
    let (sender, answer) = tokio::sync::oneshot::channel();
    let engine = server.engine().clone();
    engine.clone().spawn_work(async move {
        let sent = tokio::select! {
            sent = send_apart(&server, &group, &doubled, &request) => sent,
            () = engine.stopping() => Err(Error::unavailable("muxtap is stopping")),
        };
        drop(permit);
        // The caller may have disconnected.
        let _ = sender.send(sent);
    });
    answer.await.unwrap_or_else(|_| Err(Error::internal("the input failed in the middle")))
}

async fn send_apart(
    server: &Server,
    group: &GroupAnswer,
    doubled: &[(PaneId, Option<String>)],
    request: &GroupInput,
) -> Result<Sent> {
    let orders = |value: fn(&Option<String>) -> Option<&str>| {
        doubled.iter().map(move |(pane, own)| synchronize(*pane, value(own))).collect::<Vec<_>>()
    };
    if !doubled.is_empty()
        && let Err(error) = server.orders("group", &group.name, orders(|_| Some("off"))).await
    {
        // Some may be unsynchronized already. A pane that has ended meanwhile adds no error.
        let _ = server.orders("group", &group.name, orders(Option::as_deref)).await;
        return Err(error);
    }
    let inputs = group.panes.iter().map(|pane| async move { (*pane, server.input(&pane.to_string(), request).await) });
    let done = tokio::select! {
        done = futures_util::future::join_all(inputs) => Some(done),
        // A stopping daemon does not wait for the panes, but synchronizes them again.
        () = server.engine().leaving() => None,
    };
    if !doubled.is_empty()
        && let Err(error) = server.orders("group", &group.name, orders(Option::as_deref)).await
    {
        // The input was sent: an error would cause the caller to send it again.
        tracing::warn!("group {}: its panes are no longer synchronized: {error}", group.name);
    }
    let left = || Error::unavailable("muxtap is stopping: unknown which panes got the input");
    let (mut sent, mut failed) = (Vec::new(), Vec::new());
    for (pane, done) in done.ok_or_else(left)? {
        match done {
            Ok(answer) => sent.push(answer),
            Err(error) => failed.push((pane, error)),
        }
    }
    Ok((sent, failed))
}

/// Returns the panes of a group that are synchronized with others of it.
///
/// Each comes with the value of its own option, if it has one.
async fn doubled(server: &Server, group: &[PaneId]) -> Result<Vec<(PaneId, Option<String>)>> {
    let fields = &["pane_id", "window_id", "pane_synchronized"];
    let list = ValueList { command: Command::new("list-panes").flag("-a"), fields };
    let rows = server.values(&[list]).await?.into_iter().next().unwrap_or_default();
    let mut seen = std::collections::HashSet::new();
    let synchronized = |row: &Vec<String>| {
        let [pane, window, flag] = row.as_slice() else { return None };
        let pane = pane.parse().ok().filter(|pane| flag == "1" && group.contains(pane))?;
        Some((pane, window.clone()))
    };
    // A window that is linked to several sessions is listed for each.
    let panes: Vec<(PaneId, String)> = rows.iter().filter_map(synchronized).filter(|row| seen.insert(row.0)).collect();
    let mut doubled = Vec::new();
    for (pane, window) in &panes {
        if panes.iter().filter(|(_, other)| other == window).count() > 1 {
            let show = Command::new("show-options").flag("-p -q -v").opt("-t", pane.to_string());
            let own = server.printed(show.arg("synchronize-panes")).await?;
            doubled.push((*pane, Some(own.trim().to_owned()).filter(|own| !own.is_empty())));
        }
    }
    Ok(doubled)
}

fn words(panes: &[PaneId]) -> String {
    panes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
