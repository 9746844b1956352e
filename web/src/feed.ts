// The visible screens: one view for each pane, however many places show it, drawn once a frame.

import { Screen } from "./screen";
import type { Connection } from "./wire";

export type Exit = { status?: number | null; signal?: number | string | null } | null;

/** A pane's screen, as it arrives. */
export class Feed {
    readonly screen = new Screen();
    exit: Exit | undefined = undefined;
    error = "";
    view = 0;
    users = 0;
    readonly drawers = new Set<() => void>();

    constructor(readonly key: string) {}
}

export class Feeds {
    private feeds = new Map<string, Feed>();
    private dirty = new Set<Feed>();
    private asked = false;

    constructor(private connection: Connection) {}

    /**
     * Shows a pane, and calls back in each frame in which its screen has changed.
     *
     * Returns the feed, and a function that stops it.
     */
    use(key: string, draw: () => void): { feed: Feed; end(): void } {
        let feed = this.feeds.get(key);
        if (feed === undefined) {
            feed = new Feed(key);
            this.feeds.set(key, feed);
            this.start(feed);
        }
        const used = feed;
        used.users += 1;
        used.drawers.add(draw);
        if (used.screen.known) {
            this.changed(used, false);
        }
        let ended = false;
        const end = () => {
            if (ended) {
                return;
            }
            ended = true;
            used.users -= 1;
            used.drawers.delete(draw);
            if (used.users === 0) {
                this.feeds.delete(key);
                this.dirty.delete(used);
                this.connection.hide(used.view);
            }
        };
        return { feed: used, end };
    }

    private start(feed: Feed): void {
        feed.view = this.connection.show(feed.key, {
            screen: (message) => {
                feed.error = "";
                // `ended` comes after a pane's last screen; this pane is still alive.
                feed.exit = undefined;
                feed.screen.apply(message);
                this.changed(feed, true);
            },
            ended: (exit) => {
                feed.exit = exit;
                this.changed(feed, false);
            },
            failed: (error) => {
                feed.error = error.message;
                this.changed(feed, false);
            },
        });
    }

    private owed = new Set<Feed>();

    private changed(feed: Feed, credit: boolean): void {
        this.dirty.add(feed);
        if (credit) {
            this.owed.add(feed);
        }
        if (!this.asked) {
            this.asked = true;
            requestAnimationFrame(() => this.frame());
        }
    }

    private frame(): void {
        this.asked = false;
        const dirty = [...this.dirty];
        this.dirty.clear();
        for (const feed of dirty) {
            try {
                for (const draw of [...feed.drawers]) {
                    draw();
                }
            } catch (error) {
                // The other feeds are still drawn.
                reportError(error);
            }
            if (this.owed.delete(feed) && feed.users > 0) {
                this.connection.drew(feed.view);
            }
        }
        this.connection.giveCredits();
    }
}
