// Words that an on-screen keyboard composes, typed as they grow.

/** Text for which an input method offers candidates: it is typed only once it is chosen. */
const CHOSEN = /[\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af]/;

/**
 * Returns the change from the text typed so far to another: a number of backspaces, then a text.
 *
 * Null: the text is one that is chosen in the end.
 */
export function composedChange(before: string, after: string, ended = false): { back: number; text: string } | null {
    if (!ended && CHOSEN.test(after)) {
        return null;
    }
    const [one, other] = [[...before], [...after]];
    let same = 0;
    while (same < one.length && one[same] === other[same]) {
        same += 1;
    }
    return { back: one.length - same, text: other.slice(same).join("") };
}
