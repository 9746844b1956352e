// Terminals as a workspace names them.

import { serverName } from "./app";
import type { PaneInfo } from "./types";

/** A pane's name in a workspace: `%3` on the default server, else `NAME/%3`. */
export function terminalId(pane: PaneInfo): string {
    const server = serverName(pane.socket);
    return server === "" ? pane.id : `${server.split("/")[0]}/${pane.id}`;
}

export const AMBIGUOUS = "Two tmux servers have the same name: muxtap cannot say which of their terminals is meant. Start one with another -L.";

/** The pane that a workspace names so; `null`: there is none; "ambiguous": panes of several servers are named so. */
export function terminalOf(panes: Iterable<PaneInfo>, id: string): PaneInfo | null | "ambiguous" {
    let found: PaneInfo | null = null;
    for (const pane of panes) {
        if (terminalId(pane) === id) {
            if (found !== null) {
                return "ambiguous";
            }
            found = pane;
        }
    }
    return found;
}
