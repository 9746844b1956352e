//! The server of `manage_tmux_sessions` alone, as in the first implementation: one tool with text
//! results, over this process's own stdio.

use muxtap_supervise::{NAME, Supervisor};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use tokio::signal::unix::{SignalKind, signal};

use super::supervisor_tool::tool;

use muxtap_api::{Error, Result};

struct SupervisorOnly(Supervisor);

/// Serves the tool until the client closes stdin or a signal ends this process. Then open questions
/// are withdrawn, and tmux is released.
pub async fn serve(supervisor: Supervisor) -> Result<()> {
    let unable = |error: &dyn std::fmt::Display| Error::internal(format!("MCP: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| unable(&error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| unable(&error))?;
    let served = async {
        let running = SupervisorOnly(supervisor.clone()).serve((tokio::io::stdin(), tokio::io::stdout())).await;
        match running {
            Ok(running) => running.waiting().await.map(drop).map_err(|error| unable(&error)),
            // A client that disconnects before the handshake is not a failure.
            Err(error) => {
                tracing::debug!("the connection of an MCP client ended: {error}");
                Ok(())
            }
        }
    };
    let result = tokio::select! {
        served = served => served,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    supervisor.stop().await;
    supervisor.engine().stop().await;
    result
}

impl ServerHandler for SupervisorOnly {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("muxtap", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == NAME).then(tool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        if request.name != NAME {
            return Err(ErrorData::invalid_params(format!("unknown tool {:?}; expected {NAME}", request.name), None));
        }
        let called = self.0.call(request.arguments.unwrap_or_default());
        let text = tokio::select! {
            text = called => text,
            () = context.ct.cancelled() => "Error: the call was cancelled".to_owned(),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
