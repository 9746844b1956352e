// The open streams, each of which takes one of a browser's few connections to a host.

export interface Stream {
    start(): void;
    stop(): void;
}

/** Returns the milliseconds before a stream is requested again after this many failures. */
export function againAfter(tries: number): number {
    return Math.min(30_000, 1000 * 2 ** Math.max(0, tries - 1));
}

export class Streams<S extends Stream> {
    /** The visible streams, the last used one last; the last `most` of them are open. */
    private wanted: S[] = [];

    constructor(private most: number) {}

    /** Opens a stream, or keeps it open, in preference to others. */
    want(stream: S): void {
        this.set([...this.wanted.filter((one) => one !== stream), stream]);
    }

    /** Closes a stream; a paused one takes its place. */
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
