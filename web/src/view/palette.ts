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
    const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Go to a pane, or do something", placeholder: "Go to a pane, or do something…", spellcheck: "false", autocomplete: "off" });
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
    ["Ctrl+Shift+Space", "the page's commands, also while a terminal has the keys"],
    ["Ctrl+K", "the page's commands (in a terminal this key is the program's)"],
    ["/", "filter the panes"],
    ["arrows, Enter", "from tile to tile, and into one"],
    ["g w · g a · g t · g s", "wall, agents, waits, workspace"],
    ["Shift+mouse", "select text where the program takes the mouse"],
    ["Ctrl+C with a selection", "copy it (without one the program gets Ctrl+C)"],
    ["Ctrl+Shift+V", "paste"],
    ["?", "this list"],
];

export function openHelp(version: string): void {
    if (document.querySelector("dialog[open]") !== null) {
        return;
    }
    const dialog = h(
        "dialog",
        { cls: "dialog help", "aria-label": "Keys" },
        {},
        h("h2", {}, {}, "Keys"),
        h("dl", {}, {}, ...KEYS.flatMap(([key, what]) => [h("dt", {}, {}, key), h("dd", {}, {}, what)])),
        h("p", { cls: "hint" }, {}, `muxtap ${version}. While a terminal has the focus every key is its program's, but for Ctrl+Shift+Space.`),
        h("form", { method: "dialog" }, {}, h("button", {}, {}, "Close")),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}
