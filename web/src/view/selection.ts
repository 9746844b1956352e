// The selection in a pane as text: lines that the terminal wrapped are joined.

/** Returns the selected text within an element, or "". */
export function selectedText(within: Element): string {
    const selection = getSelection();
    if (selection === null || selection.isCollapsed || selection.rangeCount === 0) {
        return "";
    }
    const range = selection.getRangeAt(0);
    if (!within.contains(range.commonAncestorContainer)) {
        return "";
    }
    const rows = [...within.querySelectorAll(".row")].filter((row) => range.intersectsNode(row));
    if (rows.length === 0) {
        return selection.toString();
    }
    let text = "";
    rows.forEach((row, index) => {
        const part = document.createRange();
        part.selectNodeContents(row);
        if (row.contains(range.startContainer)) {
            part.setStart(range.startContainer, range.startOffset);
        }
        if (row.contains(range.endContainer)) {
            part.setEnd(range.endContainer, range.endOffset);
        }
        text += part.toString();
        if (index < rows.length - 1 && !row.classList.contains("on")) {
            text += "\n";
        }
    });
    return text;
}
