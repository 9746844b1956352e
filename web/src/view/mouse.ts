// The mouse in a pane, for programs that ask for it. With Shift it selects, as in any terminal.

import { Button, mouseReport } from "../keys";
import type { Screen } from "../screen";

export interface Pointed {
    screen(): Screen;
    /** The cell at a place; outside of the screen null, or the nearest one. */
    cell(x: number, y: number, nearest: boolean): [column: number, row: number] | null;
    report(bytes: string): void;
    keys(names: string[]): void;
    may(): boolean;
}

export function listen(element: HTMLElement, pointed: Pointed, ends: (() => void)[]): void {
    let pressed: number | null = null;
    let last = "";
    let turned = 0;

    const send = (kind: "press" | "release" | "move", button: number, event: MouseEvent): boolean => {
        // What was pressed within the screen is its program's wherever it is dragged to.
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
        // It was released where no page is told of it, as over another page in a pane of the workspace.
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
            turned += event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * 33 : event.deltaY;
            const notches = Math.trunc(turned / 50);
            turned -= notches * 50;
            for (let notch = 0; notch < Math.min(Math.abs(notches), 5); notch += 1) {
                if (reports) {
                    send("press", notches < 0 ? Button.WheelUp : Button.WheelDown, event);
                    last = "";
                } else {
                    pointed.keys([notches < 0 ? "Up" : "Down"]);
                }
            }
        },
        { passive: false },
    );
}
