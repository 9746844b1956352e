//! Layouts of windows, stored by name.

use futures_util::future::BoxFuture;
use muxtap_engine::{Server, ValueList};
use serde_json::{Value, json};

use super::{
    answers::{LayoutAnswer, LayoutList, LayoutRequest, LayoutRestoreRequest},
    file::{at, string},
    layout,
    save::contradiction,
    store::{Kind, Store, check_name},
};

use muxtap_api::{Error, ErrorCode, Result, WindowInfo};
use muxtap_core::protocol::command::Command;

/// Saves a window's layout. Errors: `NOT_FOUND`, `CONFLICT` if the name exists.
pub fn save<'a>(
    store: &'a Store,
    server: &'a Server,
    request: &'a LayoutRequest,
) -> BoxFuture<'a, Result<LayoutAnswer>> {
    Box::pin(save_here(store, server, request))
}

async fn save_here(store: &Store, server: &Server, request: &LayoutRequest) -> Result<LayoutAnswer> {
    check_name(&request.name)?;
    server.follow_for_layouts().await?;
    let window = window(server, &request.window).await?;
    let numbered = layout::numbered(&window.layout, &floating(server, &window.id).await?);
    let numbered = numbered.ok_or_else(|| contradiction(&format!("cannot parse the layout of {}", window.id)))?;
    let answer = LayoutAnswer {
        name: request.name.clone(),
        layout: numbered.text,
        panes: numbered.tiled.len() as u64,
        width: window.size.width.into(),
        height: window.size.height.into(),
    };
    let file = json!({ "layout": answer.layout, "size": [answer.width, answer.height] });
    let (name, replace) = (request.name.clone(), request.replace);
    store.run(move |store| store.write(Kind::Layout, &name, &file, replace)).await?;
    Ok(answer)
}

/// Lists the stored layouts. A damaged file is skipped.
pub async fn list(store: &Store) -> Result<LayoutList> {
    let read = |store: &Store| {
        let names = store.names(Kind::Layout)?;
        let layouts = names.iter().filter_map(|name| answer(name, &store.read(Kind::Layout, name).ok()?).ok());
        Ok(LayoutList { layouts: layouts.collect() })
    };
    store.run(read).await
}

/// Removes a layout. Error: `NOT_FOUND`.
pub async fn remove(store: &Store, name: &str) -> Result<()> {
    let name = name.to_owned();
    store.run(move |store| store.remove(Kind::Layout, &name)).await
}

fn answer(name: &str, file: &Value) -> Result<LayoutAnswer> {
    let text = string(at(file, "layout"));
    let panes = layout::panes(&text).ok_or_else(|| {
        Error::new(ErrorCode::InconsistentState, format!("layout {name:?} is corrupt; remove it and save it again"))
    })?;
    let size = |number: usize| at(file, "size").get(number).and_then(Value::as_u64).unwrap_or_default() as u32;
    Ok(LayoutAnswer { name: name.to_owned(), layout: text, panes: panes as u64, width: size(0), height: size(1) })
}

/// Applies a stored layout to a window.
///
/// Errors: `NOT_FOUND`; `CONFLICT` if the window has another number of panes.
pub fn restore<'a>(
    store: &'a Store,
    server: &'a Server,
    name: &'a str,
    request: &'a LayoutRestoreRequest,
) -> BoxFuture<'a, Result<LayoutAnswer>> {
    Box::pin(restore_here(store, server, name, request))
}

async fn restore_here(
    store: &Store,
    server: &Server,
    name: &str,
    request: &LayoutRestoreRequest,
) -> Result<LayoutAnswer> {
    let owned = name.to_owned();
    let kept = store.run(move |store| answer(&owned, &store.read(Kind::Layout, &owned)?)).await?;
    let window = window(server, &request.window).await?;
    let floating = floating(server, &window.id).await?.len() as u64;
    let panes = u64::from(window.panes) - floating;
    if panes != kept.panes {
        let message = format!("layout {name:?} has {} panes, {} has {panes}", kept.panes, request.window);
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    let was_fixed = values(server, &window.id, &["window-size"]).await?.iter().flatten().any(|size| size == "manual");
    let (width, height) =
        if request.size { (kept.width, kept.height) } else { (window.size.width.into(), window.size.height.into()) };
    let resize = Command::new("resize-window").opt("-t", &window.id);
    let resize = resize.opt("-x", width.max(1).to_string()).opt("-y", height.max(1).to_string());
    let mut orders = vec![
        resize.clone(),
        Command::new("select-layout").opt("-t", &window.id).end_of_flags().arg(&kept.layout),
        // 3.2a has resized the window to the layout.
        resize,
    ];
    if !was_fixed {
        orders.push(Command::new("set-option").flag("-w -u").opt("-t", &window.id).arg("window-size"));
    }
    server.orders("restore-layout", &request.window, orders).await?;
    Ok(kept)
}

async fn window(server: &Server, target: &str) -> Result<WindowInfo> {
    let id = server.window_id(target).await?;
    let window = server.windows().await?.into_iter().find(|window| window.id == id);
    window.ok_or_else(|| Error::not_found(format!("window {target} has just ended")))
}

async fn values(server: &Server, window: &str, fields: &'static [&'static str]) -> Result<Vec<Vec<String>>> {
    let list = ValueList { command: Command::new("list-panes").opt("-t", window), fields };
    Ok(server.values(&[list]).await?.into_iter().next().unwrap_or_default())
}

async fn floating(server: &Server, window: &str) -> Result<Vec<muxtap_core::protocol::ids::PaneId>> {
    let rows = values(server, window, &["pane_id", "pane_floating_flag"]).await?;
    let floats = rows.iter().filter(|row| row.get(1).is_some_and(|flag| flag == "1"));
    Ok(floats.filter_map(|row| row.first()?.parse().ok()).collect())
}
