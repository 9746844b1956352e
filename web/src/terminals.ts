// Names of terminals in a workspace: one meaning each, whoever reads them.

import type { PaneInfo } from "./types";

export const AMBIGUOUS = "Two tmux servers have the same name: muxtap cannot say which of their terminals is meant. Start one with another -L.";

/**
 * A pane's name in a workspace, which says on which server it is: `%3` on the default one, `NAME/%3`, `HOST/NAME/%3`, or
 * behind the path of a socket that is in none of tmux's directories.
 */
export function terminalId(pane: PaneInfo): string {
    const named = /^\/.*\/tmux-\d+\/([^/]+)$/.exec(pane.socket)?.[1];
    if (named === "default") {
        return pane.id;
    }
    return `${named ?? pane.socket}/${pane.id}`;
}

/** Whether a pane is the terminal of this name. A host alone is its default server. */
export function isTerminal(pane: PaneInfo, id: string): boolean {
    return terminalId(pane) === id || (!pane.socket.startsWith("/") && pane.socket.endsWith("/default") && `${pane.socket.split("/")[0]}/${pane.id}` === id);
}

/** The pane that a workspace names so; `null`: there is none; "ambiguous": panes of several servers are named so. */
export function terminalOf(panes: Iterable<PaneInfo>, id: string): PaneInfo | null | "ambiguous" {
    let found: PaneInfo | null = null;
    for (const pane of panes) {
        if (isTerminal(pane, id)) {
            if (found !== null) {
                return "ambiguous";
            }
            found = pane;
        }
    }
    return found;
}
