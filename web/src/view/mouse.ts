// The mouse in a pane, for programs that request it. With Shift it selects, as in any terminal.

import { Button, mouseReport } from "../keys";
import type { Screen } from "../screen";

export interface Pointed {
    screen(): Screen;
    /** Returns the cell at a position; outside the screen null, or the nearest cell. */
    cell(x: number, y: number, nearest: boolean): [column: number, row: number] | null;
    report(bytes: string): void;
    keys(names: string[]): void;
    may(): boolean;
}

/** The position of a pointer, and its modifier keys. */
type At = Pick<MouseEvent, "clientX" | "clientY" | "shiftKey" | "altKey" | "ctrlKey">;

export function listen(element: HTMLElement, pointed: Pointed, ends: (() => void)[]): void {
    let pressed: number | null = null;
    let last = "";
    let turned = 0;

    const send = (kind: "press" | "release" | "move", button: number, event: At): boolean => {
        // A press within the screen belongs to its program wherever the pointer is dragged to.
        const cell = pointed.cell(event.clientX, event.clientY, pressed !== null);
        if (cell === null) {
            return false;
        }
        const bytes = mouseReport(pointed.screen().modes, kind, button, cell[0], cell[1], event);
        if (bytes === null) {
            return false;
        }
        const same = `${kind} ${button} ${cell}`;
        if (kind !== "move" || same !== last) {
            pointed.report(bytes);
        }
        last = same;
        return true;
    };
    /** Turns the wheel by a number of pixels; `notch` is the pixels of one notch. */
    const turn = (pixels: number, notch: number, reports: boolean, event: At) => {
        turned += pixels;
        const notches = Math.trunc(turned / notch);
        turned -= notches * notch;
        for (let done = 0; done < Math.min(Math.abs(notches), 5); done += 1) {
            if (reports) {
                send("press", notches < 0 ? Button.WheelUp : Button.WheelDown, event);
                last = "";
            } else {
                pointed.keys([notches < 0 ? "Up" : "Down"]);
            }
        }
    };
    const wanted = (event: MouseEvent) => pointed.may() && pointed.screen().modes.mouse !== 0 && !event.shiftKey;

    element.addEventListener("mousedown", (event) => {
        if (wanted(event) && event.button <= 2 && send("press", event.button, event)) {
            pressed = event.button;
            event.preventDefault();
        }
    });
    element.addEventListener("mousemove", (event) => {
        if (pressed === null && wanted(event)) {
            send("move", Button.None, event);
        }
    });
    const released = (event: MouseEvent) => {
        if (pressed !== null && element.isConnected) {
            send("release", pressed, event);
        }
        pressed = null;
    };
    const dragged = (event: MouseEvent) => {
        if (pressed === null) {
            return;
        }
        // The button was released without an event, for example over another page in a pane of the
        // workspace.
        if (event.buttons === 0) {
            released(event);
        } else if (pointed.may()) {
            send("move", pressed, event);
        }
    };
    window.addEventListener("mouseup", released);
    window.addEventListener("mousemove", dragged);
    ends.push(
        () => window.removeEventListener("mouseup", released),
        () => window.removeEventListener("mousemove", dragged),
    );
    element.addEventListener("contextmenu", (event) => {
        if (wanted(event)) {
            event.preventDefault();
        }
    });
    element.addEventListener(
        "wheel",
        (event) => {
            const screen = pointed.screen();
            const reports = wanted(event);
            if (event.ctrlKey || event.deltaY === 0 || !(reports || (screen.modes.alternate && pointed.may()))) {
                return;
            }
            event.preventDefault();
            // A wheel's notch is some 100 pixels or 3 lines; a touchpad's pixels are summed up.
            turn(event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * 33 : event.deltaY, 50, reports, event);
        },
        { passive: false },
    );
    // A finger turns the wheel if there is nothing to scroll: on the alternate screen, or for a
    // program that has the mouse.
    let finger: number | null = null;
    element.addEventListener(
        "touchstart",
        (event) => {
            finger = event.touches.length === 1 ? (event.touches[0]?.clientY ?? null) : null;
            turned = 0;
        },
        { passive: true },
    );
    element.addEventListener(
        "touchmove",
        (event) => {
            const touch = event.touches[0];
            const { modes } = pointed.screen();
            if (finger === null || event.touches.length !== 1 || touch === undefined || !pointed.may() || !(modes.alternate || modes.mouse !== 0)) {
                return;
            }
            event.preventDefault();
            const { clientX, clientY } = touch;
            // The content follows the finger: one row for each row's height.
            turn(finger - clientY, 16, modes.mouse !== 0, { clientX, clientY, shiftKey: false, altKey: false, ctrlKey: false });
            finger = clientY;
        },
        { passive: false },
    );
}
