// What another device asks the person of this page for, in words.

import { visible } from "../dom";
import type { Request } from "./device";

/** Returns a request in words: who asks, and what would happen. */
export function requestWords(request: Request): string {
    const { command, args } = request;
    const row = ([name, value]: [string, unknown]) => {
        const text = visible(typeof value === "string" ? value : JSON.stringify(value));
        // A value cannot pass for another row.
        return text.includes("\n") ? `${name}:\n  ${text.replaceAll("\n", "\n  ")}` : `${name}: ${text}`;
    };
    const { shell, cwd, ...rest } = args;
    const runs: [string, unknown][] = command === "reserve" ? [["the caller says it will run", shell ?? "a shell"], ["in", cwd ?? "an unknown directory"]] : [];
    const what = command === "reserve" ? "open a terminal" : command === "bind" ? "show or restart this in a pane" : command;
    const rows = [...runs, ...Object.entries(command === "reserve" ? rest : args)].map(row);
    return [`The device ${visible(request.caller, 128)}, which calls itself "${visible(request.label, 128).replaceAll("\n", " ")}" (${visible(request.program, 256)}), asks to change your workspace: ${visible(what, 64)}`, ...rows].join("\n");
}
