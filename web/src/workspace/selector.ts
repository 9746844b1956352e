// Selectors: the names of a tab, a pane, a terminal or a session. No shorthand exists.

export const FORMS = "tab:ID, tab-name:NAME, tab-index:N, pane:ID, pane-index:N (with a tab), terminal:ID, session:PROVIDER:ID";

/** An error of a workspace, as it is on the wire. */
export class WorkspaceError extends Error {
    constructor(
        readonly code: string,
        message: string,
        readonly details?: unknown,
    ) {
        super(message);
    }
}

export interface Selector {
    kind: "tab" | "tab-name" | "tab-index" | "pane" | "pane-index" | "terminal" | "session";
    id: string;
}

const ID = /^[A-Za-z0-9\-_.@]{1,128}$/;
// %3 on the default server, NAME/%3, HOST/NAME/%3, or the path of a socket and the pane.
const TERMINAL = /^(?:(?:(?!\.)[\p{L}\p{N}\-_.]{1,64}\/){0,2}|\/[^\s\p{Cc}]{1,106}\/)%\d{1,10}$/u;

export function refuse(message: string): WorkspaceError {
    return new WorkspaceError("INVALID_TARGET", message);
}

/** Parses a selector. Throws `INVALID_TARGET`, with the valid forms. */
export function parseSelector(text: string): Selector {
    const wrong = refuse(`invalid selector ${JSON.stringify(text)}; expected ${FORMS}`);
    const colon = text.indexOf(":");
    const [kind, rest] = [text.slice(0, Math.max(0, colon)), text.slice(colon + 1)];
    if (colon < 0 || rest === "" || /[\u0000-\u001f\u007f-\u009f]/.test(rest)) {
        throw wrong;
    }
    switch (kind) {
        case "tab":
        case "pane":
            if (ID.test(rest)) {
                return { kind, id: rest };
            }
            break;
        case "tab-name":
            return { kind, id: rest };
        case "tab-index":
        case "pane-index":
            if (/^\d{1,15}$/.test(rest)) {
                return { kind, id: rest };
            }
            break;
        case "terminal":
            if (TERMINAL.test(rest)) {
                return { kind, id: rest };
            }
            throw refuse(`invalid terminal ${JSON.stringify(rest)}; expected %3, NAME/%3, HOST/NAME/%3 or /PATH/OF/SOCKET/%3`);
        case "session": {
            const at = rest.indexOf(":");
            if (at > 0 && ID.test(rest.slice(0, at)) && at + 1 < rest.length) {
                return { kind, id: rest };
            }
            break;
        }
    }
    throw wrong;
}
