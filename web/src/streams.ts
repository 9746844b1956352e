// Streams that are open at once, each a connection of the few that a browser has to a host.

export interface Stream {
    start(): void;
    stop(): void;
}

/** Milliseconds until a stream that was refused so many times is asked for again. */
export function againAfter(tries: number): number {
    return Math.min(30_000, 1000 * 2 ** Math.max(0, tries - 1));
}

export class Streams<S extends Stream> {
    /** Those that somebody looks at, the last one last; the last `most` of them are open. */
    private wanted: S[] = [];

    constructor(private most: number) {}

    /** Opens a stream, or keeps it open, before others. */
    want(stream: S): void {
        this.set([...this.wanted.filter((one) => one !== stream), stream]);
    }

    /** Closes a stream; one that stood still for it goes on. */
    leave(stream: S): void {
        this.set(this.wanted.filter((one) => one !== stream));
    }

    private set(wanted: S[]): void {
        const before = this.wanted.slice(-this.most);
        const now = wanted.slice(-this.most);
        this.wanted = wanted;
        for (const one of before) {
            if (!now.includes(one)) {
                one.stop();
            }
        }
        for (const one of now) {
            if (!before.includes(one)) {
                one.start();
            }
        }
    }
}
