// Splits typed input into messages that the daemon accepts: too large a message or invalid UTF-8
// ends the connection.

import type { Typed } from "./types";

/**
 * Maximum size of typed input in a message, as JSON; the rest of its 1 MiB is its number and its
 * pane's key.
 */
export const MOST_TYPED = (1 << 20) - 4096;

const encoder = new TextEncoder();
const size = (typed: Typed) => encoder.encode(JSON.stringify(typed)).length;

/** Replaces half of a UTF-16 pair by a character that can be sent. */
const whole = (text: string) => text.replace(/\p{Surrogate}/gu, "\ufffd");

/**
 * Returns the inputs that type this, in order, or null for a paste that is too large.
 *
 * tmux brackets each paste: two pastes are not the same as one.
 */
export function fitting(typed: Typed, most = MOST_TYPED): Typed[] | null {
    if ("paste" in typed) {
        const paste = { paste: whole(typed.paste) };
        return size(paste) <= most ? [paste] : null;
    }
    if ("text" in typed) {
        return halves({ text: whole(typed.text) }, most, ({ text }) => {
            const at = text.length >> 1;
            const pair = (text.codePointAt(at - 1) ?? 0) > 0xffff;
            const cut = pair ? at + 1 : at;
            return text.length < 2 || cut >= text.length ? null : [{ text: text.slice(0, cut) }, { text: text.slice(cut) }];
        });
    }
    if ("keys" in typed) {
        return halves({ keys: typed.keys.map(whole) }, most, ({ keys }) => {
            const at = keys.length >> 1;
            return at === 0 ? null : [{ keys: keys.slice(0, at) }, { keys: keys.slice(at) }];
        });
    }
    return size(typed) <= most ? [typed] : null;
}

function halves<T extends Typed>(typed: T, most: number, cut: (typed: T) => [T, T] | null): Typed[] | null {
    if (size(typed) <= most) {
        return [typed];
    }
    const two = cut(typed);
    const parts = two?.map((one) => halves(one, most, cut)) ?? [null];
    return parts.every((part) => part !== null) ? parts.flat() : null;
}
