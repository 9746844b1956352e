// Waits that this page has set, until each has ended: the list of those that are open says when to ask for its answer, so
// that none holds a connection of the few that a browser has.

export interface WaitAnswer {
    id: string;
    outcome: string;
    pane?: string;
    predicates?: { line?: string }[];
}

export class Followed<T> {
    private mine = new Map<string, T>();
    private asking = new Set<string>();

    /** `ask` answers what became of a wait, or null where nobody knows it any more; `list` has the list sent anew. */
    constructor(
        private ask: (id: string) => Promise<WaitAnswer | null>,
        private ended: (of: T, answer: WaitAnswer | null) => void,
        private list: () => void,
    ) {}

    /** Follows a wait; `open` are the ids of those that are open, as far as is known. */
    add(id: string, of: T, open: Iterable<string>): void {
        this.mine.set(id, of);
        this.look(open);
    }

    /** Asks about each that is not among those that are open. One that has begun a moment ago may not be there yet. */
    look(open: Iterable<string>): void {
        const there = new Set(open);
        for (const id of this.mine.keys()) {
            if (there.has(id)) {
                // The answer to a question of before says nothing about now.
                this.asking.delete(id);
            } else if (!this.asking.has(id)) {
                void this.settle(id);
            }
        }
    }

    private async settle(id: string): Promise<void> {
        this.asking.add(id);
        let pending = false;
        try {
            const answer = await this.ask(id);
            const of = this.mine.get(id);
            pending = answer?.outcome === "pending";
            if (of !== undefined && !pending) {
                this.mine.delete(id);
                this.ended(of, answer);
            }
        } catch {
            // No link: the list that comes with the next one has it asked again.
        } finally {
            this.asking.delete(id);
        }
        if (pending) {
            // The list was older than the wait, or the wait has ended since: a new one tells which.
            this.list();
        }
    }
}
