// Names of terminals: one meaning each, whoever reads them.

import type { PaneInfo } from "../types";
import { parseSelector } from "./selector";

/** The name of a pane's server and the pane: `%3` on one that is called `default`, `NAME/%3`, `HOST/NAME/%3`, `/PATH/%3`. */
function shortId(pane: PaneInfo): string {
    const named = /^\/.*\/tmux-\d+\/([^/]+)$/.exec(pane.socket)?.[1];
    if (named === "default") {
        return pane.id;
    }
    return `${named ?? pane.socket}/${pane.id}`;
}

/**
 * Returns a pane's name in a workspace, which means it and no other: where two servers of this machine have the same name
 * in different directories it is the path of the socket and the pane.
 */
export function terminalId(pane: PaneInfo, all: Iterable<PaneInfo>): string {
    const short = shortId(pane);
    const place = (one: PaneInfo) => shortId({ ...one, id: "" });
    const shared = [...all].some((one) => one.socket !== pane.socket && place(one) === place(pane));
    return shared ? `${pane.socket}/${pane.id}` : short;
}

/** Returns the panes that a name may mean: several where servers of the same name lie in different directories. */
export function terminals(id: string, all: Iterable<PaneInfo>): PaneInfo[] {
    return [...all].filter((pane) => isTerminal(pane, id));
}

/** Whether a name may mean a pane. A host alone is its default server; the path of a socket is always good. */
function isTerminal(pane: PaneInfo, id: string): boolean {
    return shortId(pane) === id || `${pane.socket}/${pane.id}` === id || (!pane.socket.startsWith("/") && pane.socket.endsWith("/default") && `${pane.socket.split("/")[0]}/${pane.id}` === id);
}

/** Whether a workspace can name the pane: a path may be too long, or have blanks in it. */
export function isNamed(id: string): boolean {
    try {
        parseSelector(`terminal:${id}`);
        return true;
    } catch {
        return false;
    }
}
