// The editor of files: CodeMirror 6.
//
// CodeMirror is in a shadow root: its styles are then constructed sheets, the only ones that the
// page's policy allows.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, indentUnit } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import type { CodeEditor } from "../workspace/editor";

const look = EditorView.theme({
    "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--ground)", fontSize: "13px" },
    "&.cm-focused": { outline: "none" },
    ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
    ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--soft)", borderRight: "1px solid var(--line)" },
    ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 8%, transparent)" },
    ".cm-cursor": { borderLeftColor: "var(--ink)" },
    ".cm-content": { caretColor: "var(--ink)" },
    "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 30%, transparent)" },
    ".cm-panels": { backgroundColor: "var(--panel)", color: "var(--ink)" },
    ".cm-searchMatch": { backgroundColor: "color-mix(in srgb, var(--ask) 35%, transparent)" },
});

export function create(text: string, name: string, readOnly: boolean, on: { changed(): void; save(): void }): CodeEditor {
    const element = document.createElement("div");
    element.className = "code";
    const root = element.attachShadow({ mode: "open" });
    const tabs = /^\t/m.test(text) || /makefile$/i.test(name);
    const save = () => {
        on.save();
        return true;
    };
    const view = new EditorView({
        root,
        parent: root,
        state: EditorState.create({
            doc: text,
            extensions: [
                // A file keeps its line ends; a file with several kinds keeps each as it is.
                EditorState.lineSeparator.of(text.includes("\r\n") && /^(?:[^\r\n]|\r\n)*$/.test(text) ? "\r\n" : "\n"),
                lineNumbers(),
                highlightActiveLineGutter(),
                highlightActiveLine(),
                history(),
                drawSelection(),
                bracketMatching(),
                highlightSelectionMatches(),
                search({ top: true }),
                indentUnit.of(tabs ? "\t" : "    "),
                keymap.of([{ key: "Mod-s", run: save }, ...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
                EditorState.readOnly.of(readOnly),
                EditorView.contentAttributes.of({ "aria-label": name }),
                EditorView.updateListener.of((update) => {
                    if (update.docChanged) {
                        on.changed();
                    }
                }),
                look,
            ],
        }),
    });
    return { element, text: () => view.state.sliceDoc(), focus: () => view.focus(), destroy: () => view.destroy() };
}
