// The size of a cell in the page's fixed-width font.

let ratio = 0;

/** Returns a cell's width relative to the font size. */
export function cellRatio(): number {
    if (ratio === 0) {
        const probe = document.createElement("span");
        probe.className = "probe";
        probe.textContent = "0".repeat(100);
        document.body.appendChild(probe);
        ratio = probe.getBoundingClientRect().width / 100 / 100;
        probe.remove();
    }
    return ratio || 0.6;
}

/**
 * Returns a row's height in whole pixels: backgrounds of rows meet without a seam, and nothing at
 * the bottom of a letter is cut off.
 */
export function rowHeight(fontSize: number): number {
    return Math.max(2, Math.ceil(fontSize * 1.19));
}

/**
 * Returns the largest font size, in half pixels, at which this many cells fit into this many
 * pixels.
 */
export function fittingSize(columns: number, rows: number, width: number, height: number, ratio: number, least = 6, most = 22): number {
    let size = Math.min(most, Math.floor((2 * width) / (columns * ratio)) / 2);
    while (size > least && rowHeight(size) * rows > height) {
        size -= 0.5;
    }
    return Math.max(least, size);
}
