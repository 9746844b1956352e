// Waits that this page has set, until each has ended.
//
// The list of open waits shows when to request a wait's response. So no wait occupies one of a
// browser's few connections.

export interface WaitAnswer {
    id: string;
    outcome: string;
    pane?: string;
    predicates?: { line?: string }[];
}

export class Followed<T> {
    private mine = new Map<string, T>();
    private asking = new Set<string>();

    /**
     * `ask` returns a wait's response, or null if the daemon no longer knows it; `list` requests
     * the list again.
     */
    constructor(
        private ask: (id: string) => Promise<WaitAnswer | null>,
        private ended: (of: T, answer: WaitAnswer | null) => void,
        private list: () => void,
    ) {}

    /** Follows a wait; `open` are the ids of the open waits, as far as known. */
    add(id: string, of: T, open: Iterable<string>): void {
        this.mine.set(id, of);
        this.look(open);
    }

    /**
     * Requests the response of each wait that is not open. A new wait may not be in the list yet.
     */
    look(open: Iterable<string>): void {
        const there = new Set(open);
        for (const id of this.mine.keys()) {
            if (there.has(id)) {
                // The response to an earlier request says nothing about the current state.
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
            // Without a connection, the list that comes with the next one repeats the request.
        } finally {
            this.asking.delete(id);
        }
        if (pending) {
            // The list was older than the wait, or the wait has ended since: a new list decides.
            this.list();
        }
    }
}
