// The page's commands: a palette that finds panes and commands by words, and the list of keys.

import { clean, h } from "../dom";

export interface Command {
    name: string;
    hint?: string;
    run(): void;
}

/** Shows the palette; the previous focus returns afterwards. */
export function openPalette(commands: Command[]): void {
    if (document.querySelector("dialog[open]") !== null) {
        return;
    }
    const before = document.activeElement as HTMLElement | null;
    const list = h("ul", { role: "listbox", id: "palette-list" });
    const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Go to a pane or run a command", placeholder: "Go to a pane or run a command…", spellcheck: "false", autocomplete: "off" });
    const dialog = h("dialog", { cls: "palette", "aria-label": "Commands" }, {}, field, list);
    let fitting: Command[] = [];
    let at = 0;
    const run = (command: Command | undefined) => {
        dialog.close();
        command?.run();
    };
    const mark = () => {
        [...list.children].forEach((item, index) => {
            item.setAttribute("aria-selected", String(index === at));
        });
        list.children[at]?.scrollIntoView({ block: "nearest" });
        field.setAttribute("aria-activedescendant", `palette-${at}`);
    };
    const update = () => {
        const words = field.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        fitting = commands.filter((one) => words.every((word) => `${one.name} ${one.hint ?? ""}`.toLowerCase().includes(word))).slice(0, 50);
        at = 0;
        list.replaceChildren(
            ...fitting.map((one, index) =>
                h("li", { role: "option", id: `palette-${index}` }, { click: () => run(one) }, clean(one.name, 120), one.hint === undefined ? null : h("span", { cls: "hint" }, {}, clean(one.hint, 80))),
            ),
        );
        mark();
    };
    field.addEventListener("input", update);
    field.addEventListener("keydown", (event) => {
        if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            at = Math.max(0, Math.min(fitting.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
            mark();
        } else if (event.key === "Enter" && !event.isComposing) {
            event.preventDefault();
            run(fitting[at]);
        }
        event.stopPropagation();
    });
    dialog.addEventListener("close", () => {
        dialog.remove();
        if (document.activeElement === document.body) {
            before?.focus();
        }
    });
    document.body.append(dialog);
    update();
    dialog.showModal();
}

const KEYS: [string, string][] = [
    ["Ctrl+Shift+Space", "open the commands, even while a terminal has the focus"],
    ["Ctrl+Shift+↑, ↓", "go to the previous or next command, in a pane whose shell marks them"],
    ["Ctrl+K", "open the commands (in a terminal, the program gets this key)"],
    ["/", "filter the panes"],
    ["arrows, Enter", "move between tiles, open a tile"],
    ["g w · g a · g t · g s", "show the wall, agents, waits, workspace"],
    ["Shift+mouse", "select text while the program uses the mouse"],
    ["Ctrl+C with a selection", "copy the selection (without a selection, the program gets Ctrl+C)"],
    ["Ctrl+Shift+V", "paste"],
    ["?", "show this list"],
];

export function openHelp(version: string): void {
    if (document.querySelector("dialog[open]") !== null) {
        return;
    }
    const dialog = h(
        "dialog",
        { cls: "dialog help", "aria-label": "Keyboard shortcuts" },
        {},
        h("h2", {}, {}, "Keyboard shortcuts"),
        h("dl", {}, {}, ...KEYS.flatMap(([key, what]) => [h("dt", {}, {}, key), h("dd", {}, {}, what)])),
        h("p", { cls: "hint" }, {}, `muxtap ${version}. While a terminal has the focus, its program gets every key except Ctrl+Shift+Space and the keys that go to commands.`),
        h("form", { method: "dialog" }, {}, h("button", {}, {}, "Close")),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}
