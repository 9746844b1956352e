// A file in a pane. The editor itself is loaded on first use.

import { type App, messageOf } from "../app";
import { button, fill, h } from "../dom";
import { discards } from "../view/ask";
import type { Shown } from "./content";

/** The result of editor/code.ts. */
export interface CodeEditor {
    element: HTMLElement;
    text(): string;
    focus(): void;
    destroy(): void;
}
export interface CodeModule {
    create(text: string, name: string, readOnly: boolean, on: { changed(): void; save(): void }): CodeEditor;
}

interface FileAnswer {
    path: string;
    text: string;
    /** Empty if the file does not exist yet. */
    version: string;
    writable?: boolean;
}

export class EditorPane implements Shown {
    readonly element: HTMLElement;
    private readonly state = h("span", { role: "status", cls: "editor-state" });
    private readonly body = h("div", { cls: "editor-body" });
    private readonly save: HTMLButtonElement;
    private code: CodeEditor | null = null;
    private version = "";
    private dirty = false;
    private saving = false;

    constructor(
        private app: App,
        private file: string,
    ) {
        this.save = button("Save", () => void this.write(false), { disabled: true });
        this.element = h("div", { cls: "editor" }, { keydown: (event) => event.stopPropagation() }, h("div", { cls: "row-of" }, {}, this.state, button("Reload", () => void this.reload()), this.save), this.body);
        window.addEventListener("beforeunload", this.leaving);
        void this.load();
    }

    /** Asks, through the browser, before a page with unsaved text is left. */
    private readonly leaving = (event: BeforeUnloadEvent): void => {
        if (this.dirty) {
            event.preventDefault();
        }
    };

    unsaved(): boolean {
        return this.dirty;
    }

    private async reload(): Promise<void> {
        if (!this.dirty || (await discards(this.file))) {
            await this.load();
        }
    }

    title(): string {
        return `${this.dirty ? "● " : ""}${this.file}`;
    }

    focus(): void {
        this.code?.focus();
    }

    remove(): void {
        window.removeEventListener("beforeunload", this.leaving);
        this.code?.destroy();
        this.element.remove();
    }

    private async load(): Promise<void> {
        try {
            const response = await fetch(`/v1/page/files?path=${encodeURIComponent(this.file)}`, { credentials: "same-origin" });
            const answer = (await response.json()) as FileAnswer;
            if (!response.ok) {
                throw answer;
            }
            await this.show(answer);
            this.state.textContent = answer.writable === false ? "read-only" : "";
        } catch (error) {
            if ((error as { code?: string }).code === "NOT_FOUND" && this.app.mayType) {
                await this.show({ path: this.file, text: "", version: "" });
                this.state.textContent = "new file";
            } else {
                this.state.textContent = `Not opened: ${messageOf(error)}`;
            }
        }
    }

    private async show(file: FileAnswer): Promise<void> {
        const address = "/page/editor.js";
        const module = (await import(address)) as CodeModule;
        this.code?.destroy();
        this.version = file.version;
        this.code = module.create(file.text, this.file, !this.app.mayType || file.writable === false, {
            changed: () => this.changed(true),
            save: () => void this.write(false),
        });
        fill(this.body, this.code.element);
        this.changed(false);
    }

    private changed(dirty: boolean): void {
        this.dirty = dirty;
        this.save.disabled = !dirty || !this.app.mayType;
        if (dirty) {
            this.state.textContent = "modified";
        }
    }

    /**
     * Saves; a file that another program has changed meanwhile is not overwritten without asking.
     */
    private async write(force: boolean): Promise<void> {
        if (this.code === null || this.saving) {
            return;
        }
        this.saving = true;
        const text = this.code.text();
        try {
            const response = await fetch("/v1/page/files", {
                method: "PUT",
                credentials: "same-origin",
                headers: { "content-type": "application/json" },
                body: JSON.stringify({ path: this.file, text, ...(force ? {} : { version: this.version }) }),
            });
            const answer = (await response.json()) as FileAnswer & { code?: string };
            if (response.status === 409) {
                this.state.textContent = "The file has changed on disk.";
                this.app.note({
                    kind: "error",
                    text: `${this.file} has changed on disk since it was opened.`,
                    actions: [
                        { label: "Overwrite", press: () => void this.write(true) },
                        { label: "Reload", press: () => void this.load() },
                    ],
                });
                return;
            }
            if (!response.ok) {
                throw answer;
            }
            this.version = answer.version;
            this.changed(this.code.text() !== text);
            this.state.textContent = "saved";
        } catch (error) {
            this.state.textContent = `Not saved: ${messageOf(error)}`;
        } finally {
            this.saving = false;
        }
    }
}
