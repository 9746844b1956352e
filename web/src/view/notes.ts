// Messages that appear for a while.

import type { Note } from "../app";
import { button, clean, h } from "../dom";

export class Notes {
    readonly element = h("div", { cls: "notes", role: "status", "aria-live": "polite" });

    show(note: Note): void {
        const element = h("div", { cls: `note ${note.kind}` }, {}, h("span", {}, {}, clean(note.text, 600)));
        const actions = note.actions ?? [];
        for (const action of actions) {
            element.append(
                button(action.label, () => {
                    element.remove();
                    action.press();
                }),
            );
        }
        element.append(button("×", () => element.remove(), { "aria-label": "Dismiss", cls: "close" }));
        this.element.append(element);
        while (this.element.children.length > 5) {
            this.element.firstElementChild?.remove();
        }
        if (note.ms !== undefined) {
            setTimeout(() => element.remove(), note.ms);
        }
    }
}
