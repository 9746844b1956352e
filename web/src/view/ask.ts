// Asks the person before something is lost.

import { button, clean, h } from "../dom";

/** Asks a question; true if the person confirms, false for anything else. */
export function confirmed(question: string, yes: string, no: string): Promise<boolean> {
    return new Promise((resolve) => {
        const dialog = h("dialog", { cls: "dialog", "aria-label": "Confirmation" });
        const keep = button(no, () => dialog.close(), { cls: "primary" });
        const lose = button(yes, () => dialog.close("yes"));
        dialog.append(h("p", { cls: "hint" }, {}, clean(question, 400)), h("div", { cls: "options" }, {}, keep, lose));
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(dialog.returnValue === "yes");
        });
        document.body.append(dialog);
        dialog.showModal();
        keep.focus();
    });
}

/** Asks whether to discard unsaved text. */
export function discards(what: string): Promise<boolean> {
    return confirmed(`${what} has unsaved changes.`, "Discard", "Keep");
}
