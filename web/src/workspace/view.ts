import type { App } from "../app";
import { h } from "../dom";
export class WorkspaceView {
    readonly element = h("section", { cls: "workspace", "aria-label": "Workspace" });
    constructor(_app: App, _on: { chord(): void; wait(key: string, text: string): void }) {}
    set shown(_shown: boolean) {}
    reconnect(): void {}
    disconnect(): void {}
}
