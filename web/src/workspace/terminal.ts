// Names of terminals: each has one meaning, for every reader.

import type { PaneInfo } from "../types";
import { parseSelector } from "./selector";

/**
 * Returns a pane's unique name in a workspace.
 *
 * `%3` on the daemon's own default server, `NAME/%3` on another one in its folder of sockets,
 * `HOST/NAME/%3`, or the path of a socket and the pane.
 */
export function terminalId(pane: PaneInfo, sockets: string): string {
    const file = pane.socket.split("/").pop() ?? "";
    const name = pane.socket === `${sockets}/${file}` ? file : pane.socket;
    return name === "default" ? pane.id : `${name}/${pane.id}`;
}

/**
 * Returns the pane with this name. A host alone is its default server; the path of a socket is
 * always valid.
 */
export function terminal(id: string, all: Iterable<PaneInfo>, sockets: string): PaneInfo | undefined {
    return [...all].find((pane) => {
        const [host, name, ...rest] = pane.socket.split("/");
        const byHost = host !== "" && name === "default" && rest.length === 0 ? `${host}/${pane.id}` : null;
        return [terminalId(pane, sockets), `${pane.socket}/${pane.id}`, byHost].includes(id);
    });
}

/** Returns whether a workspace can name the pane: a path may be too long, or contain blanks. */
export function isNamed(id: string): boolean {
    try {
        parseSelector(`terminal:${id}`);
        return true;
    } catch {
        return false;
    }
}
